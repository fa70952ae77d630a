"""HTCondor: submitting, finding, watching and steering DAGMan jobs on one schedd (docs/design/htcondor.md).

Every question goes to a child process with a time limit (``htcondor_process``). Questions are retried, and so are removals, holds
and edits, which may be made twice; a submission never is, and has a process of its own: its time-out means *unknown*, and the
caller looks with ``find_dag``.
Only jobs that carry this instance's stamp, and are its owner's, are ever seen or touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from wms2.adapters import htcondor_ads as ads
from wms2.adapters.caller import TRIES, Caller, observed
from wms2.adapters.htcondor_process import SERVICE, Place, ask, ask_apart
from wms2.adapters.types import (
    FoundDag,
    HistoryAd,
    OrphanJobs,
    PoolAnswer,
    QueueAnswer,
    ScheddAd,
    ScheddFacts,
    Submission,
    UnbegunUnit,
)
from wms2.errors import ServiceRejected, ServiceUnavailable

# A DAG is submitted again at most a few times under the same id; more would be a fault that must show, not a longer list.
_MAX_SUBMISSIONS = 20
#: The collector is asked about a silent schedd only for people to see; a cycle does not wait long for that.
_COLLECTOR_SECONDS = 10.0


class HtcondorAdapter:
    """One schedd by its name in a collector (``host:port``); without a name only the collector is asked.

    ``instance`` is the ``WMS2_Instance`` of all our jobs, ``owner`` whose they are there (without, the schedd is asked),
    ``token_dir`` a directory of IDTOKENs, "" for the configuration's own methods. The time limits are those of one question, per
    try, and of a submission.
    """

    def __init__(
        self,
        schedd_name: str,
        collector: str,
        *,
        instance: str,
        owner: str = "",
        token_dir: str = "",
        timeout_seconds: float = 30.0,
        submit_timeout_seconds: float = 60.0,
    ) -> None:
        self._place = Place(schedd_name, collector, token_dir)
        self._instance, self._known_owner = instance, owner
        self._timeout_seconds, self._submit_timeout_seconds = timeout_seconds, submit_timeout_seconds
        self._caller = Caller(SERVICE, f"{schedd_name or 'the pool'} via {collector}")

    # --- submission

    def submit_dag(
        self,
        submit_dir: Path,
        dag_file: str,
        attributes: Mapping[str, str | int],
        priority: int,
        begun: float | None = None,
        units: int = 0,
    ) -> int:
        """Submit a DAG once; returns the cluster of its DAGMan job. A rescue file that is there is used.

        Args:
            submit_dir: directory of the DAG, on the schedd's file system and writable for the jobs' owner.
            dag_file: its file name there.
            attributes: stamps of the outer DAGMan's ad; ``WMS2_Instance`` and ``WMS2_DagID`` must be among them.
            priority: ``-Priority`` for the node jobs of both levels.
            begun: by ``htcondor_process.since_boot``; the submission's time limit counts from then on, else from now.
            units: that run at once, until ``set_units_at_once`` changes it; 0: as the DAG's own limits say.

        Raises:
            ServiceUnavailable: unknown whether a job exists; look with ``find_dag`` before trying again.
            ServiceRejected: nothing was sent (missing file, unreadable DAG, a DAG that has finished, a credential by which the
                job would be another owner's, and never be found again).
        """
        call = {"op": "submit", "dag_file": dag_file, "priority": int(priority), "units": int(units)}
        return self._submit("submit_dag", call, submit_dir, attributes, begun)

    def submit_job(self, submit_dir: Path, text: str, attributes: Mapping[str, str | int], begun: float) -> int:
        """Submit a single job that is no DAG's, once; returns its cluster. After ``ServiceUnavailable`` look with ``find_job``.

        Args:
            text: a submit description without ``queue``; its paths are below ``submit_dir``.

        ``attributes``, ``begun`` and errors as ``submit_dag``; the job carries its own id as ``WMS2_DagID``.
        """
        return self._submit("submit_job", {"op": "submit_job", "text": text}, submit_dir, attributes, begun)

    def _submit(
        self, operation: str, call: Mapping[str, Any], submit_dir: Path, attributes: Mapping[str, str | int], begun: float | None
    ) -> int:
        if attributes.get(ads.INSTANCE) != self._instance or not attributes.get(ads.DAG_ID):
            detail = (
                f"attributes must hold {ads.INSTANCE}={self._instance} and {ads.DAG_ID}, or the job could never be found again"
            )
            raise ServiceRejected(SERVICE, operation, detail)
        whole = {**call, "submit_dir": str(submit_dir.absolute()), "attributes": ads.stamp_literals(attributes)}
        whole["owner"] = self._known_owner  # where it is not known nothing was looked for before, and one question is enough
        limit = self._submit_timeout_seconds

        def submitted() -> list[Any]:
            return ask_apart(self._place, [whole], operation=operation, limit_seconds=limit, begun=begun)

        (cluster,) = self._caller.call(operation, submitted, 1)
        return int(cluster)

    def find_dag(self, dag_id: str, since: datetime | None = None) -> FoundDag | None:
        """The DAG's outer DAGMan job, in the queue or in the history; None when both answered and neither has one.

        Args:
            since: no job of the DAG can have ended before; the history is read back to then, not to its beginning.

        Raises:
            ServiceUnavailable: one of them did not answer; nothing may be concluded.
        """
        return self._find(self._ours().of_dag(dag_id), since, "find_dag")

    def find_job(self, job_id: str, since: datetime) -> FoundDag | None:
        """A job that is no DAG's, by the id that it carries; the rest as ``find_dag``."""
        return self._find(self._ours().node_jobs(job_id), since, "find_job")

    def _find(self, constraint: str, since: datetime | None, operation: str) -> FoundDag | None:
        # Queue first: a job that leaves it between the two is then in the history.
        queue, history = self._ask(
            [
                {"op": "query", "constraint": constraint, "projection": ads.DAGMAN_PROJECTION},
                self._in_history(constraint, _MAX_SUBMISSIONS, since),
            ],
            operation,
        )
        live = sorted(ads.dagman_ads(queue, self._instance), key=lambda ad: (ad.fence or 0, ad.cluster))
        if live:
            latest = live[-1]
            return FoundDag(latest.cluster, latest.fence, latest.job_status, tuple(ad.cluster for ad in live), None)
        gone = sorted((ads.history_ad(ad) for ad in history), key=lambda ad: (ad.fence or 0, ad.cluster))
        return FoundDag(gone[-1].cluster, gone[-1].fence, gone[-1].job_status, (), gone[-1]) if gone else None

    # --- watching

    def watch(self, instance: str) -> QueueAnswer:
        """What the schedd says about itself, all DAGMan jobs of an instance in its queue (the DAGs' and their running units'),
        and how many node jobs there are: the schedd counts these, so that no answer grows with them.

        One question, so that it is known which queue they are in.
        Tried once: the leader asks again in its next cycle.
        """
        owner = self._ours(tries=1).owner
        jobs = ads.OwnJobs(instance, owner)
        call = {"op": "query", "constraint": jobs.all_dagmans(), "projection": ads.DAGMAN_PROJECTION}
        count = {"op": "groups", "constraint": jobs.all_node_jobs(), "projection": ads.JOB_GROUPS}
        itself = {"op": "schedd_ad", "projection": ads.SCHEDD_PROJECTION}
        schedd, heard, rows, groups = self._ask([itself, self._in_collector(), call, count], "watch", tries=1)
        about = replace(ads.schedd_ad(schedd, heard), owner=owner)
        dagmans, unread = ads.dagman_ads_readable(rows, instance)
        return QueueAnswer(about, dagmans, ads.job_groups(groups), unread)

    def history(self, cluster: int, dag_id: str = "", since: datetime | None = None) -> HistoryAd | None:
        """How an outer DAGMan job ended; None when the history has no such job of ours (also: not yet).

        With ``dag_id`` only the job that ran this DAG: another one may have had the number in another queue of the schedd.
        ``since`` as in ``find_dag``.
        """
        constraint = self._ours().of_cluster(cluster, dag_id)
        (rows,) = self._ask([self._in_history(constraint, 1, since)], "history")
        return ads.history_ad(rows[0]) if rows else None

    def _in_history(self, constraint: str, limit: int, since: datetime | None) -> dict[str, Any]:
        end = None if since is None else self._ours().ended_before(int(since.timestamp()))
        return {
            "op": "history", "constraint": constraint, "projection": ads.HISTORY_PROJECTION, "limit": limit, "since": end,
        }  # fmt: skip

    def orphans(self, known_dag_ids: Collection[str]) -> list[OrphanJobs]:
        """Jobs of ours in the queue that are of none of these DAGs: DAGMans and node jobs, counted by the DAG they name.

        Tried once: the leader waits for it, and looks again later.
        """
        constraint = self._ours(tries=1).orphans(known_dag_ids)
        return ads.orphan_jobs(self._query(constraint, "strays", *ads.ORPHAN_PROJECTION, tries=1))

    def collector_ad(self) -> ScheddAd | None:
        """The collector's copy of the schedd's ad, to distinguish a silent schedd from one that the collector misses too. Raises
        ServiceUnavailable: the collector did not answer either."""
        limit = min(self._timeout_seconds, _COLLECTOR_SECONDS)
        with observed(SERVICE, "collector_ad"):  # not through the breaker: that is the schedd's
            (rows,) = ask(self._place, [self._in_collector()], operation="collector_ad", limit_seconds=limit)
        return ads.schedd_ad(rows[0], rows) if rows else None

    def _in_collector(self) -> dict[str, Any]:
        itself = f"Name == {ads.literal(self._place.schedd)}"
        return {"op": "collector_ad", "constraint": itself, "projection": ads.SCHEDD_PROJECTION}

    def pool(self) -> PoolAnswer:
        """What the collector says of its schedds, and of the slots per site; no schedd need be named for it. Tried once: it is
        asked again every minute."""
        schedds = {"op": "collector_ad", "constraint": "true", "projection": ads.SCHEDD_PROJECTION}
        found, slots = self._ask([schedds, {"op": "slots", "projection": ads.SLOT_PROJECTION}], "pool", tries=1)
        return ads.pool_answer(found, slots)

    def facts(self) -> ScheddFacts:
        """What the schedd itself says now, its limits and whose our jobs are there among it."""
        itself = {"op": "schedd_ad", "projection": ads.SCHEDD_PROJECTION}
        ad, limits, owner = self._ask([itself, {"op": "config", "names": ads.LIMITS}, {"op": "owner"}], "facts")
        return ads.schedd_facts(ad, limits, owner)

    def _ours(self, tries: int = TRIES) -> ads.OwnJobs:
        """Our jobs there. Whose they are the checks of the schedd have found, else it is asked once by each process."""
        if not self._known_owner:
            (self._known_owner,) = self._ask([{"op": "owner"}], "owner", tries=tries)
        return ads.OwnJobs(self._instance, self._known_owner)

    # --- steering

    def remove(self, cluster: int, reason: str, dag_id: str = "") -> int:
        """Remove an outer DAGMan job; inner ones and node jobs go with it and both levels write rescue files.

        Returns 1, or 0 when no such job of ours is in the queue. Repeatable. With ``dag_id`` only if the job runs that DAG.
        """
        return self._act(self._ours().of_cluster(cluster, dag_id), "Remove", cluster, reason, "remove")

    def remove_all(self, dag_ids: Mapping[int, str], reason: str) -> int:
        """The same for several outer DAGMan jobs at once: cluster -> the DAG that it must run. Returns how many there were. Tried
        once: the leader waits for it, and asks again in its next cycle."""
        clusters = ", ".join(map(str, dag_ids))
        mine = self._ours(tries=1).of_clusters(dag_ids)
        return self._act(mine, "Remove", clusters, reason, "remove_all", tries=1)

    def remove_orphans(self, dag_id: str, reason: str, fence: int | None = None) -> int:
        """Remove all jobs of ours that name this DAG, the DAGMans first, which end their jobs; returns how many. Repeatable. With
        ``fence`` none of a later submission."""
        ours, which = self._ours(), f"of DAG {dag_id or 'without an id'}"
        in_order = ours.dagmans_naming(dag_id, fence), ours.naming_dag(dag_id, fence)
        return sum(self._act(constraint, "Remove", which, reason, "remove_orphans") for constraint in in_order)

    def remove_job(self, cluster: int, job_id: str, reason: str) -> int:
        """Remove a job that is no DAG's; returns 1, or 0 when it is not in the queue. Repeatable."""
        return self._act(self._ours().node_jobs(job_id), "Remove", cluster, reason, "remove_job")

    def hold_tree(self, job: Submission, reason: str) -> int:
        """Hold the outer DAGMan, the inner ones and their jobs that wait for a slot; jobs that run go on. Returns how many jobs;
        0 when that submission is in the queue no more, whatever else the directory may run by now.

        Args:
            job: which submission.
            reason: shown by HTCondor with each job.

        DAGMans first, so that nothing takes the place of a job that is held. What one of them submits at that very moment
        may slip through; asking again holds it.
        """
        if not self._there(job, "hold_tree"):
            return 0
        ours = self._ours()
        in_order = ours.tree_of(job), ours.waiting(job.directory_id, job.fence)
        return sum(self._act(constraint, "Hold", job.cluster, reason, "hold_tree") for constraint in in_order)

    def release_tree(self, job: Submission, reason: str) -> int:
        """Release what ``hold_tree`` held, and any job that was held by hand; DAGMans start in recovery mode and go on."""
        if not self._there(job, "release_tree"):
            return 0
        in_order = self._ours().held_by_people(job), self._ours().tree_of(job)
        return sum(self._act(constraint, "Release", job.cluster, reason, "release_tree") for constraint in in_order)

    def _there(self, job: Submission, operation: str) -> bool:
        mine = self._ours().of_cluster(job.cluster, job.dag_id, job.fence)
        return bool(self._query(mine, operation))

    def set_priority(self, directory_id: str, fence: int, value: int) -> int:
        """Give the node jobs of one submission of a DAG's directory another priority; returns how many were changed.

        Their order among each other (``PostJobPrio1``) stays. DAGMan itself goes on with the old value until the next submission:
        call again each cycle.
        """
        jobs = f"{self._ours().node_jobs(directory_id, fence)} && JobPrio =!= {value}"
        return self._edit(jobs, "JobPrio", value, "set_priority") if self._query(jobs, "set_priority") else 0

    def avoid_sites(self, directory_id: str, fence: int, sites: Collection[str]) -> int:
        """Have the landing jobs of one submission of a DAG's directory that wait for a slot land at none of these sites, beside
        those that they avoid already, and look first at none of them; returns how many avoid more than before."""
        jobs = self._ours().waiting_landings(directory_id, fence)
        rows = self._query(jobs, "avoid_sites", ads.AVOID, ads.FIRST)
        changed = 0
        for first in sorted({str(row.get(ads.FIRST)) for row in rows} & set(sites)):
            self._edit(f"{jobs} && {ads.FIRST} =?= {ads.literal(first)}", ads.FIRST, ads.literal(""), "avoid_sites")
        for old in sorted({str(row[ads.AVOID]) for row in rows if ads.AVOID in row}):
            avoided = list(filter(None, old.split(",")))
            if more := sorted(set(sites) - set(avoided)):
                new = ads.literal(",".join([*avoided, *more]))
                changed += self._edit(f"{jobs} && {ads.AVOID} =?= {ads.literal(old)}", ads.AVOID, new, "avoid_sites")
        return changed

    def unbegun_units(self, directory_id: str, fence: int, sites: Collection[str], moment_seconds: int) -> dict[str, UnbegunUnit]:
        """Work units of one submission none of whose jobs in the queue has begun, all waiting at one of these sites since before
        this moment. Only where there is such a job is the schedd asked for all of the submission."""
        ours = self._ours()
        if not self._query(ours.unbegun_since(directory_id, fence, sites, moment_seconds), "unbegun_units", ads.UNIT):
            return {}
        rows = self._query(ours.node_jobs(directory_id, fence), "unbegun_units", *ads.UNBEGUN_PROJECTION)
        found = ads.unbegun_units(rows).items()
        return {name: unit for name, unit in found if unit.site in sites and unit.since_seconds <= moment_seconds}

    def leave_site(self, directory_id: str, fence: int, units: Collection[str]) -> int:
        """Have these units land elsewhere: jobs of theirs that never began wait no longer, as after five idle days. The
        schedd itself looks at each, so one that begins at this moment goes on. Returns how many; 0 when it was said before."""
        jobs = self._ours().unbegun_jobs(directory_id, fence, units)
        return self._edit(jobs, ads.IDLE_ATTRIBUTE, 0, "leave_site")

    def set_units_at_once(self, cluster: int, dag_id: str, units: int) -> int:
        """Have the DAGMan of a DAG run so many units at once from now on; those that run go on. Within seconds, until it starts
        anew (a release, a restart of the schedd): look what it says and call again. Returns 1, or 0 when it is not there."""
        mine = self._ours().of_cluster(cluster, dag_id)
        there = self._query(mine, "set_units_at_once")
        return self._edit(mine, "DAGMan_MaxJobs", units, "set_units_at_once") if there else 0

    # --- calls

    def _act(self, constraint: str, action: str, cluster: int | str, reason: str, operation: str, *, tries: int = TRIES) -> int:
        call = {"op": "act", "action": action, "constraint": constraint, "reason": ads.reason_text(reason)}
        (totals,) = self._ask([call], operation, tries=tries)
        if totals.get("TotalPermissionDenied"):
            raise ServiceRejected(SERVICE, operation, f"{self._place.schedd}: not allowed to {operation} cluster {cluster}")
        if totals.get("TotalError"):
            raise ServiceUnavailable(
                SERVICE, operation, f"{self._place.schedd}: {operation} of cluster {cluster} failed: {totals}"
            )
        return int(totals.get("TotalSuccess") or 0)

    def _edit(self, constraint: str, attribute: str, value: int | str, operation: str) -> int:
        call = {"op": "edit", "constraint": constraint, "attribute": attribute, "value": str(value)}
        try:
            (changed,) = self._ask([call], operation)
        except ServiceUnavailable:
            # The bindings raise the same error when nothing matches: the jobs may have ended meanwhile.
            if self._query(constraint, operation):
                raise
            return 0
        return int(changed)

    def _query(self, constraint: str, operation: str, *projection: str, tries: int = TRIES) -> list[Any]:
        """Ads of jobs in the queue; without a projection only their number counts."""
        call = {"op": "query", "constraint": constraint, "projection": list(projection or ("ClusterId",))}
        (rows,) = self._ask([call], operation, tries=tries)
        return list(rows)

    def _ask(self, calls: Sequence[Mapping[str, Any]], operation: str, *, tries: int = TRIES) -> list[Any]:
        def asked() -> list[Any]:
            return ask(self._place, calls, operation=operation, limit_seconds=self._timeout_seconds)

        return self._caller.call(operation, asked, tries)
