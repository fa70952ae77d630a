"""Too long in one status: always an alert; SUBMITTED, PLANNING and RESUBMITTING are internal and held with the reason."""

from __future__ import annotations

from datetime import timedelta

from dags_app.selectors import dag_live
from requests_app.alerts import alert
from requests_app.lease import Evaluation
from requests_app.lifecycle.planning import leave_planning
from requests_app.limits import CHANGEABLE, limit_int
from requests_app.models import HoldCode, RequestStatus
from requests_app.states import hold_changes
from requests_app.work.groups import PARENTS, SIBLINGS
from wms2 import clock
from wms2.conf import conf
from wms2.levels import stretched

S = RequestStatus
HELD_AFTER = {
    S.SUBMITTED: "timeout_submitted_seconds",
    S.PLANNING: "timeout_planning_seconds",
    S.RESUBMITTING: "timeout_resubmitting_seconds",
}
ALERT_AFTER = {
    S.QUEUED: "timeout_queued_seconds",
    S.ACTIVE: "timeout_active_seconds",
    S.STOPPING: "timeout_stopping_seconds",
    S.VALIDATING_OUTPUTS: "timeout_validating_seconds",
    S.VALIDATED_OUTPUTS: "timeout_validated_seconds",
    S.REMOVING_FILES: "timeout_removing_seconds",
    S.CLEANING: "timeout_cleaning_seconds",
}


def _timeout_seconds(status: RequestStatus) -> float | None:
    """How long a request may be in a status before that is told or ends it; None where it may stay."""
    name = HELD_AFTER.get(status) or ALERT_AFTER.get(status)
    if name is None:
        return None
    return stretched(float(limit_int(name) if name in CHANGEABLE else getattr(conf(), name)))


def watch_timeout(evaluation: Evaluation) -> None:
    """Runs after the handler, on the status the request has by then; comes back when its time is over."""
    request = evaluation.request
    status = S(request.status)
    seconds = (clock.now() - request.status_since).total_seconds()
    limit = _timeout_seconds(status)
    if limit is None or request.waiting_for.startswith((PARENTS, SIBLINGS)):
        return
    if seconds <= limit:
        evaluation.again_at(request.status_since + timedelta(seconds=limit))
        return
    if status in HELD_AFTER:
        alert(
            request, f"stuck_{status.value}", f"{status.label} for {seconds:.0f} s: {request.last_error or request.waiting_for}"
        )
        last = request.last_error or request.waiting_for or "no error was recorded"
        why = f"{status.label} for {seconds / 3600:.1f} h; last: {last}"
        if status is not S.PLANNING:
            evaluation.transition(S.HELD, why, {"seconds": seconds}, **hold_changes(HoldCode.TIMEOUT, why))
        elif not _intent_open(evaluation):  # else a submission may have happened: only its proved outcome may end this
            leave_planning(evaluation, S.HELD, why, **hold_changes(HoldCode.TIMEOUT, why))
    else:
        alert(request, f"slow_{status.value}", f"{status.label} for {seconds / 86400:.1f} days; waits for: {request.waiting_for}")


def _intent_open(evaluation: Evaluation) -> bool:
    dag = dag_live(evaluation.request.workflow.pk)
    return dag is not None and dag.submit_intent_at is not None
