"""HTCondor's ads as our types, and the constraints that select them. Pure: no ``htcondor2``, no calls.

Attribute names are HTCondor's own or the stamps below, which every job of WMS2 carries. Renaming a stamp orphans running DAGs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from math import isfinite
from typing import Any, NamedTuple

from wms2.adapters.types import (
    JOB_HELD,
    JOB_IDLE,
    JOB_RUNNING,
    DagmanAd,
    DagmanJob,
    HistoryAd,
    JobGroup,
    JobStatus,
    OrphanJobs,
    PoolAnswer,
    ScheddAd,
    ScheddFacts,
    SiteSlots,
    Submission,
    UnbegunUnit,
    Unread,
)
from wms2.adapters.wire import readable
from wms2.errors import ServiceRejected, ServiceUnavailable

SERVICE = "htcondor"
INSTANCE, REQUEST, DAG_ID, FENCE = "WMS2_Instance", "WMS2_Request", "WMS2_DagID", "WMS2_Fence"
STAMPS = (INSTANCE, REQUEST, DAG_ID, FENCE)
UNIT, IDLE_ATTRIBUTE = "WMS2_Unit", "WMS2_IdleSeconds"
#: Sites that a job's requirements allow; ``DESIRED_Sites``, which job routers rewrite, where a job rendered before has no such.
JOB_SITE, ROUTED_SITES = "WMS2_Site", "DESIRED_Sites"
UNBEGUN_PROJECTION = [UNIT, "WMS2_Role", "JobStatus", "NumJobStarts", "QDate", JOB_SITE]
SITE_ATTRIBUTE = "GLIDEIN_CMSSite"
UNKNOWN_SITE = "Unknown"
# DAGMan jobs run in the scheduler universe; an inner one knows its outer's cluster.
_SCHEDULER_UNIVERSE = 7
_DAGMAN = f"JobUniverse == {_SCHEDULER_UNIVERSE}"
_OUTER = f"{_DAGMAN} && DAGManJobId =?= undefined"
# HoldReasonCode of condor_hold. The submit files' periodic_remove spares these jobs, for as long as it takes.
_BY_USER = 1

_COUNTERS = {each.name: each.metadata["attribute"] for each in fields(DagmanJob) if each.metadata}
_COMMON = ("ClusterId", "JobStatus", "QDate", "EnteredCurrentStatus", "DAG_InRecovery", *STAMPS, *_COUNTERS.values())
DAGMAN_PROJECTION = [*_COMMON, "DAGManJobId", "DAGNodeName", "HoldReason", "NumJobStarts"]
HISTORY_PROJECTION = [*_COMMON, "ExitCode", "ExitBySignal", "RemoveReason", "JobCurrentStartDate"]
ORPHAN_PROJECTION = ["JobUniverse", DAG_ID, REQUEST]
#: What node jobs are counted by. The schedd holds the constraint against its groups, so what that names must be among these.
#: Sites at which a landing job does not start, separated by commas.
AVOID = "WMS2_Avoid"
#: The one where it looks first, "" for any.
FIRST = "WMS2_First"
JOB_GROUPS = ["Owner", INSTANCE, "JobUniverse", DAG_ID, "WMS2_Role", "JobStatus", JOB_SITE, ROUTED_SITES]
_COUNTED_AS = {
    JobStatus.IDLE: JOB_IDLE,
    JobStatus.RUNNING: JOB_RUNNING,
    JobStatus.TRANSFERRING_OUTPUT: JOB_RUNNING,
    JobStatus.SUSPENDED: JOB_RUNNING,
    JobStatus.HELD: JOB_HELD,
}
SCHEDD_PROJECTION = [
    "Name", "CondorVersion", "JobQueueBirthdate", "LastHeardFrom", "TotalIdleJobs", "TotalRunningJobs", "StartSchedulerUniverse",
    "RecentDaemonCoreDutyCycle", "TotalSchedulerJobsRunning", "MaxRunningSchedulerJobsPerOwner",
]  # fmt: skip
#: The schedd's own bounds: jobs of one owner, DAGMans of one that run, and DAGMans of all (by default 100,000, 200 and 500).
LIMITS = ("MAX_JOBS_PER_OWNER", "MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER", "START_SCHEDULER_UNIVERSE")
_LIMIT = re.compile(r"(?:TotalSchedulerJobsRunning\s*<=?\s*)?(\d+)", re.IGNORECASE)
SLOT_PROJECTION = ["Name", SITE_ATTRIBUTE, "State", "SlotType", "Cpus", "TotalSlotCpus"]

# The schedd's clock may differ from ours, and a job may take a while from its end to the history.
_HISTORY_MARGIN_SECONDS = 3600
_MAX_REASON = 500
#: Of a machine, and of a schedd, whose name has at most so many characters.
_MOST_CPUS, _MOST_JOBS, _LONGEST_NAME = 1_000_000, 10_000_000, 255
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Ad = Mapping[str, Any]


def literal(value: str | int) -> str:
    """A value as a ClassAd literal, quoted so that no text can end the string or be expanded as a macro. Raises ServiceRejected:
    control characters or ``$``, which submit files expand even inside strings."""
    if isinstance(value, int):
        return str(int(value))
    if "$" in value or any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ServiceRejected(SERVICE, "literal", f"{value!r} holds a '$' or a control character; it cannot stand in a job ad")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def reason_text(reason: str) -> str:
    """A reason that survives the bindings: they drop one that holds a double quote, and end it at a backslash (measured)."""
    printable = "".join(char if char.isprintable() else " " for char in reason)
    return printable.replace('"', "'").replace("\\", "/")[:_MAX_REASON]


def stamp_literals(attributes: Mapping[str, str | int]) -> dict[str, str]:
    """Attributes for a job ad with their values as literals. Raises ServiceRejected: a name that is no attribute name, a value
    that cannot be quoted."""
    for name in attributes:
        if not _ATTRIBUTE_NAME.fullmatch(name):
            raise ServiceRejected(SERVICE, "submit_dag", f"{name!r} is not an attribute name")
    return {name: literal(value) for name, value in attributes.items()}


def _fenced(constraint: str, fence: int | None) -> str:
    return constraint if fence is None else f"{constraint} && {FENCE} =?= {int(fence)}"


class OwnJobs(NamedTuple):
    """Constraints: each selects some jobs of an instance, of those that its owner has submitted.

    Any user may put any stamp into an ad, but HTCondor alone sets the owner.
    """

    instance: str
    owner: str

    def every_job(self) -> str:
        """All of them. A part of every other constraint."""
        return f"Owner =?= {literal(self.owner)} && {INSTANCE} =?= {literal(self.instance)}"

    def of_dag(self, dag_id: str) -> str:
        """The outer DAGMan jobs of one DAG."""
        return f"{_OUTER} && {DAG_ID} =?= {literal(dag_id)} && {self.every_job()}"

    def of_cluster(self, cluster: int, dag_id: str = "", fence: int | None = None) -> str:
        """One outer DAGMan job of ours. With ``dag_id`` only if it runs that DAG: in a schedd whose queue was lost the
        cluster numbers begin again. With ``fence`` only that submission of it."""
        mine = f"ClusterId == {int(cluster)} && {_OUTER} && {self.every_job()}"
        return _fenced(f"{mine} && {DAG_ID} =?= {literal(dag_id)}" if dag_id else mine, fence)

    def of_clusters(self, dag_ids: Mapping[int, str]) -> str:
        """Outer DAGMan jobs of ours, by their clusters, each only if it runs the DAG that is named for it."""
        wanted = ",".join(f"{int(cluster)}/{dag_id}" for cluster, dag_id in dag_ids.items())
        job = f'strcat(ClusterId, "/", {DAG_ID} ?: "")'
        return f'{_OUTER} && {self.every_job()} && stringListMember({job}, {literal(wanted)}, ",")'

    def ended_before(self, moment_seconds: int) -> str:
        """Where a search of the history, latest first, may end: at a job of ours that completed before this moment.

        Only of ours, which leave the queue when they complete: others' may stay for days and come into the history late. Removed
        ones do not count either: they may linger until a lost machine is given up.
        """
        mine = f"{self.every_job()} && JobStatus == {JobStatus.COMPLETED.value}"
        return f"{mine} && CompletionDate > 0 && CompletionDate < {int(moment_seconds) - _HISTORY_MARGIN_SECONDS}"

    def tree_of(self, job: Submission) -> str:
        """An outer DAGMan job of ours and the inner ones under it. These carry its number alone: the caller makes sure
        that it is that submission's."""
        outer = self.of_cluster(job.cluster, job.dag_id, job.fence)
        return f"({outer}) || ({_DAGMAN} && Owner =?= {literal(self.owner)} && DAGManJobId =?= {int(job.cluster)})"

    def all_dagmans(self) -> str:
        """All outer DAGMan jobs of an instance, and all inner ones of its owner (``dagman_ads`` keeps ours)."""
        mine = f"DAGManJobId isnt undefined || {INSTANCE} =?= {literal(self.instance)}"
        return f"{_DAGMAN} && Owner =?= {literal(self.owner)} && ({mine})"

    def node_jobs(self, dag_id: str, fence: int | None = None) -> str:
        """The node jobs of a DAG's directory at both levels, without its DAGMans; with ``fence`` of one submission."""
        mine = f"JobUniverse != {_SCHEDULER_UNIVERSE} && {DAG_ID} =?= {literal(dag_id)} && {self.every_job()}"
        return _fenced(mine, fence)

    def all_node_jobs(self) -> str:
        """The node jobs of an instance."""
        return f"JobUniverse != {_SCHEDULER_UNIVERSE} && {self.every_job()}"

    def unbegun_jobs(self, directory_id: str, fence: int, units: Iterable[str]) -> str:
        """Jobs of these units of a submission that wait for a slot, never had one, and may wait as long as any."""
        named = f'stringListMember({UNIT}, {literal(",".join(sorted(units)))}, ",")'
        return f"{self._never_began(directory_id, fence)} && {IDLE_ATTRIBUTE} =?= undefined && {named}"

    def unbegun_since(self, directory_id: str, fence: int, sites: Iterable[str], moment_seconds: int) -> str:
        """Jobs of a submission that wait at one of these sites since before this moment, and never had a slot."""
        there = f"stringListMember({JOB_SITE}, {literal(','.join(sorted(sites)))})"
        return f"{self._never_began(directory_id, fence)} && QDate <= {int(moment_seconds)} && {there}"

    def _never_began(self, directory_id: str, fence: int) -> str:
        return f"{self.waiting(directory_id, fence)} && (NumJobStarts ?: 0) == 0"

    def orphans(self, known_dag_ids: Iterable[str]) -> str:
        """Jobs of ours, DAGMans included, that are of none of these DAGs and are not on their way out."""
        known = ",".join(sorted(known_dag_ids))
        mine = f'{self.every_job()} && !stringListMember({DAG_ID} ?: "", {literal(known)}, ",")'
        return f"{mine} && JobStatus != {JobStatus.REMOVED.value} && JobStatus != {JobStatus.COMPLETED.value}"

    def naming_dag(self, dag_id: str, fence: int | None = None) -> str:
        """Jobs of ours that name this DAG, or none where it is empty; with ``fence`` those of no later submission."""
        mine = f'{self.every_job()} && ({DAG_ID} ?: "") =?= {literal(dag_id)}'
        return mine if fence is None else f"{mine} && ({FENCE} ?: 0) <= {int(fence)}"

    def dagmans_naming(self, dag_id: str, fence: int | None = None) -> str:
        """The DAGMans among these."""
        return f"{self.naming_dag(dag_id, fence)} && {_DAGMAN}"

    def waiting(self, directory_id: str, fence: int) -> str:
        """Node jobs of one submission of a DAG's directory that wait for a slot."""
        return f"{self.node_jobs(directory_id, fence)} && JobStatus == {JobStatus.IDLE.value}"

    def waiting_landings(self, directory_id: str, fence: int) -> str:
        """The landing jobs among these."""
        return f'{self.waiting(directory_id, fence)} && WMS2_Role =?= "landing"'

    def held_by_people(self, job: Submission) -> str:
        """Node jobs of a submission held by hand; those that HTCondor or a submit file held have another code."""
        mine = self.node_jobs(job.directory_id, job.fence)
        return f"{mine} && JobStatus == {JobStatus.HELD.value} && HoldReasonCode == {_BY_USER}"


