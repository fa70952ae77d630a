"""Stopping a DAG: the intent is in the rows, the removal is asked for again each cycle until the DAG is proved gone."""

from __future__ import annotations

import structlog
from django.utils import timezone

from dags_app.models import DAG, DAGStatus
from dags_app.services.watch import IN_QUEUE
from dags_app.states import dag_transition, history
from wms2.adapters import factory
from wms2.conf import conf
from wms2.crash import crash_point
from wms2.errors import StaleState

log = structlog.get_logger(__name__)


def dag_request_stop(*, dag: DAG, reason: str) -> None:
    """Note on the row that we want it gone; idempotent."""
    if dag.stop_requested_at is None:
        dag.stop_requested_at, dag.stop_reason, dag.stop_mode = timezone.now(), reason, "now"
        dag.save(update_fields=["stop_requested_at", "stop_reason", "stop_mode"])
        history(dag, "stop_requested", detail={"reason": reason})


def dag_remove(*, dag: DAG) -> None:
    """Ask the schedd to remove the DAGMan job (inner DAGMans and jobs go with it). Repeatable.

    Raises:
        ServiceUnavailable: no answer; the next cycle asks again.
    """
    if dag.status not in IN_QUEUE or dag.schedd is None:
        return
    crash_point("stop.claimed")
    factory.htcondor(dag.schedd.name, dag.schedd.collector).remove(
        int(dag.dagman_cluster_id), dag.stop_reason or "stopped by WMS2"
    )
    crash_point("stop.called")
    log.info("removal asked for", dag_id=str(dag.pk), cluster=dag.dagman_cluster_id)


def dag_discard_unsubmitted(*, dag: DAG) -> bool:
    """End a READY DAG that certainly runs nowhere; False while a submission may still turn up.

    Raises:
        ServiceUnavailable: queue or history did not answer.
    """
    if dag.submit_intent_at is not None:
        if dag.schedd is None:
            raise StaleState(f"DAG {dag.pk} has an intent but no schedd")
        found = factory.htcondor(dag.schedd.name, dag.schedd.collector).find_dag(str(dag.pk))
        if found is not None:
            return False
        if (timezone.now() - dag.submit_intent_at).total_seconds() < conf().submit_unknown_grace_seconds:
            return False
    dag_transition(dag, DAGStatus.REMOVED, event="discarded", detail={"reason": dag.stop_reason})
    return True
