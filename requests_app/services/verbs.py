"""What operators may do to a request. Each verb is idempotent, has an actor and a reason, and only records intent.

Refused verbs raise InvalidTransition (409) and are audited too (``control-plane.md``, Audit).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from dags_app.selectors import dag_live
from requests_app import states
from requests_app.audit import audit
from requests_app.models import Event, HoldCode, Request, RequestStatus, StopIntent, Workflow
from requests_app.rounds import round_close, round_open
from requests_app.states import hold_changes
from wms2.errors import InvalidTransition, StaleState
from wms2.nudge import EVALUATE_REQUEST, nudge

S = RequestStatus
#: Statuses in which a DAG may run or be on its way: verbs go through STOPPING.
_WITH_DAG = (S.PLANNING, S.ACTIVE)


@contextmanager
def _verb(request: Request, actor: str, action: str, reason: str) -> Iterator[None]:
    """Act on the request as it is now, its row locked; audit, refusals included; then a nudge."""
    old = request.status
    try:
        with transaction.atomic():
            # a planner that is about to record its DAG waits or has done so: what may run cannot change under the verb
            Request.objects.select_for_update().get(pk=request.pk)
            request.refresh_from_db()
            old = request.status
            yield
            audit(actor=actor, action=action, target=request.request_name, reason=reason, old=old, new=request.status)
            nudge(EVALUATE_REQUEST, str(request.pk))
    except InvalidTransition as error:
        audit(actor=actor, action=action, target=request.request_name, reason=reason, refused=True, status=old, why=str(error))
        raise


def request_submit(*, request: Request, actor: str, reason: str = "submitted by the requester") -> None:
    """NEW -> SUBMITTED.

    Raises:
        InvalidTransition: it is not new. (A held one has an edge to SUBMITTED too, but that is a release.)
    """
    with _verb(request, actor, "request_submit", reason):
        if request.status != S.NEW:
            raise InvalidTransition(
                f"{request.request_name} is {request.get_status_display()}, only a new request can be submitted"
            )
        states.transition(request, S.SUBMITTED, actor=actor, reason=reason)


def request_abort(*, request: Request, actor: str, reason: str) -> None:
    """End the request for good, at any moment. Done twice it is done once.

    Raises:
        InvalidTransition: it has ended otherwise.
    """
    with _verb(request, actor, "request_abort", reason):
        if request.status == S.ABORTED:
            return
        if request.status == S.STOPPING:
            _strengthen(request, StopIntent.ABORT, actor, reason)
        elif _may_run(request):
            states.transition(request, S.STOPPING, actor=actor, reason=reason, stop_intent=StopIntent.ABORT)
        else:
            states.transition(request, S.ABORTED, actor=actor, reason=reason)
            _give_up(request, reason)


def request_hold(*, request: Request, actor: str, reason: str) -> None:
    """Put the request aside; a running DAG is stopped cleanly first."""
    with _verb(request, actor, "request_hold", reason):
        if request.status == S.HELD:
            return
        changes = hold_changes(HoldCode.OPERATOR, reason)
        if request.status == S.STOPPING:
            _strengthen(request, StopIntent.HOLD, actor, reason)
        elif _may_run(request):
            states.transition(request, S.STOPPING, actor=actor, reason=reason, stop_intent=StopIntent.HOLD, **changes)
        else:
            states.transition(request, S.HELD, actor=actor, reason=reason, **changes)


def request_release(*, request: Request, actor: str, reason: str) -> None:
    """HELD -> QUEUED, or SUBMITTED when no workflow exists yet. Completed work stays.

    Raises:
        InvalidTransition: it is not held.
    """
    with _verb(request, actor, "request_release", reason):
        if request.status != S.HELD:
            raise InvalidTransition(
                f"{request.request_name} is {request.get_status_display()}, only a held request can be released"
            )
        ready = Workflow.objects.filter(request=request).exclude(input_dataset__gt="", input_imported_at__isnull=True).exists()
        to = S.QUEUED if ready else S.SUBMITTED
        states.transition(request, to, actor=actor, reason=reason, next_attempt_at=None, failed_attempts=0, last_error="")


def request_set_priority(*, request: Request, priority: int, actor: str, reason: str) -> None:
    """Change the admission priority; a running DAG gets it at its next submission."""
    if not 0 <= priority <= 999_999:
        raise InvalidTransition(f"priority {priority} is not between 0 and 999999")
    with _verb(request, actor, "request_set_priority", f"{request.priority} -> {priority}: {reason}"):
        Request.objects.filter(pk=request.pk).update(priority=priority)
        request.priority = priority


def _may_run(request: Request) -> bool:
    """Whether a DAG runs, or may run without our knowing it."""
    if request.status == S.ACTIVE:
        return True
    if request.status == S.PLANNING:
        workflow = Workflow.objects.filter(request=request).first()
        return workflow is not None and dag_live(workflow.pk) is not None
    return False


def _strengthen(request: Request, intent: StopIntent, actor: str, reason: str) -> None:
    """A later intent may only be stronger; a weaker one changes nothing."""
    if intent.strength <= StopIntent(request.stop_intent).strength:
        return
    changes: dict[str, Any] = {"stop_intent": intent}
    if intent is StopIntent.HOLD:
        changes |= hold_changes(HoldCode.OPERATOR, reason)
    if Request.objects.filter(pk=request.pk, status=S.STOPPING).update(**changes) != 1:
        raise StaleState(f"{request.request_name} is no longer stopping")
    Event.objects.create(request=request, kind="request.stop_intent", data={"to": intent, "actor": actor, "reason": reason})
    for name, value in changes.items():
        setattr(request, name, value)


def _give_up(request: Request, reason: str) -> None:
    workflow = Workflow.objects.filter(request=request).first()
    round_ = round_open(workflow) if workflow else None
    if round_ is not None:
        round_close(round_=round_, reason=reason)
