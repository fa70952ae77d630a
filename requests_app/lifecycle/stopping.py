"""STOPPING: removal is asked for until queue and history prove the DAG gone; then the intent decides.

See docs/design/model.md, Stop intents. A silent schedd proves nothing: the request stays and alerts. A DAG that had finished by
itself is credited first.
"""

from __future__ import annotations

from dags_app.models import DAG, IN_QUEUE, DAGStatus
from dags_app.selectors import dag_last, dag_live
from dags_app.services.dag_files import rescue_left, rescue_obstacle
from dags_app.services.lost_queue import dag_fenced_off
from dags_app.services.outcome import dag_outcome, dispute_note
from dags_app.services.stop import StopMode, dag_drain, dag_remove, dag_request_stop, dag_run_again
from dags_app.services.submit import dag_adopt, dag_record_submission, maybe_submitted, submission_unknown_seconds
from dags_app.states import dag_transition
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from requests_app.lifecycle.finish import nothing_more, validate_when_registered
from requests_app.lifecycle.lost_queue import end_lost_stopping, hold_at_least, report_obstacle
from requests_app.lifecycle.steps import step_evidence, step_taken
from requests_app.models import HoldCode, RequestStatus, StopIntent
from requests_app.services.cleaning import cleaning_follow_up
from requests_app.services.restart import successor_begin, successor_drop
from requests_app.services.stopping import ended_follow_up
from requests_app.work.accounting import account, account_final
from requests_app.work.exclusions import bad_input_read
from requests_app.work.ledger import ledger_of
from requests_app.work.rounds import dag_discard, round_close, round_open, units_abandoned
from wms2.conf import conf
from wms2.errors import LedgerViolation, ServiceRejected, ServiceUnavailable, StaleState
from wms2.runtime import clock
from wms2.web.formatting import counted

S = RequestStatus
#: Stops after which nothing goes on from a rescue file.
_GIVE_UP = (StopIntent.ABORT, StopIntent.FAIL, StopIntent.RESTART, StopIntent.CLEAN)


def handle_stopping(evaluation: Evaluation) -> None:
    """One step towards the intent."""
    dag = dag_live(evaluation.request.workflow.pk)
    try:
        if dag is None:
            _arrive(evaluation)
        elif dag.lost_confirmed_at is not None:
            end_lost_stopping(evaluation, dag)
            _arrive(evaluation)
        elif dag.status in IN_QUEUE:
            _stop_running(evaluation, dag)
        else:
            _stop_unsubmitted(evaluation, dag)
    except (ServiceUnavailable, ServiceRejected) as error:  # refused: e.g. our token may not remove this job
        evaluation.note(waiting_for=f"proof that the DAG is gone: {error}", last_error=str(error))
        alert(evaluation.request, "stop_unanswered", f"the stop cannot be proved: {error}")
    else:
        alert_over(evaluation, "stop_unanswered")


def _stop_running(evaluation: Evaluation, dag: DAG) -> None:
    goes_on = StopIntent(evaluation.request.stop_intent).goes_on
    mode = StopMode(dag.stop_mode) if dag.stop_mode and goes_on else StopMode.NOW
    dag_request_stop(dag=dag, reason=evaluation.request.get_stop_intent_display(), mode=mode)
    job = f"DAGMan job {dag.dagman_cluster_id}"
    if dag.missing_since is not None:
        _stop_gone(evaluation, dag)
    elif mode is StopMode.DRAIN:
        _drain(evaluation, dag)
    elif StopIntent(evaluation.request.stop_intent) not in _GIVE_UP and dag_run_again(dag=dag):
        evaluation.note(waiting_for=f"{job} to run again, so that its removal leaves a rescue file")
    else:
        dag_remove(dag=dag)
        evaluation.note(waiting_for=f"{job} to leave the queue")


def _stop_gone(evaluation: Evaluation, dag: DAG) -> None:
    """It left the queue: end it as the evidence says; a stop to go on whose end stays unproved becomes one to hold."""
    outcome = dag_outcome(dag)
    _credit(evaluation, dag, completed=outcome.status is DAGStatus.COMPLETED)
    recorded = {"why": outcome.why, "aborted": outcome.aborted, "unproved": outcome.unproved, **outcome.evidence}
    missing = clock.now() - (dag.missing_since or clock.now())
    if outcome.status is None and missing.total_seconds() < conf().submit_unknown_grace_seconds:
        with evaluation.fenced():
            dispute_note(dag, outcome)
        evaluation.note(waiting_for=f"evidence of how DAGMan job {dag.dagman_cluster_id} ended: {outcome.why}")
        return
    with evaluation.fenced():
        dag_transition(dag, outcome.status or DAGStatus.STOPPED, event="stopped", detail={"why": outcome.why}, outcome=recorded)
        if outcome.status is None:  # removed by us, and nothing says how it ended: its jobs may still run somewhere
            why = f"it is not proved how DAGMan job {dag.dagman_cluster_id} ended: {outcome.why}"
            hold_at_least(evaluation, HoldCode.OUTCOME_UNKNOWN, why)
        if outcome.aborted:  # 43 holds also while it is stopped (error-handling 3.2): the rest would abort again
            hold_at_least(evaluation, HoldCode.ABORT_CODE, f"the DAG aborted itself (code 43): {outcome.why}")
    _arrive(evaluation)


