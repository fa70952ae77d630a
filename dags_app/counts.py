"""Counting work units and nodes for readers. Owns the sums; writes nothing."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, Sum

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


def unit_counts_of_round(round_id: int) -> UnitCounts:
    """Counts of one round."""
    rows = WorkUnit.objects.filter(round_id=round_id).order_by().values_list("state").annotate(number=Count("id"))
    return _counts(dict(rows))


def unit_progress(workflow_id: uuid.UUID, *, since: datetime) -> UnitProgress:
    """Sums over done units; those done from ``since`` on apart."""
    done = WorkUnit.objects.filter(workflow_id=workflow_id, state=WorkUnitState.DONE)
    recent = Q(done_at__gte=since)
    sums = done.aggregate(
        units=Count("id"),
        all_events=Sum("events"),
        units_since=Count("id", filter=recent),
        events_since=Sum("events", filter=recent),
    )
    return UnitProgress(
        done_units=sums["units"],
        done_events=sums["all_events"] or 0,
        units_since=sums["units_since"],
        events_since=sums["events_since"] or 0,
    )


def units_completed(dag: DAG) -> list[str]:
    """Names of the round's units that are done and accounted (the spec's ``completed_work_units``)."""
    rows = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE).order_by("index")
    return list(rows.values_list("name", flat=True))


def nodes_done(dag: DAG) -> int:
    """Nodes of both levels in units that are done: their jobs, and landing, merge and cleanup of each.

    DAGMan's own counts in the row are those of the outer DAG, where a unit is one node.
    """
    done = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE).aggregate(units=Count("id"), jobs=Sum("jobs"))
    others = dag.total_nodes - int(dag.node_counts.get("Processing", 0))
    per_unit = others // dag.total_work_units if dag.total_work_units else 0
    return int(done["jobs"] or 0) + per_unit * int(done["units"])


def _counts(states: Mapping[str, int]) -> UnitCounts:
    return UnitCounts(**{state.value: states.get(state, 0) for state in WorkUnitState})
