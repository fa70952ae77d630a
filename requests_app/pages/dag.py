"""One DAG's page: units with their tries, a timeline of up to 300 of them, durations by site, the slowest, one unit's nodes."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django.utils import timezone

from dags_app import live
from dags_app.attempts import node_attempts
from dags_app.counts import DagCounts, dag_counts_of, units_done
from dags_app.dagman import NodeSpan, NodeStatus, spans_by_jobstate
from dags_app.histogram import quantile
from dags_app.models import DAG, LIVE_DAG, FailureLog, StepMeasurement, WorkUnit
from dags_app.packs import files_of
from dags_app.payload.contract import layout
from dags_app.payload.contract.files import tail_text
from requests_app.models import LEADER_LEASE, Round
from requests_app.pages.units import UnitCell, unit_cells
from requests_app.selectors.lifecycle import LifecycleState, leases_known, lifecycle_of
from requests_app.selectors.request_rows import give_related
from wms2.runtime.combined_query import CombinedQuery, composed_once
from wms2.runtime.json_columns import mapping

#: Units whose tries are drawn one by one; of more, only the slowest are listed.
MOST_DRAWN, MOST_SLOWEST = 300, 50
MOST_NODES, MOST_TRIES = 200, 20
#: Units whose files are read for how long jobs of each role take.
MOST_SAMPLED = 60
LOG_LINES = 60
#: The end of the job-state log that is read: a unit has about six lines of 40 characters for each try.
_SPAN_LINES, _SPAN_BYTES = 200_000, 8 * 1024 * 1024
MOST_RELATED = 20
_WIDTH, _ROW = 1000, 6
_SHARES = (0.5, 0.9, 0.99)


class Bar(NamedTuple):
    """A try of a unit in the timeline; ``state`` as of the units' grid."""

    x: int
    y: int
    width: int
    state: str
    words: str


class Timeline(NamedTuple):
    """Tries as bars, a row for each unit, between two moments."""

    bars: tuple[Bar, ...]
    width: int
    height: int
    row: int
    units: int
    begin: datetime
    end: datetime


class Durations(NamedTuple):
    """Seconds of the tries that ended well: so many, and what 50, 90 and 99 % of them do not exceed."""

    role: str
    site: str
    number: int
    p50: float
    p90: float
    p99: float


class Try(NamedTuple):
    """One try of a unit, ``seconds`` long so far."""

    span: NodeSpan
    site: str
    seconds: int
    begun_at: datetime
    ended_at: datetime | None


class Attempt(NamedTuple):
    """What a POST script wrote of a node's job: code and reason are empty where it did well."""

    attempt: int
    job_id: str
    site: str
    wall_seconds: float | None
    memory_mb: float | None
    code: str
    reason: str
    has_logs: bool
    has_report: bool


class Node(NamedTuple):
    """A node of a unit: where it stands, and its recorded attempts."""

    status: NodeStatus
    attempts: tuple[Attempt, ...]


class UnitNodes(NamedTuple):
    """The unit that the address names; ``problem``: why its nodes are not known."""

    name: str
    nodes: tuple[Node, ...]
    problem: str


class DagPage(NamedTuple):
    """Everything on one DAG's page. ``tries``: of each unit with more than one, its number."""

    dag: DAG
    is_live: bool
    counts: DagCounts
    cells: tuple[UnitCell, ...]
    cells_left_out: int
    nodes_problem: str
    tries: Mapping[str, int]
    timeline: Timeline | None
    drawn: tuple[Try, ...]
    durations: tuple[Durations, ...]
    slowest: tuple[Try, ...]
    log: live.LogTail
    related: tuple[DAG, ...]
    unit: UnitNodes | None
    lifecycle: LifecycleState


