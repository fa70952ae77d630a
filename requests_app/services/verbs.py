"""The plain verbs: submit, abort, hold, priority. Each is idempotent, has an actor and a reason, and only records intent.

Refused verbs raise InvalidTransition (409) and are audited too (docs/design/control.md, Audit). The others are ``stopping``
(stop, fail), ``release``, ``restart`` and ``invalidation``.
"""

from __future__ import annotations

from requests_app import states
from requests_app.models import TERMINAL, Event, HoldCode, Request, RequestStatus, StopIntent
from requests_app.services.acting import acting, applies, give_up, stop_first, stopped_for
from requests_app.states import hold_changes
from requests_app.work.round_files import round_files_at_rest
from wms2.errors import InvalidTransition
from wms2.verbs import Already

S = RequestStatus
MAX_PRIORITY = 999_999
#: Ends after which a priority means nothing.
_OVER = (*TERMINAL, S.COMPLETED, S.CLEANING)


def request_submit(*, request: Request, actor: str, reason: str = "submitted by the requester") -> None:
    """NEW -> SUBMITTED.

    Raises:
        InvalidTransition: it is not new, or waits for the version that it replaces. (A held one has an edge to SUBMITTED too,
            but that is a release.)
    """
    with acting(request, actor, "request_submit", reason):
        applies(request, submit_refused)
        states.transition(request, S.SUBMITTED, actor=actor, reason=reason)


def submit_refused(request: Request) -> str:
    """Why it cannot be submitted; empty if it can."""
    if request.status != S.NEW:
        return f"It is {request.get_status_display()}; only a new request can be submitted."
    old = request.previous_version_request
    if old is not None and old.status != S.FAILED:
        return f"It replaces {old.request_name}, which is {old.get_status_display()}; it begins by itself when that has failed."
    return ""


def request_abort(*, request: Request, actor: str, reason: str) -> None:
    """End the request for good, at any moment. Done twice it is done once.

    Raises:
        InvalidTransition: it has ended otherwise.
    """
    files = round_files_at_rest(request)
    with acting(request, actor, "request_abort", reason):
        if not applies(request, abort_refused):
            return
        if not stop_first(request, StopIntent.ABORT, actor, reason):
            if request.status == S.NEW:  # one that would have replaced another and never began: that may be restarted again
                waiting = Request.objects.filter(superseded_by_request=request.request_name)
                waiting.update(superseded_by_request="")
            states.transition(request, S.ABORTED, actor=actor, reason=reason)
            give_up(request, reason, files)


def abort_refused(request: Request) -> str:
    """Why it cannot be aborted; empty if it can."""
    if request.status == S.STOPPING:
        return stopped_for(request, StopIntent.ABORT)
    if states.allowed(request.status, S.ABORTED) or states.allowed(request.status, S.STOPPING):
        return ""
    told = f"It is {request.get_status_display()}; it has ended."
    return Already(told) if request.status == S.ABORTED else told


def request_hold(*, request: Request, actor: str, reason: str) -> None:
    """Put the request aside; a running DAG is stopped cleanly first."""
    with acting(request, actor, "request_hold", reason):
        if not applies(request, hold_refused):
            return
        changes = hold_changes(HoldCode.OPERATOR, reason)
        if not stop_first(request, StopIntent.HOLD, actor, reason, **changes):
            states.transition(request, S.HELD, actor=actor, reason=reason, **changes)


def hold_refused(request: Request) -> str:
    """Why it cannot be held; empty if it can."""
    if request.status == S.HELD:
        return Already("It is held already.")
    if request.status == S.STOPPING:
        return stopped_for(request, StopIntent.HOLD)
    if states.allowed(request.status, S.HELD) or states.allowed(request.status, S.STOPPING):
        return ""
    return f"It is {request.get_status_display()}; that cannot be held."


def request_set_priority(*, request: Request, priority: int, actor: str, reason: str) -> None:
    """Change the admission priority; jobs in the queue get it within a cycle, a DAG at its next submission."""
    if not 0 <= priority <= MAX_PRIORITY:
        raise InvalidTransition(f"priority {priority} is not between 0 and {MAX_PRIORITY}")
    with acting(request, actor, "request_set_priority", f"{request.priority} -> {priority}: {reason}"):
        applies(request, priority_refused)
        Request.objects.filter(pk=request.pk).update(priority=priority)
        request.priority = priority


def priority_refused(request: Request) -> str:
    """Why a priority means nothing any more; empty if it does."""
    return f"It is {request.get_status_display()}; nothing more is planned." if request.status in _OVER else ""


def request_note(*, request: Request, notes: str, actor: str, reason: str) -> None:
    """Put an operator's remark in place of the one before; an empty one takes it away. Feed and audit keep them all."""
    with acting(request, actor, "request_note", reason, notes=notes):
        if notes != request.notes:
            Request.objects.filter(pk=request.pk).update(notes=notes)
            request.notes = notes
            Event.objects.create(request=request, kind="request.note", data={"notes": notes, "actor": actor, "reason": reason})