def job_groups(ads: Iterable[Ad]) -> list[JobGroup]:
    """Node jobs as the schedd groups them; those on their way out are not counted. Elected, a unit's jobs have one site."""
    found = Counter[tuple[str, str, str, str]]()
    for of, jobs in readable(ads, _job_group, service=SERVICE, operation="job_groups").read:
        if of is not None:
            found[of] += jobs
    return [JobGroup(*of, jobs) for of, jobs in sorted(found.items())]


def _job_group(ad: Ad) -> tuple[tuple[str, str, str, str] | None, int]:
    """What they are counted as, None for nothing, and how many they are."""
    status, jobs = _number(ad.get("JobStatus")), _jobs(ad, "JobCount")
    if status is None or jobs is None:
        raise ServiceUnavailable(SERVICE, "answer", f"jobs without JobStatus or JobCount: {str(dict(ad))[:200]}")
    state, sites = _COUNTED_AS.get(JobStatus(status)), str(ad.get(JOB_SITE) or ad.get(ROUTED_SITES) or "")
    site = "" if "," in sites else sites.strip()
    return (str(ad.get(DAG_ID) or ""), str(ad.get("WMS2_Role") or ""), state, site) if state is not None else None, jobs


def unbegun_units(ads: Iterable[Ad]) -> dict[str, UnbegunUnit]:
    """Of a submission's node jobs: units all of whose jobs are processing jobs that wait at one site and never began, by name."""
    found, begun = dict[str, UnbegunUnit](), set[str]()
    for ad in ads:
        unit, site, since = str(ad.get(UNIT) or ""), str(ad.get(JOB_SITE) or ""), _number(ad.get("QDate"))
        waits = ad.get("JobStatus") == JobStatus.IDLE and not _number(ad.get("NumJobStarts"))
        if not waits or ad.get("WMS2_Role") != "processing" or since is None or "," in site or not site:
            begun.add(unit)
            continue
        known = found.get(unit)
        if known is not None and known.site != site:
            begun.add(unit)
        found[unit] = UnbegunUnit(site, max(since, known.since_seconds if known else 0))
    return {unit: each for unit, each in found.items() if unit not in begun}


