"""Counting work units, nodes and jobs for readers. Owns the sums; writes nothing."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import structlog
from django.db.models import BigIntegerField, Count, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from dags_app.models import DAG, IN_QUEUE, FailureGroup, FailureLog, WorkUnit, WorkUnitState
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
_AT_SITES = ("idle", "running", "held", "done", "failed")
_OF_ALL_ROUNDS = """
SELECT count(*), coalesce(sum(jobs), 0),
       (SELECT coalesce(sum(attempts), 0) FROM failure_groups WHERE workflow_id = %(workflow)s)
FROM work_units WHERE workflow_id = %(workflow)s AND state = %(done)s
"""


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """Work units by state."""

    planned: int = 0
    done: int = 0
    done_unaccounted: int = 0
    failed: int = 0
    abandoned: int = 0

    @property
    def total(self) -> int:
        """Units that count: given-up ones are planned anew under other names."""
        return self.planned + self.done + self.done_unaccounted

    @property
    def given_up(self) -> int:
        """Units whose work was planned anew, or is lost."""
        return self.failed + self.abandoned

    def as_dict(self) -> dict[str, int]:
        """The total, and each state."""
        return {"total": self.total, **{name: getattr(self, name) for name in self.__slots__}}


class UnitProgress(NamedTuple):
    """What the done units of a workflow amount to, and how much of it came since a moment."""

    done_events: int
    units_since: int
    events_since: int


def unit_counts(workflow_ids: Iterable[uuid.UUID]) -> Mapping[uuid.UUID, UnitCounts]:
    """Counts per workflow, one query for all; a workflow without units has zeros."""
    rows = WorkUnit.objects.filter(workflow_id__in=list(workflow_ids)).order_by().values("workflow_id", "state")
    found: dict[uuid.UUID, dict[str, int]] = defaultdict(dict)
    for row in rows.annotate(number=Count("id")):
        found[row["workflow_id"]][row["state"]] = row["number"]
    return defaultdict(UnitCounts, {workflow: _known(states) for workflow, states in found.items()})


def _known(states: Mapping[str, int]) -> UnitCounts:
    """Without states that a later release may have written."""
    return UnitCounts(**{state: number for state, number in states.items() if state in UnitCounts.__dataclass_fields__})


class UnitSum(NamedTuple):
    """Work units of one round, site and state; ``since``: of them those done from a moment on."""

    round_id: int
    round_index: int
    site: str
    state: str
    units: int
    jobs: int
    events: int
    units_since: int
    events_since: int


class UnitTable(NamedTuple):
    """All work units of a workflow by round, site and state: whatever a page counts of them comes of one query.

    ``failed_by_site``, ``failed_by_directory``: failed attempts, of the workflow and of logs; None: they are read when asked for.
    """

    workflow_id: uuid.UUID
    sums: tuple[UnitSum, ...]
    failed_by_site: Mapping[str, int] | None = None
    failed_by_directory: Mapping[uuid.UUID, int | None] | None = None

    def counts(self, **where: object) -> UnitCounts:
        """By state, of all or of those ``where`` a field is such."""
        states: Counter[str] = Counter()
        for row in self._of(**where):
            states[row.state] += row.units
        return _known(states)

    def counts_by(self, field: str) -> list[tuple[Any, UnitCounts]]:
        """By state for each value of a field."""
        return [(value, self.counts(**{field: value})) for value in sorted({getattr(row, field) for row in self.sums})]

    def progress(self) -> UnitProgress:
        """Of the done units."""
        done = self._of(state=WorkUnitState.DONE)
        names = ("events", "units_since", "events_since")
        return UnitProgress(*(sum(getattr(row, name) for row in done) for name in names))

    def counts_of(self, dag: DAG) -> DagCounts:
        """As ``dag_counts`` has them."""
        logs = self.failed_by_directory
        failed = _attempts(dag) if logs is None else logs.get(dag.directory_id, 0)
        return dag_counts_of(dag, *self._done(round_id=dag.round_id), failed)

    def nodes(self) -> dict[str, int]:
        """All nodes inside units, and by state, of all rounds: of each its newest DAG's, whose counts contain those before it."""
        sums = Counter[str](total=0)
        rows = DAG.objects.filter(workflow_id=self.workflow_id).order_by("round_id", "-created_at", "-fence")
        for dag in rows.distinct("round_id"):
            sums.update(_by_state(dag, *self._done(round_id=dag.round_id)), total=dag.total_nodes)
        return dict(sums)

    def jobs_by_site(self, dag: DAG | None) -> dict[str, dict[str, int]]:
        """Site -> its jobs in the queue by state, of this DAG; those that ended well (``done``) and badly, of all rounds."""
        done = ((row.site, row.jobs, row.units) for row in self._of(state=WorkUnitState.DONE))
        return _by_site(dag, done, self._failed().items())

    def success(self) -> JobSuccess:
        """Of all the workflow's rounds."""
        units, jobs = self._done()
        return JobSuccess(jobs_judged(jobs, units), sum(self._failed().values()))

    def _failed(self) -> Mapping[str, int]:
        if self.failed_by_site is not None:
            return self.failed_by_site
        groups = FailureGroup.objects.filter(workflow_id=self.workflow_id).order_by().values_list("site")
        return dict(groups.annotate(number=Sum("attempts")))

    def _of(self, **where: object) -> list[UnitSum]:
        return [row for row in self.sums if all(getattr(row, name) == value for name, value in where.items())]

    def _done(self, **where: object) -> tuple[int, int]:
        done = self._of(state=WorkUnitState.DONE, **where)
        return sum(row.units for row in done), sum(row.jobs for row in done)


