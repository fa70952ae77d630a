"""What keeps a DAG in the queue from going on, told on its request: a silent schedd, a DAGMan job on hold.

What was told of a DAG that goes on again is taken back.
"""

from __future__ import annotations

from dags_app.models import DAG
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from wms2 import clock
from wms2.adapters.types import JobStatus
from wms2.conf import conf

#: Alerts about a DAG that was not in its queue.
_GONE = ("queue_suspected", "outcome_unknown")


def tell_obstacle(evaluation: Evaluation, dag: DAG) -> bool:
    """Say what it waits for, with an alert; False when nothing is in its way."""
    if dag.unanswered_since is not None:
        silent = (clock.now() - dag.unanswered_since).total_seconds()
        evaluation.note(
            waiting_for=f"schedd {dag.schedd_name}, silent since {dag.unanswered_since:%H:%M:%S} UTC; that proves nothing"
        )
        if silent > conf().schedd_suspicion_seconds:
            says = dag.schedd.collector_says if dag.schedd is not None else ""
            told = f"schedd {dag.schedd_name} has been silent for {silent:.0f} s" + (f"; {says}" if says else "")
            alert(evaluation.request, "schedd_unreachable", told)
        return True
    if dag.observed.get("job_status") == JobStatus.HELD:
        why = dag.observed.get("hold_reason") or "no reason given"
        evaluation.note(waiting_for=f"an operator: DAGMan job {dag.dagman_cluster_id} is held in HTCondor: {why}"[:4000])
        alert(evaluation.request, "dagman_held", f"DAGMan job {dag.dagman_cluster_id} at {dag.schedd_name} is held: {why}")
        alert_over(evaluation, "schedd_unreachable", *_GONE)
        return True
    alert_over(evaluation, "schedd_unreachable", "dagman_held", *_GONE)
    return False