def orphan_jobs(ads: Iterable[Ad]) -> list[OrphanJobs]:
    """Jobs by the DAG id that they carry."""
    found: dict[str, list[Ad]] = {}
    for ad in ads:
        found.setdefault(str(ad.get(DAG_ID) or ""), []).append(ad)
    return [
        OrphanJobs(
            dag_id,
            next((str(ad[REQUEST]) for ad in rows if ad.get(REQUEST)), ""),
            dagmans=sum(ad.get("JobUniverse") == _SCHEDULER_UNIVERSE for ad in rows),
            jobs=sum(ad.get("JobUniverse") != _SCHEDULER_UNIVERSE for ad in rows),
        )
        for dag_id, rows in sorted(found.items())
    ]


def dagman_ads(ads: Iterable[Ad], instance: str) -> list[DagmanAd]:
    """Outer DAGMans of the instance and the inner ones under them; inner ones are given what they do not carry themselves. Raises
    ServiceUnavailable: one of them lacks what each has."""
    found, unread = dagman_ads_readable(ads, instance)
    for job in unread.values():
        raise ServiceUnavailable(SERVICE, "answer", job.problem)
    return found


def dagman_ads_readable(ads: Iterable[Ad], instance: str) -> tuple[list[DagmanAd], dict[int, Unread]]:
    """The same, and the outer ones, by cluster, that cannot be read, or an inner one under them: these are left out whole."""
    rows = list(ads)
    outer = {int(_needed(ad, "ClusterId")): ad for ad in rows if ad.get("DAGManJobId") is None and ad.get(INSTANCE) == instance}
    found, unread = list[DagmanAd](), dict[int, Unread]()
    for ad in sorted(rows, key=lambda ad: ad.get("DAGManJobId") is not None):
        parent = _number(ad.get("DAGManJobId"))
        cluster = int(_needed(ad, "ClusterId")) if parent is None else parent
        if cluster in outer:
            try:
                found.append(_dagman_ad(ad, outer[cluster], parent))
            except (ServiceUnavailable, ValueError, TypeError) as error:
                unread[cluster] = Unread(str(outer[cluster].get(DAG_ID) or ""), str(error))
    return [ad for ad in found if (ad.parent_cluster or ad.cluster) not in unread], unread


