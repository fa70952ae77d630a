"""A schedd with its DAGMan jobs, scripted: jobs run in directories on disk and end as the test says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import classad2
import htcondor2  # noqa: F401  (with it come the functions of HTCondor's expressions, as stringListMember)
from django.utils import timezone

from dags_app.dagman import NodeState, newest_rescue, read_rescue
from dags_app.models import DAG
from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.site_tasks import Removed, SiteResult, read_task
from sites_app.bans import AUTOMATIC, bans_active
from sites_app.models import Site, SiteStatus
from tests.support.scripted import dagman
from tests.support.scripted.dagman import Account
from tests.support.scripted.faults import Script
from wms2.adapters import htcondor_ads as ads
from wms2.adapters.types import (
    JOB_RUNNING,
    DagmanAd,
    DagStatus,
    FoundDag,
    HistoryAd,
    JobGroup,
    JobStatus,
    OrphanJobs,
    PoolAnswer,
    QueueAnswer,
    ScheddAd,
    Submission,
    UnbegunUnit,
)
from wms2.errors import ServiceRejected, ServiceUnavailable

#: A second schedd, where there is one.
OTHER = "other@test"
#: When jobs at sites ran, as they say.
AT = "2026-11-22T10:00:00Z"
#: Whose the jobs are that WMS2 submits, and another who may submit.
OWNER, OTHER_OWNER = "wms2", "mallory"
T = TypeVar("T")


class End(Enum):
    """How a DAGMan job leaves the queue."""

    FINISHED = "all nodes ended"
    ABORTED = "a node ended with 43"
    REMOVED = "condor_rm by somebody else"
    DRAINED = "halted, and what ran has finished"
    VANISHED = "the queue lost it: no history, no metrics, no rescue file"
    BROKEN = "DAGMan could not go on: exit 1, status ERROR"
    DISPUTED = "the history says all done, the metrics file says broken"
    UNFINISHED = "history and metrics say all done, the status file does not"
    UNTOLD = "all nodes ended, the history has lost it"
    UNMEASURED = "all nodes ended, there is no metrics file"
    UNLISTED = "all nodes ended, there is no status file"

    @property
    def runs_out(self) -> bool:
        """Whether every node ends first."""
        return self in (End.FINISHED, End.UNTOLD, End.UNMEASURED, End.UNLISTED)

    @property
    def proves_nothing(self) -> bool:
        """Whether what is left behind disagrees, or is nothing."""
        return self in (End.DISPUTED, End.UNFINISHED, End.VANISHED)


@dataclass
class Job:
    """One outer DAGMan job."""

    cluster: int
    dag_id: str
    request_name: str
    fence: int
    directory: Path
    nodes: dict[str, NodeState]
    priority: int = 0
    live: bool = True
    held_because: str = ""
    ended: End | None = None
    remove_reason: str = ""
    history: HistoryAd | None = None
    #: its queue was lost and put back
    put_back: bool = False
    #: the schedd that has it
    at: str = ""
    queued_at: datetime = field(default_factory=lambda: timezone.now())  # noqa: PLW0108  # as the world has it
    left_at: datetime | None = None
    #: sites at which its landing jobs that wait do not start
    avoids: set[str] = field(default_factory=set)

    def count(self, state: NodeState) -> int:
        """Nodes in a state."""
        return list(self.nodes.values()).count(state)

    @property
    def open_nodes(self) -> list[str]:
        """Nodes that have not ended."""
        return [name for name, state in self.nodes.items() if state not in (NodeState.DONE, NodeState.ERROR)]

    @property
    def halted(self) -> bool:
        """Whether a halt file lies beside its DAG file: DAGMan starts no further unit."""
        return (self.directory / f"{layout.OUTER_DAG}.halt").exists()

    @property
    def completed(self) -> bool:
        """Whether it has really done all that it had to do."""
        return self.ended is not None and self.ended.runs_out and self.count(NodeState.DONE) == len(self.nodes)


@dataclass
class Stranger:
    """Jobs of another owner that carry our stamps, as any user of the schedd can submit them: an outer DAGMan, or node jobs.
    Whether WMS2 sees them is decided by the constraints that it would send."""

    ad: dict[str, Any]
    #: what was done to them
    touched: list[str] = field(default_factory=list)


@dataclass
class ScriptedSchedd:
    """The adapter's methods, and what a test may do to the jobs."""

    script: Script
    instance: str
    jobs: list[Job] = field(default_factory=list)
    silent: bool = False
    #: while it is silent: whether the collector still has its ad; None when that is silent too
    collector_has_ad: bool | None = True
    #: JobQueueBirthdate
    birthdate: int = 1
    #: the last cluster number of this queue
    last_cluster: int = 0
    #: ended jobs show in the history only later
    history_lags: bool = False
    #: removals are carried out only when ``work`` is called
    removes_late: bool = False
    #: submissions that reached the schedd: DAG id -> fences
    fences: dict[str, list[int]] = field(default_factory=dict)

    #: units whose account is not right
    bent: list[tuple[Job, str]] = field(default_factory=list)
    #: requests of which a unit did more than it was asked for
    overdone: set[str] = field(default_factory=set)
    #: jobs at sites, and what they have removed
    site_jobs: dict[str, tuple[int, Path]] = field(default_factory=dict)
    removed_files: list[str] = field(default_factory=list)
    #: which of several schedds is asked; they fail together, and have queues of their own
    asked: str = ""
    #: jobs of the queue that was lost last
    lost: list[Job] = field(default_factory=list)
    #: whose our jobs are, and of whom the adapter asks
    owner: str = OWNER
    asked_owner: str = ""
    #: node jobs of the DAG that wait beside those that run, as the schedd has them
    waiting: list[dict[str, Any]] = field(default_factory=list)
    #: how often it was asked which units of them never began
    unbegun_asked: int = 0
    strangers: list[Stranger] = field(default_factory=list)

    # --- what WMS2 calls

    def submit_dag(
        self,
        submit_dir: Path,
        dag_file: str,
        attributes: Mapping[str, str | int],
        priority: int,
        begun: float | None = None,
        units: int = 0,
    ) -> int:
        assert units == DAG.objects.get(pk=attributes["WMS2_DagID"]).merge_groups
        return self._ask("submit_dag", lambda: self._submit(submit_dir, attributes, priority))

    def find_dag(self, dag_id: str, since: datetime | None = None) -> FoundDag | None:
        def act() -> FoundDag | None:
            mine = [job for job in self._there if job.dag_id == dag_id]
            live = [(job.fence, job.cluster) for job in mine if job.live]
            theirs = self._theirs(lambda ours: ours.of_dag(dag_id))
            live = sorted([*live, *((each.ad[ads.FENCE], each.ad["ClusterId"]) for each in theirs)])
            if live:
                return FoundDag(live[-1][1], live[-1][0], JobStatus.RUNNING, tuple(cluster for _, cluster in live), None)
            gone = [job for job in mine if self._shown(job, since) is not None]
            if not gone or gone[-1].history is None:
                return None
            return FoundDag(gone[-1].cluster, gone[-1].fence, gone[-1].history.job_status, (), gone[-1].history)

        return self._ask("find_dag", act)

    def submit_job(self, submit_dir: Path, text: str, attributes: Mapping[str, str | int], begun: float) -> int:
        """A job at a site, which has removed at once what it was told to."""

        def act() -> int:
            self.last_cluster += 1
            self.site_jobs[str(attributes["WMS2_DagID"])] = (self.last_cluster, submit_dir)
            task = read_task(submit_dir)
            gone = [tuple(sorted(set(each.lfns) - task.protected)) for each in task.removals]
            removed = tuple(Removed(each.key, lfns, (), 0) for each, lfns in zip(task.removals, gone, strict=True))
            self.removed_files += [lfn for lfns in gone for lfn in lfns]
            result = SiteResult(task.job, task.site, "host", "schedd@test#1", AT, AT, removed)
            (submit_dir / layout.SITE_RESULT_FILE).write_text(json.dumps(to_json(result)))
            return self.last_cluster

        return self._ask("submit_job", act)

    def find_job(self, job_id: str, since: datetime) -> FoundDag | None:
        def act() -> FoundDag | None:
            if job_id not in self.site_jobs:
                return None
            cluster, ended = self.site_jobs[job_id][0], JobStatus.COMPLETED
            job: dict[str, Any] = {"cluster": cluster, "dag_id": job_id, "request_name": "", "fence": None, "job_status": ended}
            ad = HistoryAd(**job, queued_at_seconds=0, in_recovery=False, exit_code=0, remove_reason="")
            return FoundDag(cluster, None, ended, (), ad)

        return self._ask("find_job", act)

    def watch(self, instance: str) -> QueueAnswer:
        """Each unit that is open has one processing job in a slot."""

        def act() -> QueueAnswer:
            live = [job for job in self._there if job.live]
            units = [(job.directory.name, job.count(NodeState.SUBMITTED)) for job in live]
            running = [JobGroup(dag_id, "processing", JOB_RUNNING, "T2_CH_CERN", number) for dag_id, number in units]
            named = [ad | {"JobCount": 1, ads.DAG_ID: job.directory.name} for job in live for ad in self.waiting]
            running += ads.job_groups(named)
            theirs = ads.dagman_ads([each.ad for each in self._theirs(ads.OwnJobs.all_dagmans)], instance)
            others = ads.job_groups([each.ad for each in self._theirs(ads.OwnJobs.all_node_jobs)])
            return QueueAnswer(self._about(), [*map(self._ad, live), *theirs], [*running, *others])

        return self._ask("watch", act)

    def collector_ad(self) -> ScheddAd | None:
        if self.collector_has_ad is None:
            raise ServiceUnavailable("htcondor", "collector_ad", "scripted: silent", "timeout")
        return replace(self._about(), heard_at_seconds=1_795_187_247) if self.collector_has_ad else None

    def history(self, cluster: int, dag_id: str = "", since: datetime | None = None) -> HistoryAd | None:
        def act() -> HistoryAd | None:
            gone = [job for job in self._there if job.cluster == cluster and job.dag_id == dag_id and not job.live]
            return self._shown(gone[-1], since) if gone else None  # numbers begin again in a queue that was lost

        return self._ask("history", act)

    def orphans(self, known_dag_ids: Collection[str]) -> list[OrphanJobs]:
        def act() -> list[OrphanJobs]:
            stray = [job for job in self._there if job.live and job.dag_id not in known_dag_ids]
            live = Counter((job.dag_id, job.request_name) for job in stray)
            theirs = [each.ad for each in self._theirs(lambda ours: ours.orphans(known_dag_ids))]
            return [*(OrphanJobs(*named, number, 0) for named, number in live.items()), *ads.orphan_jobs(theirs)]

        return self._ask("strays", act)

    def remove(self, cluster: int, reason: str, dag_id: str = "") -> int:
        return self._ask("remove", lambda: self._remove(cluster, reason, dag_id))

    def remove_all(self, dag_ids: Mapping[int, str], reason: str) -> int:
        def act() -> int:
            return sum(self._remove(cluster, reason, dag_id) for cluster, dag_id in dag_ids.items())

        return self._ask("remove_all", act)

    def _remove(self, cluster: int, reason: str, dag_id: str) -> int:
        matching = [job for job in self._there if job.live and job.cluster == cluster and job.dag_id == dag_id]
        for job in matching:
            job.remove_reason = job.remove_reason or reason
            if not self.removes_late:
                self._removed(job)
        return len(matching) + self._touch("remove", lambda ours: ours.of_cluster(cluster, dag_id))

    def hold_tree(self, job: Submission, reason: str) -> int:
        return self._ask("hold_tree", lambda: self._pause(job, reason))

    def release_tree(self, job: Submission, reason: str) -> int:
        return self._ask("release_tree", lambda: self._pause(job, ""))

    def set_priority(self, directory_id: str, fence: int, value: int) -> int:
        def act() -> int:
            def selects(ours: ads.OwnJobs) -> str:
                return ours.node_jobs(directory_id, fence)

            mine = [job for job in self._landings(selects) if job.priority != value]
            for job in mine:
                job.priority = value
            return len(mine) + self._touch("set_priority", selects)

        return self._ask("set_priority", act)

    def avoid_sites(self, directory_id: str, fence: int, sites: Collection[str]) -> int:
        def act() -> int:
            def selects(ours: ads.OwnJobs) -> str:
                return ours.waiting_landings(directory_id, fence)

            changed = [job for job in self._landings(selects) if not job.avoids.issuperset(sites)]
            for job in changed:
                job.avoids.update(sites)
            return len(changed) + self._touch("avoid_sites", selects)

        return self._ask("avoid_sites", act)

    def unbegun_units(self, directory_id: str, fence: int, sites: Collection[str], moment_seconds: int) -> dict[str, UnbegunUnit]:
        def act() -> dict[str, UnbegunUnit]:
            self.unbegun_asked += 1
            found = ads.unbegun_units(self.waiting).items()
            return {name: unit for name, unit in found if unit.site in sites and unit.since_seconds <= moment_seconds}

        return self._ask("unbegun_units", act)

    def leave_site(self, directory_id: str, fence: int, units: Collection[str]) -> int:
        def act() -> int:
            idle = [ad for ad in self.waiting if ad["WMS2_Unit"] in units and not ad.get("NumJobStarts")]
            mine = [ad for ad in idle if ads.IDLE_ATTRIBUTE not in ad]
            for ad in mine:
                ad[ads.IDLE_ATTRIBUTE] = "0"
            return len(mine)

        return self._ask("leave_site", act)

    def ping(self) -> ScheddAd:
        return self._ask("ping", self._about)

    def pool(self) -> PoolAnswer:
        return self._ask("pool", lambda: PoolAnswer((self._about(),), ()))

    # --- what happens at the schedd

    def named(self, name: str, owner: str = "") -> ScriptedSchedd:
        """The one of this name, for the next questions about jobs of this owner."""
        self.asked, self.asked_owner = name, owner
        return self

    def stranger(self, dag_id: str, *, fence: int = 99, idle_jobs: int = 0, owner: str = OTHER_OWNER) -> Stranger:
        """Another owner's DAGMan with the stamps of a DAG, in the queue from now on, or that many of its node jobs, idle."""
        self.last_cluster += 1
        stamps = {ads.INSTANCE: self.instance, ads.DAG_ID: dag_id, ads.REQUEST: "stranger", ads.FENCE: fence}
        ad = {
            "Owner": owner,
            "ClusterId": self.last_cluster,
            "JobStatus": int(JobStatus.IDLE if idle_jobs else JobStatus.RUNNING),
        }
        ad |= {"JobUniverse": 5 if idle_jobs else 7, "QDate": 1, "EnteredCurrentStatus": 1, "JobPrio": 1, "JobCount": idle_jobs}
        self.strangers.append(Stranger(ad | stamps | ({"WMS2_Role": "processing"} if idle_jobs else {})))
        return self.strangers[-1]

    def _theirs(self, constraint: Callable[[ads.OwnJobs], str]) -> list[Stranger]:
        """Strangers that a constraint of WMS2 selects."""
        return [each for each in self.strangers if self._selects(constraint, each.ad)]

    def _landings(self, constraint: Callable[[ads.OwnJobs], str]) -> list[Job]:
        """DAGMans of whose landing jobs, which wait for a slot, a constraint of WMS2 selects one."""
        landing = {"Owner": self.owner, "JobUniverse": 5, "JobStatus": int(JobStatus.IDLE), "WMS2_Role": "landing"}
        landing |= {ads.INSTANCE: self.instance}
        stamps = ((job, {ads.DAG_ID: job.directory.name, ads.FENCE: job.fence}) for job in self.live)
        return [job for job, stamp in stamps if self._selects(constraint, landing | stamp)]

    def _selects(self, constraint: Callable[[ads.OwnJobs], str], ad: dict[str, Any]) -> bool:
        tree = classad2.ExprTree(constraint(ads.OwnJobs(self.instance, self.asked_owner or self.owner)))
        selects = tree.eval(classad2.ClassAd(ad))
        assert selects is not classad2.Value.Error, f"selects nothing anywhere: {tree}"
        return selects is True

    def _touch(self, operation: str, constraint: Callable[[ads.OwnJobs], str]) -> int:
        theirs = self._theirs(constraint)
        for each in theirs:
            each.touched.append(operation)
        return len(theirs)

    @property
    def _there(self) -> list[Job]:
        return [job for job in self.jobs if not self.asked or job.at == self.asked]

    @property
    def live(self) -> list[Job]:
        """Jobs in the queue."""
        return [job for job in self.jobs if job.live]

    def lose_queue(self) -> list[Job]:
        """The schedd comes back with an empty queue: no history, no rescue files, cluster numbers from 1. The jobs lost."""
        lost = self.live
        for job in lost:
            self.end(job, End.VANISHED)
        self.birthdate += 1000
        self.last_cluster = 0
        self.lost = lost
        return lost

    def put_back_queue(self) -> list[Job]:
        """The queue that was lost last is there again, but for what was submitted anew meanwhile. The jobs that run again."""
        known = Counter(job.dag_id for job in self.jobs)
        back = [job for job in self.lost if known[job.dag_id] == 1]
        for job in back:
            job.live, job.ended, job.put_back = True, None, True
        self.birthdate += 1000
        self.last_cluster = max(job.cluster for job in self.jobs)
        self.lost = []
        return back

    def work(self) -> None:
        """Carry out removals that were asked for."""
        for job in self.live:
            if job.remove_reason:
                self._removed(job)

    def unit_done(self, job: Job, unit: str, account: Account = Account.RIGHT) -> None:
        """A unit's merge job has ended well and left this account."""
        dagman.write_manifest(job.directory, unit, job.fence, account)
        if account is not Account.RIGHT:
            self.bent.append((job, unit))
        if account is Account.EXTRA:
            self.overdone.add(job.request_name)
        self._node(job, unit, NodeState.DONE)

    def repair(self) -> None:
        """Somebody puts the right accounts where wrong ones lie."""
        for job, unit in self.bent:
            if not job.directory.exists():  # its request was cleaned
                continue
            dagman.write_manifest(job.directory, unit, job.fence, Account.RIGHT)
        self.bent.clear()

    def unit_failed(self, job: Job, unit: str) -> None:
        """A unit has failed, its retries used up."""
        self._node(job, unit, NodeState.ERROR)

    def end(self, job: Job, end: End) -> None:
        """The job leaves the queue; where all nodes end, those still open are done with the right account first."""
        job.ended = end
        if end.runs_out:
            self._run_out(job, end)
        elif end is End.ABORTED:
            self._leave(job, JobStatus.COMPLETED, 1, 3, rescue=True)
        elif end is End.DRAINED:
            self._leave(job, JobStatus.COMPLETED, 1, 6, rescue=True)
        elif end is End.BROKEN:
            self._leave(job, JobStatus.COMPLETED, 1, 1, rescue=True)
        elif end is End.UNFINISHED:
            self._leave(job, JobStatus.COMPLETED, 0, 0, rescue=False)
        elif end is End.DISPUTED:
            self._leave(job, JobStatus.COMPLETED, 0, 0, rescue=True)
            dagman.write_metrics(job.directory, job.nodes, cluster=job.cluster, exit_code=1, dag_status=1)
        elif end is End.REMOVED:
            job.remove_reason = job.remove_reason or "via condor_rm (by user somebody)"
            self._removed(job)
        else:
            job.live = False

    def _run_out(self, job: Job, end: End) -> None:
        for unit in job.open_nodes:
            self.unit_done(job, unit)
        failed = job.count(NodeState.ERROR)
        self._leave(job, JobStatus.COMPLETED, 1 if failed else 0, 2 if failed else 0, rescue=failed > 0)
        if end is End.UNTOLD:
            job.history = None
        elif end is End.UNMEASURED:
            (job.directory / f"{layout.OUTER_DAG}.metrics").unlink()
        elif end is End.UNLISTED:
            (job.directory / layout.OUTER_STATUS).unlink()

    def _pause(self, wanted: Submission, reason: str) -> int:
        mine = [job for job in self._there if job.live and wanted == (job.cluster, job.dag_id, job.directory.name, job.fence)]
        self._touch("pause", lambda ours: ours.tree_of(wanted))
        changed = [job for job in mine if bool(job.held_because) is not bool(reason)]
        for job in changed:
            job.held_because = reason
        return len(changed)

    def _removed(self, job: Job) -> None:
        job.ended = job.ended or End.REMOVED
        self._leave(job, JobStatus.REMOVED, None, 4, rescue=not job.held_because)  # on hold there is no process to write one

    def _leave(self, job: Job, status: JobStatus, exit_code: int | None, dag_status: int, *, rescue: bool) -> None:
        job.live, job.left_at = False, timezone.now()
        dagman.write_status(job.directory, job.nodes, final=True, written_at=int(timezone.now().timestamp()))
        metrics_code = 2 if exit_code is None else exit_code
        dagman.write_metrics(job.directory, job.nodes, cluster=job.cluster, exit_code=metrics_code, dag_status=dag_status)
        if rescue:
            dagman.write_rescue(job.directory, job.nodes)
        job.history = HistoryAd(
            cluster=job.cluster,
            dag_id=job.dag_id,
            request_name=job.request_name,
            fence=job.fence,
            job_status=status,
            exit_code=exit_code,
            remove_reason=job.remove_reason if status is JobStatus.REMOVED else "",
            queued_at_seconds=int(job.queued_at.timestamp()),
            dag_status=dag_status,
            **self._counters(job),
        )

    def _node(self, job: Job, unit: str, state: NodeState) -> None:
        job.nodes[unit] = state
        dagman.write_status(job.directory, job.nodes, final=False, written_at=int(timezone.now().timestamp()))

    def _submit(self, submit_dir: Path, attributes: Mapping[str, str | int], priority: int) -> int:
        metrics = submit_dir / f"{layout.OUTER_DAG}.metrics"
        if metrics.exists() and json.loads(metrics.read_text())["exitcode"] == 0:
            raise ServiceRejected("htcondor", "submit_dag", "this DAG has finished")
        running = [job.cluster for job in self.live if job.directory == submit_dir]
        halt = submit_dir / f"{layout.OUTER_DAG}.halt"
        assert not halt.exists(), f"{halt} is there: DAGMan would start no unit"
        assert not running, f"{submit_dir} is submitted while cluster {running} runs it"
        _assert_avoids(submit_dir)
        _assert_limits(submit_dir, str(attributes["WMS2_DagID"]))
        rescue = newest_rescue(submit_dir / layout.OUTER_DAG)
        done = read_rescue(rescue).done if rescue else frozenset()
        nodes = {u: NodeState.DONE if u in done else NodeState.SUBMITTED for u in dagman.units_in(submit_dir)}
        fence = int(attributes["WMS2_Fence"])
        dag_id = str(attributes["WMS2_DagID"])
        self.last_cluster += 1
        job = Job(self.last_cluster, dag_id, str(attributes["WMS2_Request"]), fence, submit_dir, nodes, priority)
        job.at = self.asked
        dagman.write_status(submit_dir, nodes, final=False, written_at=int(timezone.now().timestamp()))
        self.jobs.append(job)
        self.fences.setdefault(job.request_name, []).append(fence)
        return job.cluster

    # --- answers

    def _ask(self, operation: str, act: Callable[[], T]) -> T:
        if self.silent:
            raise ServiceUnavailable("htcondor", operation, "scripted: silent", "timeout")
        return self.script.call(operation, act)

    def _about(self) -> ScheddAd:
        return ScheddAd("schedd@test", "25.14.1", self.birthdate, owner=self.owner)

    def _shown(self, job: Job, since: datetime | None) -> HistoryAd | None:
        cut = since is not None and job.left_at is not None and job.left_at < since  # read back to then, not to its beginning
        return None if self.history_lags or cut else job.history

    @staticmethod
    def _counters(job: Job) -> dict[str, int]:
        return {
            "nodes_total": len(job.nodes),
            "nodes_done": job.count(NodeState.DONE),
            "nodes_failed": job.count(NodeState.ERROR),
        }

    def _ad(self, job: Job) -> DagmanAd:
        return DagmanAd(
            cluster=job.cluster,
            parent_cluster=None,
            node="",
            dag_id=job.dag_id,
            request_name=job.request_name,
            fence=job.fence,
            job_status=JobStatus.HELD if job.held_because else JobStatus.RUNNING,
            hold_reason=job.held_because,
            job_starts=1,
            queued_at_seconds=1,
            status_since_seconds=1,
            dag_status=int(DagStatus.HALTED) if job.halted else 0,
            **self._counters(job),
        )


def _assert_limits(submit_dir: Path, dag_id: str) -> None:
    """A DAG that is submitted may come to run more units than its row says, and its row says no more than they are."""
    dag = DAG.objects.get(pk=dag_id)
    said = (submit_dir / layout.LIMITS_INCLUDE).read_text()
    assert int(said.removeprefix("MAXJOBS MergeGroup ")) >= dag.merge_groups, f"{submit_dir}: {said} of {dag.merge_groups}"
    assert 1 <= dag.merge_groups <= dag.total_work_units


def _assert_avoids(submit_dir: Path) -> None:
    """What operators have closed or banned for all is avoided by a DAG that is submitted."""
    avoided = (submit_dir / layout.AVOID_INCLUDE).read_text()
    closed = set(Site.objects.exclude(status=SiteStatus.ENABLED).filter(drain_until__isnull=True).values_list("name", flat=True))
    banned = bans_active().filter(workflow__isnull=True).exclude(created_by=AUTOMATIC).values_list("site_id", flat=True)
    missing = [site for site in closed.union(banned) if site not in avoided]
    assert not missing, f"{submit_dir} does not avoid {missing}: {avoided}"
