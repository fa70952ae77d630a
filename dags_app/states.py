"""The DAG's status table and its single writer (docs/design/model.md, DAG statuses)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from dags_app.models import DAG, DAGHistory, DAGStatus
from wms2.errors import InvalidTransition, StaleState

log = structlog.get_logger(__name__)
S = DAGStatus
_ENDS = frozenset({S.COMPLETED, S.PARTIAL, S.FAILED, S.STOPPED, S.REMOVED})

TRANSITIONS: dict[DAGStatus, frozenset[DAGStatus]] = {
    S.PLANNING: frozenset({S.READY, S.REMOVED}),
    S.READY: frozenset({S.SUBMITTED, S.REMOVED}),
    S.SUBMITTED: frozenset({S.RUNNING, S.HALTED}) | _ENDS,
    S.RUNNING: frozenset({S.HALTED}) | _ENDS,
    S.HALTED: frozenset({S.RUNNING}) | _ENDS,
    **dict.fromkeys(_ENDS, frozenset()),
}


def dag_transition(dag: DAG, to: DAGStatus, *, event: str, detail: dict[str, Any] | None = None, **changes: Any) -> None:
    """Move a DAG along one edge with its history row, in one transaction; ``dag`` is refreshed.

    Raises:
        InvalidTransition: no such edge.
        StaleState: the row is no longer as read, or an older fence speaks.
    """
    old = DAGStatus(dag.status)
    if to not in TRANSITIONS[old]:
        raise InvalidTransition(f"DAG {dag.id}: {old.label} cannot become {to.label}")
    now = timezone.now()
    values = {"status": to, **(_at_end(dag, to, now, changes.get("outcome")) if to in _ENDS else {}), **changes}
    with transaction.atomic():
        if DAG.objects.filter(pk=dag.pk, status=old, fence=dag.fence).update(**values) != 1:
            raise StaleState(f"DAG {dag.id} is no longer {old.label} with fence {dag.fence}")
        history(dag, event, from_status=old, to_status=to, detail=detail)
    for name, value in values.items():
        setattr(dag, name, value)
    log.info("dag status", dag_id=str(dag.id), old=old.value, new=to.value, what=event)


def _at_end(dag: DAG, to: DAGStatus, now: datetime, outcome: dict[str, Any] | None) -> dict[str, Any]:
    """Nothing of an ended DAG runs, and its counts are those of the evidence, not the ones that were last observed."""
    counts: dict[str, Any] = {
        "completed_at": now, "nodes_idle": 0, "nodes_running": 0, "nodes_held": 0, "jobs": {}, "missing_since": None,
    }  # fmt: skip
    units = (outcome or {}).get("units") or {}
    if units.get("total"):
        counts |= {"nodes_done": units["done"], "nodes_failed": units["failed"]}
    elif to is DAGStatus.COMPLETED:
        counts |= {"nodes_done": dag.total_work_units, "nodes_failed": 0}
    return counts


def history(dag: DAG, event: str, *, from_status: str = "", to_status: str = "", detail: dict[str, Any] | None = None) -> None:
    """Append one line to the DAG's history."""
    DAGHistory.objects.create(
        dag=dag,
        event_type=event,
        from_status=from_status,
        to_status=to_status,
        nodes_done=dag.nodes_done,
        nodes_failed=dag.nodes_failed,
        nodes_running=dag.nodes_running,
        detail=detail or {},
    )