def _needed(ad: Ad, name: str) -> Any:
    """An attribute that every such ad has. Raises ServiceUnavailable: it is not there, so this answer says nothing."""
    if ad.get(name) is None:
        raise ServiceUnavailable(SERVICE, "answer", f"the schedd answers with an ad without {name}")
    return ad[name]


def _dagman_ad(ad: Ad, outer: Ad, parent: int | None) -> DagmanAd:
    return DagmanAd(
        **_job(ad, outer),
        parent_cluster=parent,
        node=str(ad.get("DAGNodeName") or ""),
        hold_reason=str(ad.get("HoldReason") or "") if _needed(ad, "JobStatus") == JobStatus.HELD else "",
        job_starts=_number(ad.get("NumJobStarts")) or 0,
        status_since_seconds=int(_needed(ad, "EnteredCurrentStatus")),
    )


def history_ad(ad: Ad) -> HistoryAd:
    """One ad of the history."""
    removed = _needed(ad, "JobStatus") == JobStatus.REMOVED
    return HistoryAd(
        **_job(ad, ad),
        # A job that was held, released and removed still has the exit code of its earlier run.
        exit_code=None if removed or ad.get("ExitBySignal") else _number(ad.get("ExitCode")),
        remove_reason=str(ad.get("RemoveReason") or "") if removed else "",
        started_at_seconds=_number(ad.get("JobCurrentStartDate")),
    )