def dag_page(dag: DAG, unit: str, *, by_role: bool) -> DagPage:
    """Count and read; two queries for any number of units, and one each while some run, or more than are drawn.

    Args:
        unit: of which nodes are shown; empty: none.
        by_role: also how long jobs took, by role and site; files of some units are read for it.

    Raises:
        ValueError: ``unit`` is no name of a work unit.
    """
    chosen = None
    if unit:
        reading = live.unit_status(dag, unit)
        nodes = tuple(Node(node, _attempts(dag, unit, node.name)) for node in reading.nodes[:MOST_NODES])
        chosen = UnitNodes(unit, nodes, reading.problem)
    cells, left_out, problem = unit_cells(dag)
    with files_of(dag.submit_dir, layout.JOBSTATE_LOG) as place:  # all tries in the directory; none when it cannot be read
        spans = spans_by_jobstate(tail_text(place / layout.JOBSTATE_LOG, _SPAN_LINES, max_bytes=_SPAN_BYTES) + "\n")
    mine = [span for span in spans if span.cluster == dag.dagman_cluster_id]
    sites = _sites(dag, cells, left_out)
    tries = _tries(mine, sites)
    rows = _rows(dag)
    few = len({each.span.name for each in tries}) <= MOST_DRAWN
    return DagPage(
        dag=dag,
        is_live=dag.status in LIVE_DAG,
        counts=dag_counts_of(
            dag,
            sum(row["units"] for row in rows["done"]),
            sum(row["jobs_sum"] or 0 for row in rows["done"]),
            next((row.attempts for row in rows["failure_logs"]), 0),
        ),
        cells=cells,
        cells_left_out=left_out,
        nodes_problem=problem,
        tries={name: number for name, number in Counter(span.name for span in spans).items() if number > 1},
        timeline=_timeline(tries) if few and tries else None,
        drawn=tuple(tries) if few else (),
        durations=(*_by_site(tries), *(_by_role(dag, _some(tries)) if by_role else ()), *_by_step(rows["measurements"])),
        slowest=() if few else tuple(sorted(tries, key=lambda each: -each.seconds)[:MOST_SLOWEST]),
        log=live.dagman_log_tail(dag, unit=unit or None, lines=LOG_LINES),
        related=tuple(rows["related"]),
        unit=chosen,
        lifecycle=lifecycle_of(next(iter(rows["leases"]), None)),
    )


#: In place of a DAG's id, its workflow's, its directory's and its round's.
_DAG, _WORKFLOW, _DIRECTORY, _ROUND = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3), -(2**62)


@composed_once
def _short() -> CombinedQuery:
    """What is short, by one query."""
    dag = DAG(pk=_DAG, workflow_id=_WORKFLOW, directory_id=_DIRECTORY, round_id=_ROUND)
    others = DAG.objects.filter(workflow_id=dag.workflow_id).exclude(pk=dag.pk).order_by("-created_at", "-fence")[:MOST_RELATED]
    return CombinedQuery(
        done=units_done(dag),
        failure_logs=FailureLog.objects.filter(pk=dag.directory_id),
        measurements=StepMeasurement.objects.filter(round_id=dag.round_id),
        related=others,
        rounds=Round.objects.filter(pk__in=others.values("round")),
        leases=leases_known(LEADER_LEASE),
    )


def _rows(dag: DAG) -> Mapping[str, list[Any]]:
    marks = {_DAG: dag.pk, _WORKFLOW: dag.workflow_id, _DIRECTORY: dag.directory_id, _ROUND: dag.round_id}
    found = _short().rows(marks)
    give_related(found["related"], "round", found["rounds"])
    return found


def _sites(dag: DAG, cells: Sequence[UnitCell], left_out: int) -> Mapping[str, str]:
    if not left_out:
        return {cell.unit.name: cell.unit.site for cell in cells}
    return dict(WorkUnit.objects.filter(round_id=dag.round_id).order_by().values_list("name", "site"))


def _tries(spans: Sequence[NodeSpan], sites: Mapping[str, str]) -> list[Try]:
    """By the names of units, then by their beginning."""
    now = int(timezone.now().timestamp())
    return [
        Try(
            span,
            sites.get(span.name, ""),
            max(0, (span.ended_at or now) - span.begun_at),
            datetime.fromtimestamp(span.begun_at, UTC),
            datetime.fromtimestamp(span.ended_at, UTC) if span.ended_at else None,
        )
        for span in sorted(spans, key=lambda each: (each.name, each.begun_at))
    ]


