"""Counting work units and nodes for readers. Owns the sums; writes nothing."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import BigIntegerField, Count, Q, Sum
from django.db.models.functions import Coalesce

from dags_app.models import DAG, WorkUnit, WorkUnitState


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

    def as_dict(self) -> dict[str, int]:
        """The total, and each state."""
        return {"total": self.total, **{name: getattr(self, name) for name in self.__slots__}}


@dataclass(frozen=True, slots=True)
class UnitProgress:
    """What the done units of a workflow amount to, and how much of it came since a moment."""

    done_units: int
    done_events: int
    units_since: int
    events_since: int


def unit_counts(workflow_ids: Iterable[uuid.UUID]) -> Mapping[uuid.UUID, UnitCounts]:
    """Counts per workflow, one query for all; a workflow without units has zeros."""
    rows = WorkUnit.objects.filter(workflow_id__in=list(workflow_ids)).order_by().values("workflow_id", "state")
    found: dict[uuid.UUID, dict[str, int]] = defaultdict(dict)
    for row in rows.annotate(number=Count("id")):
        found[row["workflow_id"]][row["state"]] = row["number"]
    counts = {workflow: _counts(states) for workflow, states in found.items()}
    return defaultdict(UnitCounts, counts)


@dataclass(frozen=True, slots=True)
class UnitSum:
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


@dataclass(frozen=True, slots=True)
class UnitTable:
    """All work units of a workflow by round, site and state: whatever a page counts of them comes of one query."""

    sums: tuple[UnitSum, ...]

    def counts(self, **where: object) -> UnitCounts:
        """By state, of all or of those ``where`` a field is such."""
        states: Counter[str] = Counter()
        for row in self._of(where):
            states[row.state] += row.units
        return _counts(states)

    def counts_by(self, field: str) -> list[tuple[Any, UnitCounts]]:
        """By state for each value of a field."""
        return [(value, self.counts(**{field: value})) for value in sorted({getattr(row, field) for row in self.sums})]

    def progress(self) -> UnitProgress:
        """Of the done units."""
        done = self._of({"state": WorkUnitState.DONE})
        names = ("units", "events", "units_since", "events_since")
        return UnitProgress(*(sum(getattr(row, name) for row in done) for name in names))

    def nodes_done(self, dag: DAG) -> int:
        """As ``nodes_done`` counts them."""
        done = self._of({"round_id": dag.round_id, "state": WorkUnitState.DONE})
        return _nodes(dag, sum(row.units for row in done), sum(row.jobs for row in done))

    def _of(self, where: Mapping[str, object]) -> list[UnitSum]:
        return [row for row in self.sums if all(getattr(row, name) == value for name, value in where.items())]


def unit_table(workflow_id: uuid.UUID, *, since: datetime) -> UnitTable:
    """One query."""
    rows = WorkUnit.objects.filter(workflow_id=workflow_id).order_by().values_list("round_id", "round__index", "site", "state")
    recent = Q(done_at__gte=since)
    sums = rows.annotate(
        units=Count("*"),
        jobs_sum=Sum("jobs"),
        events_sum=Sum("events"),
        units_since=Count("pk", filter=recent),
        events_since=Coalesce(Sum("events", filter=recent), 0, output_field=BigIntegerField()),
    )
    return UnitTable(tuple(UnitSum(*row) for row in sums))


def units_completed(dag: DAG) -> list[str]:
    """Names of the round's units that are done and accounted (the spec's ``completed_work_units``)."""
    rows = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE).order_by("index")
    return list(rows.values_list("name", flat=True))


def nodes_done(dag: DAG) -> int:
    """Nodes of both levels in units that are done: their jobs, and landing, merge and cleanup of each.

    DAGMan's own counts in the row are those of the outer DAG, where a unit is one node.
    """
    done = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE).aggregate(units=Count("id"), jobs=Sum("jobs"))
    return _nodes(dag, int(done["units"]), int(done["jobs"] or 0))


def _nodes(dag: DAG, units: int, jobs: int) -> int:
    others = dag.total_nodes - int(dag.node_counts.get("Processing", 0))
    return jobs + (others // dag.total_work_units if dag.total_work_units else 0) * units


def _counts(states: Mapping[str, int]) -> UnitCounts:
    return UnitCounts(**{state.value: states.get(state, 0) for state in WorkUnitState})