def _job(ad: Ad, stamped: Ad) -> dict[str, Any]:
    """The fields of a ``DagmanJob``, with the stamps of its own ad or its outer's."""
    return {
        "cluster": int(_needed(ad, "ClusterId")),
        "dag_id": str(stamped.get(DAG_ID) or ""),
        "request_name": str(stamped.get(REQUEST) or ""),
        "fence": _number(stamped.get(FENCE)),
        "job_status": int(_needed(ad, "JobStatus")),
        "queued_at_seconds": int(_needed(ad, "QDate")),
        "in_recovery": bool(ad.get("DAG_InRecovery")),
        **{field: _number(ad.get(attribute)) for field, attribute in _COUNTERS.items()},
    }


def schedd_ad(ad: Ad, heard: Iterable[Ad] = ()) -> ScheddAd:
    """A schedd's own ad; ``heard``: the collector's copies, with the time at which it heard of the schedd last."""
    duty, accepting = ad.get("RecentDaemonCoreDutyCycle"), ad.get("StartSchedulerUniverse")
    if not 0 < len(str(_needed(ad, "Name"))) <= _LONGEST_NAME:
        raise ServiceUnavailable(SERVICE, "answer", f"{str(ad['Name'])[:80]!r} is no name of a schedd")
    return ScheddAd(
        name=str(_needed(ad, "Name")),
        version=version_of(str(ad.get("CondorVersion") or "")),
        job_queue_birthdate_seconds=_number(ad.get("JobQueueBirthdate")),
        jobs_idle=_jobs(ad, "TotalIdleJobs") or 0,
        jobs_running=_jobs(ad, "TotalRunningJobs") or 0,
        heard_at_seconds=max((_number(each.get("LastHeardFrom")) or 0 for each in heard), default=None),
        accepting=bool(accepting) if accepting is not None else None,
        duty_cycle=float(duty) if duty is not None else None,
        dagmans=_number(ad.get("TotalSchedulerJobsRunning")),
        owner_dagmans=_number(ad.get("MaxRunningSchedulerJobsPerOwner")),
    )