def unit_sums(since: Any) -> dict[str, Any]:
    """What a ``UnitSum`` has of its units, in its order; ``since``: a moment, or an expression of one."""
    recent = Q(done_at__gte=since)
    return {
        "units": Count("*"),
        "jobs_sum": Sum("jobs"),
        "events_sum": Sum("events"),
        "units_since": Count("pk", filter=recent),
        "events_since": Coalesce(Sum("events", filter=recent), 0, output_field=BigIntegerField()),
    }


def units_completed(dag: DAG) -> list[str]:
    """Names of the round's units that are done and accounted (the spec's ``completed_work_units``)."""
    rows = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE).order_by("index")
    return list(rows.values_list("name", flat=True))


@dataclass(frozen=True, slots=True)
class JobSuccess:
    """Ended processing and merge jobs: those of accounted units, and failed attempts, None where these were not counted."""

    ended_well: int
    ended_badly: int | None

    @property
    def success_rate(self) -> float | None:
        """Ended well of all that ended, 0 to 1; None as long as none has, or where that is not known (spec 13.1)."""
        if self.ended_badly is None or not self.ended_well + self.ended_badly:
            return None
        return round(self.ended_well / (self.ended_well + self.ended_badly), 4)


class DagCounts(NamedTuple):
    """A DAG's units (nodes of the outer DAG) and the nodes inside them (``total_nodes``) by state; its ended jobs.

    Idle, running and held nodes are jobs in the queue, by the schedd. Of units that run, done and failed nodes are up to a minute
    older, by the units' own DAGMans. What is in none of these states is not submitted yet, or between two tries.
    """

    units: Mapping[str, int]
    nodes: Mapping[str, int]
    success: JobSuccess


def job_success(workflow_id: uuid.UUID) -> JobSuccess:
    """Of all rounds of a workflow; one query."""
    ((units, jobs, failed),) = sql_rows(_OF_ALL_ROUNDS, {"workflow": workflow_id, "done": WorkUnitState.DONE})
    return JobSuccess(jobs_judged(jobs, units), failed)


def dag_counts(dag: DAG) -> DagCounts:
    """Three queries."""
    return dag_counts_of(dag, *_done(round_id=dag.round_id), _attempts(dag))


def units_done(dag: DAG) -> QuerySet[Any]:
    """How many units of its round are done, and their jobs."""
    rows = WorkUnit.objects.filter(state=WorkUnitState.DONE, round_id=dag.round_id).order_by().values("round_id")
    return rows.annotate(units=Count("id"), jobs_sum=Sum("jobs"))


def jobs_by_site(dag: DAG) -> dict[str, dict[str, int]]:
    """Site -> a DAG's jobs in the queue by state; those that ended well (``done``) and badly, of its round. Two queries."""
    done = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE).order_by().values_list("site")
    index = str(dag.round.index)
    groups = FailureGroup.objects.filter(workflow_id=dag.workflow_id, rounds__has_key=index).order_by()
    failed = ((site, rounds[index]) for site, rounds in groups.values_list("site", "rounds"))
    return _by_site(dag, done.annotate(jobs_sum=Sum("jobs"), units=Count("id")), failed)


