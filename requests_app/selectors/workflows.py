"""Workflows for lists, and where one stands (spec 7.2, ``GET /workflows/{id}/status``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from dags_app import counts
from dags_app.counts import UnitCounts, UnitProgress
from dags_app.models import DAG, LIVE_DAG
from dags_app.selectors import dag_last
from outputs_app.models import ProcessingBlock
from outputs_app.selectors import blocks_done_units
from requests_app.models import Workflow, WorkflowStatus

_LISTED = tuple(f.name for f in Workflow._meta.concrete_fields if f.name not in ("spec", "psets"))
#: Further away than this an estimate says nothing.
MAX_ESTIMATE = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class BlockProgress:
    """A block, and how many of its units are done."""

    block: ProcessingBlock
    done: int

    @property
    def work_units(self) -> str:
        """Done of all, as people write it."""
        return f"{self.done}/{self.block.total_work_units}"


@dataclass(frozen=True, slots=True)
class WorkflowProgress:
    """A workflow's progress. ``estimated_completion`` rests on the rate since its DAG was submitted; None without one."""

    workflow: Workflow
    dag: DAG | None
    dag_units: UnitCounts
    dag_nodes_done: int
    units: UnitCounts
    blocks: list[BlockProgress]
    progress_percent: float
    estimated_completion: datetime | None

    @property
    def with_dag(self) -> WorkflowProgress | None:
        """Itself, if there is a DAG to tell of."""
        return self if self.dag else None


def workflows_stored() -> QuerySet[Workflow]:
    """Whole but for the PSets, which are large."""
    return Workflow.objects.defer("psets")


def workflows_shown() -> QuerySet[Workflow]:
    """Without specification and PSets, which are large."""
    return Workflow.objects.only(*_LISTED)


def workflow_progress(workflow: Workflow) -> WorkflowProgress:
    """Count; a fixed number of queries."""
    dag = dag_last(workflow.pk)
    since = dag.submitted_at if dag is not None and dag.submitted_at else timezone.now()
    progress = counts.unit_progress(workflow.pk, since=since)
    units = counts.unit_counts([workflow.pk])[workflow.pk]
    blocks = list(ProcessingBlock.objects.filter(workflow=workflow))
    done = blocks_done_units([block.pk for block in blocks])
    return WorkflowProgress(
        workflow=workflow,
        dag=dag,
        dag_units=counts.unit_counts_of_round(dag.round_id) if dag else UnitCounts(),
        dag_nodes_done=counts.nodes_done(dag) if dag else 0,
        units=units,
        blocks=[BlockProgress(block, done.get(block.pk, 0)) for block in blocks],
        progress_percent=_percent(workflow, units, progress),
        estimated_completion=_estimate(workflow, units, progress, dag),
    )


def _percent(workflow: Workflow, units: UnitCounts, progress: UnitProgress) -> float:
    """By events done of those asked for; by work units where events are not known."""
    if workflow.status == WorkflowStatus.COMPLETED:
        return 100.0
    done, total = _measure(workflow, units, progress)
    return round(min(100.0, 100.0 * done / total), 1) if total else 0.0


def _estimate(workflow: Workflow, units: UnitCounts, progress: UnitProgress, dag: DAG | None) -> datetime | None:
    """What is left at the rate measured since the running DAG was submitted; None when nothing is measured or left."""
    if dag is None or dag.status not in LIVE_DAG or dag.submitted_at is None:
        return None
    done, total = _measure(workflow, units, progress)
    since = progress.events_since if workflow.requested_events else progress.units_since
    now = timezone.now()
    elapsed_seconds = (now - dag.submitted_at).total_seconds()
    if since <= 0 or elapsed_seconds <= 0 or total <= done:
        return None
    left = timedelta(seconds=min((total - done) * elapsed_seconds / since, MAX_ESTIMATE.total_seconds() * 2))
    return None if left > MAX_ESTIMATE else now + left


def _measure(workflow: Workflow, units: UnitCounts, progress: UnitProgress) -> tuple[int, int]:
    if workflow.requested_events:
        return progress.done_events, workflow.requested_events
    return units.done, units.total
