"""Watching DAGs: one question per schedd and cycle for all of them (docs/design/htcondor.md, DAGMan's job ad).

Three answers are kept apart in the row: in the queue (``observed``), the schedd answers and it is not there
(``missing_since``), the schedd did not answer (``unanswered_since``). The third changes nothing else.

A row is written, and its request woken, when something has changed; ``DAG.seen_at`` is when an answer contained it last.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Case, DateTimeField, F, Value, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce, Greatest
from structlog.contextvars import bound_contextvars

from dags_app.models import DAG, IN_QUEUE, DAGStatus, WorkUnitState
from dags_app.planning.specs import MAX_WALL_SECONDS
from dags_app.selectors import THERE, NumberAt
from dags_app.services.orphans import Orphan, lost_settle, orphans_among
from dags_app.states import dag_transition, history
from sites_app.health import Signals
from sites_app.models import QueueChange, Schedd
from sites_app.schedds import adapter, schedd_answered, schedd_silent
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import JOB_IDLE, JOB_RUNNING, JOB_STATES, DagmanAd, DagStatus, JobGroup, JobStatus, ScheddAd, Unread
from wms2.errors import ServiceUnavailable, StaleState
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.due import mark_due
from wms2.runtime.grouping import grouped
from wms2.runtime.json_columns import mapping
from wms2.runtime.locks import Fenced
from wms2.runtime.passes import row_by_itself
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
#: What the life cycle acts on or reports; the other counts move all the time, are shown, and wake no request.
_ACTED_ON = ("job_status", "hold_reason", "job_starts", "dag_status", "nodes_done", "nodes_failed", "units_running", "units_held")
#: Units and nodes inside them that have ended.
_ENDED = ("nodes_done", "nodes_failed", "inner_done", "inner_failed")
#: In ``Round.sizing``: what the longest of its jobs should take, in seconds; without it, as long as any job may.
LONGEST_WALL = "longest_wall_seconds"


@dataclass(frozen=True, slots=True)
class ScheddAnswer:
    """A schedd's answer: what it says of itself, None when it is silent, and the DAGMan jobs in its queue."""

    about: ScheddAd | None
    ads: tuple[DagmanAd, ...] = ()
    jobs: tuple[JobGroup, ...] = ()
    unread: Mapping[int, Unread] = field(default_factory=dict)
    error: str = ""
    collector_says: str = ""