def _drain(evaluation: Evaluation, dag: DAG) -> None:
    """Work units that run finish and count; a violation among them raises an alert, and is found again when the DAG is gone."""
    try:
        if not dag_fenced_off(dag):  # else it is halted already
            dag_drain(dag=dag)
    except StaleState as error:
        evaluation.note(waiting_for=f"DAGMan job {dag.dagman_cluster_id} to end: it cannot be drained, {error}")
        return
    try:
        account(evaluation, dag)
    except LedgerViolation as error:
        alert(evaluation.request, "ledger_violation", str(error))
    if report_obstacle(evaluation, dag):
        return
    running = counted(dag.observed.get("units_running", 0), "running work unit")
    evaluation.note(waiting_for=f"{running} to finish; DAGMan job {dag.dagman_cluster_id} then ends by itself")


def _credit(evaluation: Evaluation, dag: DAG, *, completed: bool) -> None:
    """Final sweep. A ledger violation found here cannot stop a stop: it raises an alert, and one to go on becomes one to hold."""
    try:
        account_final(evaluation, dag, completed=completed)
    except LedgerViolation as error:
        alert(evaluation.request, "ledger_violation", str(error))
        hold_at_least(evaluation, HoldCode.LEDGER, str(error))


def _stop_unsubmitted(evaluation: Evaluation, dag: DAG) -> None:
    """READY: either it runs unrecorded (adopt it, then stop it), or its absence is proved (discard it)."""
    if maybe_submitted(dag):
        found = dag_adopt(dag=dag, fenced=evaluation.fenced)
        if found is not None:
            with evaluation.fenced():
                dag_record_submission(dag=dag, submitted=found)
            evaluation.note(waiting_for=f"DAGMan job {found.cluster}, found late, to be removed")
            return
        if submission_unknown_seconds(dag) > 0:
            evaluation.note(waiting_for=f"certainty that attempt {dag.attempt} was never submitted")
            return
    with evaluation.fenced():
        dag_discard(dag=dag, reason=evaluation.request.get_stop_intent_display())
    _arrive(evaluation)


def _arrive(evaluation: Evaluation) -> None:
    """No DAG is live: take the edge that the intent asks for."""
    request = evaluation.request
    intent = StopIntent(request.stop_intent)
    if intent is StopIntent.CLEAN:
        _end(evaluation, S.CLEANING, "to be cleaned; no DAG is left")
    elif intent is StopIntent.ABORT:
        _end(evaluation, S.ABORTED, "aborted; no DAG is left")
    elif intent in (StopIntent.FAIL, StopIntent.RESTART):
        _end(evaluation, S.FAILED, f"{intent.label.lower()}; no DAG is left")
    elif intent is StopIntent.HOLD:
        evaluation.hold(HoldCode(request.hold_code or HoldCode.OPERATOR), request.hold_reason or "held by a user")
    else:
        _resume(evaluation)


def _resume(evaluation: Evaluation) -> None:
    """With its rescue file it goes on where it stood; without one what is left is planned anew."""
    last = dag_last(evaluation.request.workflow.pk)
    why = "the DAG had finished by itself"
    if last is None:
        why = "no DAG had begun"
    elif last.status == DAGStatus.COMPLETED and nothing_more(evaluation):
        validate_when_registered(evaluation)
        if evaluation.request.status != S.STOPPING:
            return
    elif last.status != DAGStatus.COMPLETED:
        obstacle = rescue_obstacle(last, rescue_left(last))
        why = f"stopped; what is left is planned anew: {obstacle}" if obstacle else ""
    changes = step_taken(evaluation) if evaluation.request.stop_intent == StopIntent.STEP else {}
    if not why:
        evidence = step_evidence(evaluation.request, changes)
        evaluation.transition(S.RESUBMITTING, "stopped; the rescue file is there", evidence, **changes)
        return
    evidence = ledger_of(evaluation.request.workflow).as_dict() | step_evidence(evaluation.request, changes)
    evaluation.transition(S.QUEUED, why, evidence, **changes)


def _end(evaluation: Evaluation, to: RequestStatus, why: str) -> None:
    """What was not done is given up; registrations of what was done go on, unless it is cleaned. Only a restart begins the next
    version."""
    restarts = evaluation.request.stop_intent == StopIntent.RESTART
    round_ = round_open(evaluation.request.workflow)
    bad_input, abandoned = (bad_input_read(round_), units_abandoned(round_)) if round_ is not None else ({}, set())
    with evaluation.fenced():
        if round_ is not None:
            round_close(round_=round_, reason=why, bad_input=bad_input, abandoned=abandoned)
        evaluation.transition(to, why)
        (cleaning_follow_up if to is S.CLEANING else ended_follow_up)(evaluation.request)
        if restarts:
            successor_begin(evaluation.request)
        else:
            successor_drop(evaluation.request, f"{evaluation.request.request_name} was {to.label.lower()} instead of restarted")