def schedd_facts(ad: Ad, config: Ad, owner: str = "") -> ScheddFacts:
    """Its own ad, and its settings as text; 0 is no bound, as is what is neither a number nor a comparison with one."""
    bounds = [_LIMIT.fullmatch(str(config.get(name) or "").strip()) for name in LIMITS]
    return ScheddFacts(replace(schedd_ad(ad), owner=owner), *((int(found[1]) or None) if found else None for found in bounds))


def version_of(text: str) -> str:
    """``25.14.1`` of ``$CondorVersion: 25.14.1 2026-10-16 … $``; the text itself when it looks otherwise."""
    match = re.search(r"\d+\.\d+\.\d+", text)
    return match.group(0) if match else text


def pool_answer(schedds: Iterable[Ad], slots: Iterable[Ad]) -> PoolAnswer:
    """What its collector has of schedds and slots; an ad that cannot be read hides none of the others."""
    schedd_rows = readable(schedds, lambda ad: schedd_ad(ad, (ad,)), service=SERVICE, operation="pool_schedds")
    slot_rows = readable((ad for ad in slots if ad.get("SlotType") != "Dynamic"), _slot, service=SERVICE, operation="pool_slots")
    problems = "; ".join(filter(None, (schedd_rows.problem, slot_rows.problem)))
    totals, unused = Counter[str](), Counter[str]()
    for slot in slot_rows.read:
        totals[slot.site] += slot.cpus
        unused[slot.site] += slot.free_cpus
    sites = tuple(SiteSlots(site, cpus, unused[site]) for site, cpus in sorted(totals.items()))
    return PoolAnswer(tuple(schedd_rows.read), sites, problems)


def _slot(ad: Ad) -> SiteSlots:
    site, free = str(ad.get(SITE_ATTRIBUTE) or UNKNOWN_SITE), _amount(ad, "Cpus")
    cpus = _amount(ad, "TotalSlotCpus", free)
    return SiteSlots(site, cpus, free if ad.get("SlotType") == "Partitionable" or ad.get("State") == "Unclaimed" else 0)


def _amount(ad: Ad, attribute: str, default: int | None = None) -> int:
    number = _number(ad.get(attribute))
    if number is None:
        number = default
    if number is None or not 0 <= number <= _MOST_CPUS:
        raise ServiceUnavailable(SERVICE, "slots", f"slot {ad.get('Name')} has no {attribute} that can be: {ad.get(attribute)}")
    return number


def _jobs(ad: Ad, attribute: str) -> int | None:
    number = _number(ad.get(attribute))
    if number is not None and not 0 <= number <= _MOST_JOBS:
        raise ServiceUnavailable(SERVICE, "answer", f"{ad.get('Name', 'an ad')} has {attribute} {number}, which cannot be")
    return number


def _number(value: object) -> int | None:
    # bool is an int to Python but not a count; a ClassAd's real may be infinite.
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else None