@dataclass(frozen=True, slots=True)
class ScheddCheck:
    """A schedd that is about to be asked: the DAGs that are in its queue as far as rows know, read before the question.

    One that is submitted while the schedd answers is not missing.
    """

    schedd: Schedd
    live: tuple[DAG, ...]
    at: datetime
    longest_seconds: float  # that a job of them should take

    def ask(self, instance: str) -> ScheddAnswer:
        """Put the question; may run in any thread, since it touches no row. What breaks over an answer is no answer."""
        broken: list[str] = []
        answer = ScheddAnswer(None)
        with row_by_itself("schedds", self.schedd.name, broken.append):
            condor = adapter(self.schedd)
            try:
                watched = condor.watch(instance)
                answer = ScheddAnswer(watched.about, tuple(watched.dagmans), tuple(watched.jobs), watched.unread)
            except ServiceUnavailable as error:
                answer = ScheddAnswer(None, error=str(error), collector_says=_collector_says(condor))
        return ScheddAnswer(None, error=broken[0]) if broken else answer


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of asking a schedd: ``change`` when its queue is another one, ``orphans`` among the jobs in it."""

    answered: bool
    change: QueueChange | None = None
    orphans: tuple[Orphan, ...] = ()


def checks_of(schedds: Iterable[Schedd]) -> list[ScheddCheck]:
    """What is known of the schedds, before they are asked."""
    schedds = list(schedds)
    rows = DAG.objects.filter(schedd__in=schedds, status__in=IN_QUEUE).select_related("workflow__request")
    wall = Coalesce(NumberAt(KeyTransform(LONGEST_WALL, "round__sizing")), float(MAX_WALL_SECONDS))
    live, longest = defaultdict[int | None, list[DAG]](list), dict[int | None, float]()
    for dag in rows.only(*_READ).annotate(wall=wall):
        live[dag.schedd_id].append(dag)
        longest[dag.schedd_id] = max(dag.wall, longest.get(dag.schedd_id, 0.0))
    now = clock.now()
    return [ScheddCheck(schedd, tuple(live[schedd.pk]), now, longest.get(schedd.pk, 0.0)) for schedd in schedds]


#: Of a DAG's row, its workflow's and its request's.
_READ = (
    "schedd_id", "workflow_id", "fence", "status", "dagman_cluster_id", "observed", "observed_at", "missing_since",
    "unanswered_since", "suspected_at", "lost_confirmed_at", "lost_confirmation", "nodes_done", "nodes_failed", "nodes_running",
    "began_at", "total_work_units", "directory_id", "jobs", "workflow__request_id", "workflow__request__id",
)  # fmt: skip


def schedd_observe(
    *,
    check: ScheddCheck,
    answer: ScheddAnswer,
    fenced: Fenced,
    by_itself: Callable[[uuid.UUID], AbstractContextManager[Any]] = nullcontext,
) -> Observed:
    """Write what a schedd has said, as long as the caller leads: an answer that an observer was paused over is of the past.

    ``by_itself``: in which one DAG is written where all together cannot be (``wms2.runtime.passes``).

    A job is a DAG's when its stamp says so, whatever its number: in a queue that was lost and begun anew the numbers repeat.
    """
    crash_point("poll.called")
    if answer.about is None:
        _silent(check, answer, fenced)
        return Observed(answered=False)
    outer = [ad for ad in answer.ads if ad.parent_cluster is None]
    units = grouped(answer.ads, lambda each: each.parent_cluster)
    counted = _jobs_by_dag(answer.jobs)
    jobs = {(ad.dag_id, ad.cluster): ad for ad in outer}
    mine = {dag.pk: ad for dag in check.live if (ad := jobs.get((str(dag.pk), int(dag.dagman_cluster_id))))}
    ended = [ad.jobs_completed for ad in answer.ads if ad.jobs_completed is not None]
    ours = Signals(
        ours=sum(ad.job_status == JobStatus.RUNNING for ad in answer.ads),
        jobs_running=sum(group.jobs for group in answer.jobs if group.state == JOB_RUNNING),
        jobs_ended=sum(ended) if ended else None,
        longest_seconds=check.longest_seconds,
    )
    changed = dict[uuid.UUID, Seen]()
    for dag in check.live:
        if (ad := mine.get(dag.pk)) is not None:
            seen = Seen(_as_stored(ad, units[ad.cluster]), _with_waits(counted[str(dag.directory_id)], dag, check.at))
            if _differs(dag, seen):
                changed[dag.pk] = seen
    # a job that cannot be read; one that does not say whose it is goes by its number
    numbers = ((dag, answer.unread.get(int(dag.dagman_cluster_id))) for dag in check.live)
    unread = {dag.pk: job for dag, job in numbers if job is not None and job.dag_id in ("", str(dag.pk))}
    changed |= {dag.pk: Seen(dag.observed, dag.jobs) for dag in check.live if dag.pk in unread and _was_away(dag)}
    absent = [dag for dag in check.live if dag.pk not in mine and dag.pk not in unread]  # one that cannot be read is there
    missing = [dag for dag in absent if dag.missing_since is None or dag.unanswered_since]
    with fenced():
        change = schedd_answered(schedd=check.schedd, ad=answer.about, ours=ours, now=check.at)
        free = _free({*changed, *(dag.pk for dag in missing)})
        _miss([dag for dag in missing if dag.pk in free], check)
        _observe_all([dag for dag in check.live if dag.pk in changed and dag.pk in free], changed, check, by_itself)
        lost_settle(check.schedd, {ad.dag_id for ad in outer} | {job.dag_id for job in answer.unread.values()}, check.at)
    for dag in check.live:
        if dag.pk in mine and (dag.pk in free or dag.pk not in changed):
            with by_itself(dag.pk):
                _follow(dag, mine[dag.pk], fenced)
    for pk, job in unread.items():
        with by_itself(pk):
            raise ValueError(f"its DAGMan job is in the queue and cannot be read, so the DAG stays as it was: {job.problem}")
    crash_point("poll.recorded")
    return Observed(answered=True, change=change, orphans=orphans_among(outer))


def _collector_says(condor: HtcondorAdapter) -> str:
    """The second probe of a silent schedd: does at least the collector hear of it?"""
    try:
        ad = condor.collector_ad()
    except ServiceUnavailable:
        return "the collector does not answer either"
    if ad is None:
        return "the collector has no ad of it any more"
    if ad.heard_at_seconds is None:
        return "the collector has its ad"
    return f"the collector has its ad, heard of last at {datetime.fromtimestamp(ad.heard_at_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _silent(check: ScheddCheck, answer: ScheddAnswer, fenced: Fenced) -> None:
    with fenced():
        schedd_silent(schedd=check.schedd, error=answer.error, collector_says=answer.collector_says, now=check.at)
        begins = [dag for dag in check.live if dag.unanswered_since is None]
        free = _free({dag.pk for dag in begins})
        DAG.objects.filter(pk__in=free).update(unanswered_since=check.at, observed_at=_last_seen(check.schedd))
        mark_due({dag.workflow.request.pk for dag in begins if dag.pk in free}, "schedd silent")
    log.warning("schedd does not answer", schedd=check.schedd.name, dags=len(check.live), error=answer.error)


def _free(ids: Collection[Any]) -> set[Any]:
    """Those that are still in the queue and not locked, locked in one order; what another process has is the next cycle's."""
    if not ids:
        return set()
    rows = DAG.objects.select_for_update(no_key=True, skip_locked=True).filter(pk__in=ids, status__in=IN_QUEUE)
    return set(rows.order_by("pk").values_list("pk", flat=True))


