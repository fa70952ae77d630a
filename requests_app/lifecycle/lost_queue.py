"""A DAG that does not get on for its schedd's sake: a silent schedd, a DAGMan on hold, a queue that is lost (ADR 0006).

The loss of a queue is suspected here, and carried out once an operator has confirmed it.

Carried out means: what the lost submission still does is fenced off, what it has done for certain is counted, the DAG ends, and
the request is held. Nothing here happens without an operator.
"""

from __future__ import annotations

from datetime import timedelta

from dags_app.models import DAG
from dags_app.services.lost_queue import dag_end_lost, dag_fence_off, dag_suspect, missing_sentence
from requests_app.alert_rows import AlertSubject
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from requests_app.models import HoldCode, RequestStatus, StopIntent
from requests_app.states import hold_changes
from requests_app.work.accounting import account_lost
from wms2.adapters.types import JobStatus
from wms2.conf import conf
from wms2.errors import LedgerViolation
from wms2.runtime import clock
from wms2.runtime.levels import stretched
from wms2.web.formatting import counted, exact

S = RequestStatus


def report_suspicion(evaluation: Evaluation, dag: DAG) -> bool:
    """Say that a DAG is suspected lost, with the evidence; False while it is not."""
    if not dag_suspect(dag):
        return False
    words = missing_sentence(dag)
    evaluation.note(waiting_for=f"an operator's confirmation that a DAG is lost: {words}")
    alert(evaluation.request, "queue_suspected", words)
    return True


def end_lost(evaluation: Evaluation, dag: DAG) -> None:
    """ACTIVE or PLANNING -> HELD, the DAG ended. Safe to repeat until the last transaction.

    Raises:
        LedgerViolation: the last sweep found one; the DAG is still there.
    """
    why, evidence = _why(dag), _swept(evaluation, dag)
    with evaluation.fenced():
        dag_end_lost(dag, why=why, evidence=evidence)
        evaluation.hold(HoldCode.QUEUE_LOST, why, {"dag": str(dag.pk), **evidence})


def end_lost_stopping(evaluation: Evaluation, dag: DAG) -> None:
    """STOPPING: the DAG ends, and the intent decides; one to go on becomes one to hold, since a person has to look first."""
    why = _why(dag)
    try:
        evidence = _swept(evaluation, dag)
    except LedgerViolation as error:
        alert(evaluation.request, "ledger_violation", str(error))
        hold_at_least(evaluation, HoldCode.LEDGER, str(error))
        evidence = {"ledger_violation": str(error)}
    with evaluation.fenced():
        dag_end_lost(dag, why=why, evidence=evidence)
        hold_at_least(evaluation, HoldCode.QUEUE_LOST, why)


def stop_fenced_off(evaluation: Evaluation, dag: DAG) -> None:
    """It was fenced off, and before its end was recorded it was in a queue again: what it still merges is refused and its halt
    file lets no unit begin, so it is removed and goes on under a fence of its own, as after a stop.
    """
    why = (
        f"DAGMan job {dag.dagman_cluster_id} is in the queue again after it had been fenced off as lost; it cannot go on as it is"
    )
    evaluation.transition(S.STOPPING, why, {"dag": str(dag.pk)}, stop_intent=StopIntent.RESUME)


def _swept(evaluation: Evaluation, dag: DAG) -> dict[str, object]:
    """First the fence, then the sweep: what is done by then counts, and nothing can become done later."""
    problem = dag_fence_off(dag, evaluation.fenced)
    counted = account_lost(evaluation, dag)
    return {"units_counted_last": counted, "confirmation": dag.lost_confirmation, "fence_problem": problem}


def _why(dag: DAG) -> str:
    word = dag.lost_confirmation
    job = f"DAGMan job {dag.dagman_cluster_id}" if dag.dagman_cluster_id else f"the submission with fence {dag.fence}"
    return f"{job} at {dag.schedd_name} is lost, confirmed by {word.get('actor')}: {word.get('reason')}"


def hold_at_least(evaluation: Evaluation, code: HoldCode, why: str) -> None:
    """A stop to go on becomes a stop to hold; a stronger one stays what it is."""
    if StopIntent(evaluation.request.stop_intent).goes_on:
        evaluation.note(stop_intent=StopIntent.HOLD, **hold_changes(code, why))


#: Alerts about a DAG that was not in its queue.
_GONE = ("queue_suspected", "outcome_unknown")


def report_obstacle(evaluation: Evaluation, dag: DAG) -> bool:
    """Say what it waits for, with an alert; False when nothing is in its way."""
    if dag.unanswered_since is not None:
        suspicious = dag.unanswered_since + timedelta(seconds=stretched(conf().schedd_suspicion_seconds))
        evaluation.note(
            waiting_for=f"schedd {dag.schedd_name}, silent since {dag.unanswered_since:%H:%M:%S} UTC; that proves nothing"
        )
        if clock.now() < suspicious:
            evaluation.again_at(suspicious)  # its answer wakes
        else:
            says = dag.schedd.collector_says if dag.schedd is not None else ""
            silent = f"schedd {dag.schedd_name} has been silent since {exact(dag.unanswered_since)}"
            what = f"{silent}; {says}" if says else silent
            alert(evaluation.request, "schedd_unreachable", what, AlertSubject(schedd=dag.schedd_name))
        return True
    if dag.observed.get("job_status") == JobStatus.HELD:
        why = dag.observed.get("hold_reason") or "no reason given"
        evaluation.note(waiting_for=f"an operator: DAGMan job {dag.dagman_cluster_id} is held in HTCondor: {why}")
        what = f"DAGMan job {dag.dagman_cluster_id} at {dag.schedd_name} is held: {why}"
        alert(evaluation.request, "dagman_held", what, AlertSubject(schedd=dag.schedd_name))
        alert_over(evaluation, "schedd_unreachable", *_GONE)
        return True
    alert_over(evaluation, "schedd_unreachable", *_GONE)
    if (held := dag.observed.get("units_held")) and dag.observed.get("job_status") == JobStatus.RUNNING:
        what = f"DAGMan jobs of {counted(len(held), 'work unit')} at {dag.schedd_name} are held, e.g. {held[0]}"
        alert(evaluation.request, "dagman_held", what, AlertSubject(schedd=dag.schedd_name))
    else:
        alert_over(evaluation, "dagman_held")
    return False
