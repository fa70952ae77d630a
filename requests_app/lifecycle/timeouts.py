"""Too long in one status: always an alert; SUBMITTED, PLANNING and RESUBMITTING are internal and held with the reason.

While work advances there is more time first, each time half as much, then a warning (ADR 0028). An extension is a line of the
request's history that leads from the status to itself. Until the first job of a DAG has begun another, shorter limit holds; that
of ACTIVE counts from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from dags_app.models import LIVE_DAG, Leftover, WorkUnit
from dags_app.selectors import dag_live
from dags_app.services.submit import maybe_submitted
from outputs_app.models import BlockValidation, Effect, EffectState
from requests_app.alerts import alert, alert_over
from requests_app.feed import emit_event
from requests_app.lease import ACTOR, Evaluation
from requests_app.lifecycle.planning import leave_planning
from requests_app.models import HoldCode, Request, RequestStatus, RequestTransition
from requests_app.services.common import live_dag_of
from requests_app.states import hold_changes
from requests_app.work.groups import PARENTS, SIBLINGS
from wms2.runtime import clock
from wms2.runtime.levels import stretched

S = RequestStatus
log = structlog.get_logger(__name__)
_DAY_SECONDS = 86_400
#: A request that is longer in one of these statuses is held with the last error as the reason.
HELD_AFTER_SECONDS = {S.SUBMITTED: 3600, S.PLANNING: 3600, S.RESUBMITTING: 600}
#: A request that is longer in one of these raises an alert and goes on.
ALERT_AFTER_SECONDS = {
    S.STOPPING: 3600,
    S.VALIDATING_OUTPUTS: _DAY_SECONDS,
    S.VALIDATED_OUTPUTS: 7 * _DAY_SECONDS,
    S.REMOVING_FILES: 3 * _DAY_SECONDS,
    S.CLEANING: _DAY_SECONDS,
}
#: The same, by a limit that operators may change.
ALERT_AFTER_LIMIT = {S.QUEUED: "timeout_queued_seconds", S.ACTIVE: "timeout_active_seconds"}
#: An ACTIVE request of whose DAG no job has begun for so long raises an alert, until one has.
DISPATCH_SECONDS = 2 * _DAY_SECONDS

#: What was done while a request is in one of these shows that it advances.
ADVANCING = (S.ACTIVE, S.STOPPING, S.VALIDATING_OUTPUTS, S.VALIDATED_OUTPUTS, S.REMOVING_FILES, S.CLEANING)
MOST_EXTENSIONS = 5


def more_seconds(base_seconds: float, extensions: Sequence[int], progress: int) -> float:
    """How much more time there is when a limit has passed: half of the last time, if more has been done than then. Pure.

    Args:
        extensions: what had been done at each extension so far.
        progress: what has been done by now.
    """
    if len(extensions) >= MOST_EXTENSIONS or progress <= (extensions[-1] if extensions else 0):
        return 0.0
    return float(base_seconds / 2 ** len(extensions))


def _timeout_seconds(evaluation: Evaluation, status: RequestStatus) -> float | None:
    """How long a request may be in a status before an alert or a hold; None where it may stay."""
    if status in ALERT_AFTER_LIMIT:
        return stretched(float(getattr(evaluation.limits(), ALERT_AFTER_LIMIT[status])))
    seconds = HELD_AFTER_SECONDS.get(status) or ALERT_AFTER_SECONDS.get(status)
    return None if seconds is None else stretched(float(seconds))


def watch_timeout(evaluation: Evaluation) -> None:
    """Runs after the handler, on the status the request has by then; comes back when its time is over."""
    request = evaluation.request
    status = S(request.status)
    limit = _timeout_seconds(evaluation, status)
    if limit is None or request.waiting_for.startswith((PARENTS, SIBLINGS)):
        return
    since = _begun_at(evaluation) if status is S.ACTIVE else request.status_since
    if since is None:
        return
    seconds = (clock.now() - since).total_seconds()
    if seconds <= limit:
        evaluation.again_at(since + timedelta(seconds=limit))
        return
    if status in ADVANCING and _extended(evaluation, limit):
        return
    if status in HELD_AFTER_SECONDS:
        last = request.waiting_for or request.last_error or "no error was recorded"  # that may be of a status before
        alert(request, f"stuck_{status.value}", f"{status.label} for {seconds:.0f} s: {last}")
        why = f"{status.label} for {seconds / 3600:.1f} h; last: {last}"
        if status is not S.PLANNING:
            evaluation.hold(HoldCode.TIMEOUT, why, {"seconds": seconds})
        elif (dag := dag_live(request.workflow.pk)) is None or not maybe_submitted(dag):
            # else a submission may have happened: only its proved outcome may end this
            leave_planning(evaluation, S.HELD, why, **hold_changes(HoldCode.TIMEOUT, why))
    else:
        alert(request, f"slow_{status.value}", f"{status.label} for {seconds / 86400:.1f} days; waits for: {request.waiting_for}")


def _extended(evaluation: Evaluation, limit: float) -> bool:
    """Whether there is more time: from an extension before, from one now, or until a warning is over."""
    request, now = evaluation.request, clock.now()
    same = {"from_status": request.status, "to_status": request.status}
    here = RequestTransition.objects.filter(request=request, **same)
    given = [row.evidence for row in here.filter(at__gte=request.status_since, evidence__has_key="until").order_by("id")]
    until = datetime.fromisoformat(given[-1]["until"]) if given else now
    if until > now:
        evaluation.again_at(until)
        return True
    if given and given[-1]["warned"]:
        return False
    progress = _done_since(request)
    granted = more_seconds(limit, [each["done"] for each in given], progress)
    if not granted and not given:
        return False
    until = now + timedelta(seconds=granted or limit / 2**MOST_EXTENSIONS)
    why = "work advances" if granted else "a warning: nothing more was done, or it was extended often enough"
    what = f"{why}; more time until {until:%Y-%m-%d %H:%M} UTC: {progress} steps done in this status"
    evidence = {"until": until.isoformat(), "done": progress, "warned": not granted, "extension": len(given) + 1}
    with evaluation.fenced():
        RequestTransition.objects.create(request=request, **same, actor=ACTOR, reason=what, evidence=evidence)
        emit_event("deadline.extended" if granted else "deadline.warned", request, **evidence)
    log.info("deadline extended" if granted else "deadline warned", why=what)
    evaluation.written.append(what)
    evaluation.again_at(until)
    return True


def _done_since(request: Request) -> int:
    """Work units, registrations, validated blocks and removed leftovers since the request came into its status."""
    since = request.status_since
    return (
        WorkUnit.objects.filter(workflow__request=request, done_at__gte=since).count()
        + Effect.objects.filter(request=request, state=EffectState.DONE, done_at__gte=since).count()
        + BlockValidation.objects.filter(block__workflow__request=request, validated_at__gte=since).count()
        + Leftover.objects.filter(unit__workflow__request=request, settled_at__gte=since).count()
    )


def _begun_at(evaluation: Evaluation) -> datetime | None:
    """Since when its DAG has jobs, or it is ACTIVE without one; None: no job has begun, which raises an alert when it lasts too
    long. That is over with the first one."""
    request, now, limit = evaluation.request, clock.now(), timedelta(seconds=stretched(DISPATCH_SECONDS))
    dag = evaluation.dag or live_dag_of(request)
    if dag is None or dag.status not in LIVE_DAG or dag.began_at is not None or dag.units_done:
        alert_over(evaluation, "slow_dispatch")
        return max(request.status_since, (dag and dag.began_at) or request.status_since)
    if now - request.status_since > limit:
        hours = (now - request.status_since).total_seconds() / 3600
        alert(request, "slow_dispatch", f"no job has begun for {hours:.1f} h; waits for: {request.waiting_for}")
    else:
        evaluation.again_at(request.status_since + limit)
    return None
