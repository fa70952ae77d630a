"""Stopping a DAG: the intent is in the rows, the removal is asked for again each cycle until the DAG is proved gone."""

from __future__ import annotations

import structlog
from django.utils import timezone

from dags_app.models import DAG
from dags_app.services.watch import IN_QUEUE
from dags_app.states import history
from wms2.adapters import factory
from wms2.crash import crash_point

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