def _last_seen(schedd: Schedd) -> Case:
    """When an answer contained it last, of a DAG that is about to be seen no more: ``seen_at`` in SQL."""
    return Case(
        When(THERE, then=Greatest("observed_at", Value(schedd.last_answer_at, DateTimeField()))), default=F("observed_at")
    )


def _miss(dags: list[DAG], check: ScheddCheck) -> None:
    for dag in dags:
        if dag.missing_since is None:
            with bound_contextvars(request_name=dag.workflow.request_id, dag_id=str(dag.pk)):
                log.info("DAGMan job no longer in the queue; how it ended is looked for", cluster=dag.dagman_cluster_id)
    if dags:
        DAG.objects.filter(pk__in=[dag.pk for dag in dags]).update(
            observed_at=_last_seen(check.schedd), missing_since=Coalesce("missing_since", Value(check.at)), unanswered_since=None
        )
        mark_due({dag.workflow.request.pk for dag in dags}, "DAG missing")


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one DAG: its DAGMan's ad with what its units' say, and its node jobs, both as its row keeps them."""

    observed: dict[str, Any]
    jobs: dict[str, Any]

    @property
    def begun(self) -> bool:
        """Whether one of its jobs runs or has ended."""
        return bool(self.number(JOB_RUNNING) or any(self.observed.get(name) for name in _ENDED))

    def number(self, state: str) -> int:
        """Node jobs in a state."""
        return sum(int(states.get(state, 0)) for states in self.jobs.get("roles", {}).values())


def _as_stored(ad: DagmanAd, units: Sequence[DagmanAd]) -> dict[str, Any]:
    """``inner_*``: nodes inside the units that run, by their DAGMans' ads, which are up to a minute old."""
    stored = asdict(ad) | {
        "units_running": len(units),
        "running_units": sorted(unit.node for unit in units),
        "units_held": sorted(f"{unit.node}: {unit.hold_reason}"[:200] for unit in units if unit.job_status == JobStatus.HELD),
        "inner_done": sum(unit.nodes_done or 0 for unit in units),
        "inner_failed": sum(unit.nodes_failed or 0 for unit in units),
    }
    del stored["counted_at_seconds"]  # it changes though nothing has happened
    return stored


def _jobs_by_dag(groups: Iterable[JobGroup]) -> defaultdict[str, dict[str, Any]]:
    """Directory id -> ``DAG.jobs``."""
    found = defaultdict[str, dict[str, Any]](dict)
    for group in groups:
        for by, name in (("roles", group.role), ("sites", group.site)):
            if name:
                states = found[group.dag_id].setdefault(by, {}).setdefault(name, {})
                states[group.state] = states.get(group.state, 0) + group.jobs
    return found