def nodes_failed(dag: DAG) -> int:
    """Nodes inside units that have failed for good, in units that run and in failed ones."""
    return int(_running(dag, "inner_failed")) + int(dag.failed_units.get("failed", 0))


def jobs_judged(jobs: int, units: int) -> int:
    """Jobs of so many done units that POST scripts judge, as their failures are counted: processing and merge."""
    return jobs + units


def jobs_per_unit(dag: DAG) -> int:
    """Processing jobs in a work unit of a DAG, rounded up, at least 1."""
    return max(ceil(int(dag.node_counts.get("Processing", 0)) / max(dag.total_work_units, 1)), 1)


def _by_site(
    dag: DAG | None, done: Iterable[tuple[str, int, int]], failed: Iterable[tuple[str, int]]
) -> dict[str, dict[str, int]]:
    """Of done units their jobs and their number, of failed attempts their number, by site."""
    queued = dag.jobs.get("sites", {}) if dag is not None else {}
    found = defaultdict[str, Counter[str]](Counter, {site: Counter(states) for site, states in queued.items()})
    for site, jobs, units in done:
        found[site]["done"] += jobs_judged(jobs, units)
    for site, attempts in failed:
        found[site]["failed"] += attempts
    return {site: {state: found[site][state] for state in _AT_SITES} for site in sorted(found) if site}


def _attempts(dag: DAG) -> int | None:
    """Failed ones, as the log of its directory was read; None: not counted."""
    found = list(FailureLog.objects.filter(pk=dag.directory_id).values_list("attempts", flat=True))
    return found[0] if found else 0


def dag_counts_of(dag: DAG, units: int, jobs: int, failed: int | None) -> DagCounts:
    """Of done units of its round, their jobs, and failed attempts that were read. One query while units run."""
    running = _running(dag, "units_running")
    return DagCounts(
        units={
            "waiting": max(dag.total_work_units - max(units, dag.nodes_done) - dag.nodes_failed - running, 0),
            "running": running,
            "done": max(units, dag.nodes_done),
            "failed": dag.nodes_failed,
        },
        nodes=_by_state(dag, units, jobs),
        success=JobSuccess(jobs_judged(jobs, units), failed),
    )


def _by_state(dag: DAG, units: int, jobs: int) -> dict[str, int]:
    done = _nodes(dag, units, jobs) + int(_running(dag, "inner_done")) + int(dag.failed_units.get("done", 0))
    if names := dag.observed.get("running_units") if _running(dag, "units_running") else None:
        # accounted already, and DAGMan was seen before it noticed: counted among those that run
        done -= _nodes(dag, *_done(round_id=dag.round_id, name__in=names))
    states = {"idle": dag.nodes_idle, "running": dag.nodes_running, "held": dag.nodes_held}
    return {**states, "done": min(done, dag.total_nodes), "failed": nodes_failed(dag)}


def _done(**where: Any) -> tuple[int, int]:
    """How many done units there are ``where``, and their jobs."""
    rows = WorkUnit.objects.filter(state=WorkUnitState.DONE, **where).aggregate(units=Count("id"), jobs=Sum("jobs"))
    return int(rows["units"]), int(rows["jobs"] or 0)


def _running(dag: DAG, name: str) -> int:
    """Of the units that run; an ended DAG has none, even if some were observed last."""
    return int(dag.observed.get(name) or 0) if dag.status in IN_QUEUE else 0


def node_numbers(dag: DAG) -> dict[str, int]:
    """Its nodes by category, for readers: what is stored and is no number is left out, and logged; a page is shown without it.

    Admission, which decides by it, refuses such a DAG (``jobs_per_unit``) and says so on its request.
    """
    numbers = {name: value for name, value in dag.node_counts.items() if type(value) is int}
    if len(numbers) < len(dag.node_counts):
        log.warning("stored node counts are no numbers", dag_id=str(dag.pk), node_counts=dag.node_counts)
    return numbers


def _nodes(dag: DAG, units: int, jobs: int) -> int:
    others = dag.total_nodes - node_numbers(dag).get("Processing", 0)
    return jobs + (others // dag.total_work_units if dag.total_work_units else 0) * units