def _timeline(tries: Sequence[Try]) -> Timeline:
    names = {name: row for row, name in enumerate(dict.fromkeys(each.span.name for each in tries))}
    begin = min(each.span.begun_at for each in tries)
    end = max(each.span.begun_at + each.seconds for each in tries)
    scale = _WIDTH / max(end - begin, 1)
    bars = (
        Bar(
            x=round((each.span.begun_at - begin) * scale),
            y=names[each.span.name] * _ROW,
            width=max(2, round(each.seconds * scale)),
            state=_state(each.span),
            words=f"{each.span.name}{f' at {each.site}' if each.site else ''}",
        )
        for each in tries
    )
    moments = datetime.fromtimestamp(begin, UTC), datetime.fromtimestamp(end, UTC)
    return Timeline(tuple(bars), _WIDTH, len(names) * _ROW, _ROW - 1, len(names), *moments)


def _state(span: NodeSpan) -> str:
    if span.well is None:
        return "waiting" if span.ended_at else "running"
    return "done" if span.well else "bad"


def _by_site(tries: Iterable[Try]) -> Iterable[Durations]:
    """Of whole work units; sites with the most first."""
    seconds = defaultdict[str, list[int]](list)
    for each in tries:
        if each.span.well:
            seconds[each.site].append(each.seconds)
    for site, values in sorted(seconds.items(), key=lambda item: (-len(item[1]), item[0])):
        yield _durations("work unit", site, values)


def _durations(role: str, site: str, seconds: Iterable[float]) -> Durations:
    ordered = sorted(seconds)
    cuts = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in _SHARES)
    return Durations(role, site or "not known", len(ordered), *cuts)


def _some(tries: Iterable[Try]) -> tuple[str, ...]:
    """Units that are done, evenly taken from all of them."""
    done = [each.span.name for each in tries if each.span.well]
    return tuple(done[:: max(1, -(-len(done) // MOST_SAMPLED))])


@lru_cache(maxsize=64)
def _by_role(dag: DAG, units: tuple[str, ...]) -> tuple[Durations, ...]:
    """Of the jobs of these units that POST scripts judge, by their last attempt; read again when other units are done."""
    seconds = defaultdict[tuple[str, str], list[float]](list)
    for unit in units:
        for node in live.unit_status(dag, unit).nodes:
            last = next(iter(_attempts(dag, unit, node.name)[-1:]), None)
            if last is not None and last.wall_seconds is not None:
                seconds["merge job" if node.name == layout.MERGE else "processing job", last.site].append(last.wall_seconds)
    return tuple(_durations(role, site, values) for (role, site), values in sorted(seconds.items()))


def _by_step(measurements: Iterable[StepMeasurement]) -> Iterable[Durations]:
    """Of the round's jobs at all sites together, as work units that are done have measured them."""
    for row in measurements:
        held = row.histograms.get("job_seconds") or {}
        cuts = [quantile(held, share) for share in _SHARES]
        if None not in cuts:
            yield Durations(f"job, step {row.step}", "all", row.jobs, *(cut or 0.0 for cut in cuts))


def _attempts(dag: DAG, unit: str, node: str) -> tuple[Attempt, ...]:
    """The newest last. A record is a job's word: what of it has another form is left out."""
    try:
        lines = node_attempts(dag, unit, node)[-MOST_TRIES:]
    except ValueError:  # no name that WMS2 gives: a node of another's making in the directory
        return ()
    return tuple(found for line in lines if (found := _attempt(line)) is not None)


def _attempt(line: Mapping[str, Any]) -> Attempt | None:
    number, job, verdict = line.get("attempt"), mapping(line.get("job")), mapping(line.get("classification"))
    job_id = str(line.get("job_id", ""))
    if not isinstance(number, int) or not job_id:
        return None
    well = verdict.get("category") == "success"
    return Attempt(
        attempt=number,
        job_id=job_id,
        site=str(job.get("site") or ""),
        wall_seconds=_number(job.get("wall_time_sec")),
        memory_mb=_number(job.get("memory_mb")),
        code="" if well else str(verdict.get("code", "")),
        reason="" if well else str(verdict.get("reason", "")),
        has_logs=bool(line.get("logs")),
        has_report=bool(line.get("report")),
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