def _with_waits(jobs: dict[str, Any], dag: DAG, now: datetime) -> dict[str, Any]:
    """With the sites where some wait and none runs, each since when that is so without a break (``waits``)."""
    before = mapping(mapping(dag.jobs).get("waits"))
    waits = {site: before.get(site, now.isoformat()) for site in _waiting(jobs.get("sites", {}))}
    return {**jobs, "waits": waits} if waits else jobs


def _waiting(sites: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Where some wait and none runs."""
    return [site for site, states in sites.items() if states.get(JOB_IDLE) and not states.get(JOB_RUNNING)]


def sites_quiet(jobs: Mapping[str, Any]) -> set[str]:
    """Of a DAG's jobs as its row has them, sites where some wait and none runs; none as long as nothing runs anywhere: then there
    is no room at all."""
    sites: Mapping[str, Mapping[str, int]] = jobs.get("sites", {})
    return set(_waiting(sites)) if any(states.get(JOB_RUNNING) for states in sites.values()) else set()


def _differs(dag: DAG, now: Seen) -> bool:
    return dag.observed != now.observed or dag.jobs != now.jobs or _was_away(dag) or dag.observed_at is None


def _was_away(dag: DAG) -> bool:
    return any((dag.missing_since, dag.unanswered_since, dag.suspected_at, dag.lost_confirmed_at))


#: One statement for all; the columns are those of the ad, and whatever was suspected is not so.
_OBSERVE = """
UPDATE dags SET observed = seen.observed, observed_at = %s, missing_since = NULL, unanswered_since = NULL, suspected_at = NULL,
    lost_confirmed_at = NULL, lost_confirmation = '{}', outcome = dags.outcome - 'disputed',
    nodes_done = coalesce((seen.observed->>'nodes_done')::int, 0),
    nodes_failed = coalesce((seen.observed->>'nodes_failed')::int, 0),
    jobs = seen.jobs, nodes_idle = seen.idle, nodes_running = seen.running, nodes_held = seen.held,
    began_at = coalesce(dags.began_at, seen.began_at)
FROM unnest(%s::uuid[], %s::jsonb[], %s::jsonb[], %s::int[], %s::int[], %s::int[], %s::timestamptz[])
    AS seen (id, observed, jobs, idle, running, held, began_at)
WHERE dags.id = seen.id
"""


def _observe_all(
    dags: list[DAG], seen: dict[Any, Seen], check: ScheddCheck, by_itself: Callable[[uuid.UUID], AbstractContextManager[Any]]
) -> None:
    """Together; where that breaks, one by one."""
    if not dags:
        return
    broken: list[str] = []
    with row_by_itself("schedds", check.schedd.name, broken.append), transaction.atomic():
        _observe(dags, seen, check.at)
    for dag in dags if broken else ():
        with by_itself(dag.pk), transaction.atomic():
            _observe([dag], seen, check.at)


def _observe(dags: list[DAG], seen: dict[Any, Seen], now: datetime) -> None:
    values = [seen[dag.pk] for dag in dags]
    numbers = [[each.number(state) for each in values] for state in JOB_STATES]
    texts = [[json.dumps(each.observed) for each in values], [json.dumps(each.jobs) for each in values]]
    began = [now if each.begun else None for each in values]
    sql_rows(_OBSERVE, [now, [dag.pk for dag in dags], *texts, *numbers, began])
    woken = set()
    for dag, each in zip(dags, values, strict=True):
        before, quiet = mapping(dag.observed), sites_quiet(mapping(dag.jobs))
        dag.observed, dag.jobs = each.observed, each.jobs
        dag.nodes_done, dag.nodes_failed = dag.observed.get("nodes_done") or 0, dag.observed.get("nodes_failed") or 0
        dag.nodes_running = each.number(JOB_RUNNING)
        first = each.begun and dag.began_at is None
        moved = quiet != sites_quiet(dag.jobs) or any(before.get(name) != dag.observed.get(name) for name in _ACTED_ON)
        if first or _was_away(dag) or moved:
            woken.add(dag.workflow.request.pk)
        if dag.suspected_at is not None or dag.lost_confirmed_at is not None:
            history(dag, "seen_again", detail={"suspected": str(dag.suspected_at), "confirmed": dag.lost_confirmation})
            with bound_contextvars(request_name=dag.workflow.request_id, dag_id=str(dag.pk)):
                log.warning("DAGMan job is in the queue again; nothing is lost", cluster=dag.dagman_cluster_id)
    mark_due(woken, "DAG observed")


def _number(stored: str) -> str:
    """In SQL; NULL where something else was written."""
    return f"CASE WHEN jsonb_typeof({stored}) = 'number' THEN ({stored})::int END"


#: Sites that CRIC does not know are shown with the DAGs alone. Of a done unit its merge job is counted with it (``jobs_judged``).
_COUNT_SITES = f"""
WITH live AS (
    SELECT dags.jobs, dags.workflow_id, dags.round_id, schedds.last_answer_at, schedds.pool
    FROM dags JOIN schedds ON schedds.id = dags.schedd_id WHERE dags.status = ANY(%s)
), counted AS (
    SELECT live.pool, site.key AS name, sum({_number("site.value->'idle'")}) AS idle,
        sum({_number("site.value->'running'")}) AS running, sum({_number("site.value->'held'")}) AS held
    FROM live, jsonb_each(CASE WHEN jsonb_typeof(live.jobs->'sites') = 'object' THEN live.jobs->'sites' ELSE '{{}}' END) AS site
    GROUP BY live.pool, site.key
), done AS (
    SELECT site AS name, sum(unit.jobs) + count(*) AS jobs
    FROM live JOIN work_units AS unit ON unit.round_id = live.round_id AND unit.state = %s GROUP BY site
), failed AS (
    SELECT site AS name, sum({_number("failures.rounds->index::text")}) AS jobs
    FROM live JOIN rounds ON rounds.id = live.round_id JOIN failure_groups AS failures ON failures.workflow_id = live.workflow_id
    GROUP BY site
), by_pool AS (
    UPDATE pool_sites SET jobs_idle = coalesce(counted.idle, 0), jobs_running = coalesce(counted.running, 0),
        jobs_held = coalesce(counted.held, 0)
    FROM pool_sites AS known LEFT JOIN counted ON (counted.pool, counted.name) = (known.pool_id, known.site_id)
    WHERE pool_sites.id = known.id
)
UPDATE sites SET jobs_idle = coalesce(counted.idle, 0), jobs_running = coalesce(counted.running, 0),
    jobs_held = coalesce(counted.held, 0), jobs_counted_at = coalesce((SELECT min(last_answer_at) FROM live), %s),
    jobs_done = coalesce(done.jobs, 0), jobs_failed = coalesce(failed.jobs, 0)
FROM sites AS known LEFT JOIN (
    SELECT name, sum(idle) AS idle, sum(running) AS running, sum(held) AS held FROM counted GROUP BY name
) AS counted ON counted.name = known.name LEFT JOIN done ON done.name = known.name LEFT JOIN failed ON failed.name = known.name
WHERE sites.name = known.name
"""  # noqa: S608 - names of columns alone


def sites_count(now: datetime) -> None:
    """Each site's node jobs, in all and by pool, over the last answers of all schedds; those that ended in the rounds whose DAGs
    are in a queue, and no others, so that it costs the same however much was ever done. In the caller's transaction."""
    sql_rows(_COUNT_SITES, [list(IN_QUEUE), WorkUnitState.DONE, now])


def _follow(dag: DAG, ad: DagmanAd, fenced: Fenced) -> None:
    """Its status goes by its job's."""
    wanted = DAGStatus.HALTED if ad.dag_status == DagStatus.HALTED else DAGStatus.RUNNING
    if ad.job_status != JobStatus.RUNNING or dag.status == wanted:
        return
    with bound_contextvars(request_name=dag.workflow.request_id, dag_id=str(dag.pk)), fenced():
        try:
            dag_transition(dag, wanted, event="observed")
            mark_due([dag.workflow.request.pk], "DAG observed")
        except StaleState:
            log.info("dag changed while it was observed")
