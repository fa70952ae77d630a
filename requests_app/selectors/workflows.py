"""Workflows for lists, and where one stands (spec 7.2, ``GET /workflows/{id}/status``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from dags_app.counts import DagCounts, UnitCounts, UnitProgress, UnitSum, UnitTable, node_numbers, unit_sums
from dags_app.models import DAG, LIVE_DAG, WorkUnit
from outputs_app.models import ProcessingBlock
from outputs_app.selectors import blocks_done_units
from requests_app.limits import limits_now
from requests_app.models import Workflow, WorkflowStatus
from requests_app.work.overrides import throttles_of

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
    table: UnitTable
    dag_units: UnitCounts
    dag_counts: DagCounts | None
    units: UnitCounts
    blocks: list[BlockProgress]
    progress_percent: float
    estimated_completion: datetime | None

    @property
    def category_throttles(self) -> dict[str, int | None]:
        """Limits of its DAGs, from their next submission on (spec 3.1.2)."""
        return throttles_of(self.workflow.request, limits_now().dag_max_merge_groups).as_dict()

    @property
    def sites(self) -> dict[str, dict[str, int]]:
        """Jobs by site and state."""
        return self.table.jobs_by_site(self.dag)

    @property
    def node_counts(self) -> dict[str, int]:
        """Nodes of its DAG by category."""
        return node_numbers(self.dag) if self.dag is not None else {}

    @property
    def with_dag(self) -> WorkflowProgress | None:
        """Itself, if there is a DAG."""
        return self if self.dag else None


def workflows_stored() -> QuerySet[Workflow]:
    """Whole but for the PSets, which are large."""
    return Workflow.objects.defer("psets")


def workflow_progress(workflow: Workflow, dag: DAG | None) -> WorkflowProgress:
    """With the workflow's newest DAG; a fixed number of queries."""
    since = dag.submitted_at if dag is not None and dag.submitted_at else timezone.now()
    rows = WorkUnit.objects.filter(workflow_id=workflow.pk).order_by().values_list("round_id", "round__index", "site", "state")
    table = UnitTable(workflow.pk, tuple(UnitSum(*row) for row in rows.annotate(**unit_sums(since))))
    blocks = list(ProcessingBlock.objects.filter(workflow=workflow).defer("failure_context"))
    return progress_of(workflow, dag, table, blocks, blocks_done_units([block.pk for block in blocks]) if blocks else {})


def progress_of(
    workflow: Workflow, dag: DAG | None, table: UnitTable, blocks: Iterable[ProcessingBlock], done: Mapping[Any, int]
) -> WorkflowProgress:
    """The same, of what was read: ``table`` since the DAG was submitted, ``done`` units of blocks."""
    units, progress = table.counts(), table.progress()
    return WorkflowProgress(
        workflow=workflow,
        dag=dag,
        table=table,
        dag_units=table.counts(round_id=dag.round_id) if dag else UnitCounts(),
        dag_counts=table.counts_of(dag) if dag else None,
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
    return end_at_rate(total - done, since, dag.submitted_at, timezone.now(), MAX_ESTIMATE)


def end_at_rate(left: int, done: int, since: datetime, now: datetime, latest: timedelta) -> datetime | None:
    """When what is left is done, if it goes on like what was done since then; None where that says nothing."""
    passed = (now - since).total_seconds()
    if left <= 0 or done <= 0 or passed <= 0:
        return None
    seconds = left * passed / done
    return now + timedelta(seconds=seconds) if seconds < latest.total_seconds() else None


def _measure(workflow: Workflow, units: UnitCounts, progress: UnitProgress) -> tuple[int, int]:
    if workflow.requested_events:
        return progress.done_events, workflow.requested_events
    return units.done, units.total
