"""The plain verbs: submit, abort, hold, priority, note, pins, production steps (spec 6.2.1), and several of them at once (PATCH).

Each is idempotent, has an actor and a reason, and only records intent.

Refused verbs raise InvalidTransition (409) and are audited too (docs/design/control.md, Audit). The others are ``stopping``
(stop, fail), ``release``, ``restart`` and ``invalidation``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction

from outputs_app.reconciliation.services import comparisons_ask
from outputs_app.selectors import datasets_told
from requests_app import states
from requests_app.feed import tell
from requests_app.models import AFTER_WORK, TERMINAL, HoldCode, Request, RequestStatus, StopIntent, Workflow
from requests_app.services.acting import acting, applies, give_up, may_run, stop_first, stopped_for
from requests_app.services.stopping import ended_follow_up
from requests_app.states import hold_changes
from requests_app.work.groups import related_move
from requests_app.work.ledger import ledger_of
from requests_app.work.overrides import PINS, check_pins, overrides_of
from requests_app.work.production_steps import share_done, steps_passed, steps_read, steps_refused
from requests_app.work.rounds import round_files_at_rest
from requests_app.work.spec import spec_of
from wms2.audit import audit
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
                for old in Request.objects.filter(superseded_by_request=request.request_name):
                    Request.objects.filter(pk=old.pk).update(superseded_by_request="")
                    related_move(request, old)
            states.transition(request, S.ABORTED, actor=actor, reason=reason)
            give_up(request, reason, files)
            ended_follow_up(request)


def abort_refused(request: Request) -> str:
    """Why it cannot be aborted; empty if it can."""
    if request.status == S.STOPPING:
        return stopped_for(request, StopIntent.ABORT)
    if states.allowed(request.status, S.ABORTED) or states.allowed(request.status, S.STOPPING):
        return ""
    told = f"It is {request.get_status_display()}; {'hold it first' if request.status in AFTER_WORK else 'it has ended'}."
    return Already(told) if request.status == S.ABORTED else told


def request_complete(*, request: Request, actor: str, reason: str) -> None:
    """Plan nothing more: it completes with what is done, once that is registered. A running DAG is stopped first.

    Raises:
        InvalidTransition: it has ended, or nothing of it is planned yet: then it is aborted instead.
    """
    files = round_files_at_rest(request)
    with acting(request, actor, "request_complete", reason):
        if not applies(request, complete_refused):
            return
        Request.objects.filter(pk=request.pk).update(complete_early=True)
        request.complete_early = True
        if request.status == S.HELD:
            give_up(request, reason, files)
            states.transition(request, S.QUEUED, actor=actor, reason=reason)
        elif may_run(request):
            states.transition(request, S.STOPPING, actor=actor, reason=reason, stop_intent=StopIntent.RESUME)


def complete_refused(request: Request) -> str:
    """Why it cannot complete with what is done; empty if it can."""
    if request.complete_early:
        return Already("It completes already with what is done.")
    if request.status in (*_OVER, S.NEW, S.SUBMITTED) or not Workflow.objects.filter(request=request).exists():
        return f"It is {request.get_status_display()}; it can complete early once it is queued."
    if request.status == S.STOPPING:
        intent = StopIntent(request.stop_intent)
        return "" if intent.goes_on or intent is StopIntent.HOLD else f"It is being stopped already: {intent.label.lower()}."
    return ""


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
            tell("request.note", request, notes=notes, actor=actor, reason=reason)


def request_compare(*, request: Request, actor: str, reason: str) -> None:
    """Have its output datasets compared with DBS and Rucio as soon as a worker has time.

    Raises:
        InvalidTransition: nothing of it was told there yet.
    """
    with acting(request, actor, "request_compare", reason):
        applies(request, compare_refused)
        comparisons_ask(datasets_told(request.pk))


def compare_refused(request: Request) -> str:
    """Why there is nothing to compare; empty if there is."""
    return "" if datasets_told(request.pk) else "None of its outputs was registered anywhere yet."


def request_set_steps(
    *, request: Request, steps: Sequence[Mapping[str, Any]], actor: str, reason: str, confirm: bool = False
) -> None:
    """Replace the steps that are still to come; an empty list takes them away.

    Args:
        confirm: a step that is passed already is meant: it stops the running DAG at once.

    Raises:
        InvalidTransition: a step is wrong, raises the priority, or is passed already and not confirmed; or the request is urgent
            or over.
    """
    wanted = steps_read(steps)
    with acting(request, actor, "request_set_steps", reason, steps=[step.model_dump() for step in wanted]):
        applies(request, priority_refused)
        workflow = Workflow.objects.filter(request=request).first()
        share = share_done(ledger_of(workflow, whole=False)) if workflow is not None else 0.0
        refused = steps_refused(wanted, priority=request.priority, urgent=request.urgent)
        if refused:
            raise InvalidTransition(f"production_steps: {refused}")
        if steps_passed(wanted, share) and not confirm:
            raise InvalidTransition(
                f"production_steps: {share:.1%} are done, so the step at {wanted[0].fraction:.1%} is passed already and would"
                " stop the DAG at once; send confirm if that is meant"
            )
        request.production_steps = [step.model_dump() for step in wanted]
        Request.objects.filter(pk=request.pk).update(production_steps=request.production_steps)


def request_pin(*, request: Request, actor: str, reason: str, **pins: int | list[str]) -> None:
    """Fix sizes of its rounds from the next one on, in place of those fixed before: what is left out is sized again.

    Raises:
        InvalidTransition: a pin is outside the window, the splitting does not read it, or the request is over.
    """
    with acting(request, actor, "request_pin", reason, **pins):
        applies(request, priority_refused)
        kept = {name: value for name, value in request.overrides.items() if name not in PINS}
        request.overrides = {**kept, **pins}
        workflow = Workflow.objects.filter(request=request).first()
        if workflow is not None:
            check_pins(overrides_of(request), spec_of(workflow))
        Request.objects.filter(pk=request.pk).update(overrides=request.overrides)


def request_set_retries(*, request: Request, actor: str, reason: str, effect_max_retry_seconds: int | None = None) -> None:
    """For how long its registrations are tried after their first failure; None: as configured. Also after its end."""
    _override(request, actor, "request_set_retries", reason, "effect_max_retry_seconds", effect_max_retry_seconds)


def request_set_pools(*, request: Request, actor: str, reason: str, pools: Sequence[str] = ()) -> None:
    """To which pools its DAGs may go from the next submission on; none: to all. What runs stays where it is."""
    _override(request, actor, "request_set_pools", reason, "pools", list(pools) or None)


def _override(request: Request, actor: str, action: str, reason: str, name: str, value: object) -> None:
    with acting(request, actor, action, reason, **({} if value is None else {name: value})):
        request.overrides = {other: kept for other, kept in request.overrides.items() if other != name}
        if value is not None:
            request.overrides[name] = value
        Request.objects.filter(pk=request.pk).update(overrides=request.overrides)


def request_set_adaptive(*, request: Request, adaptive: bool, actor: str, reason: str) -> None:
    """Let it go on in rounds that are sized by what was measured, or by its hints; from the next round on.

    Raises:
        InvalidTransition: the request is over.
    """
    with acting(request, actor, "request_set_adaptive", reason, adaptive=adaptive):
        applies(request, priority_refused)
        request.adaptive = adaptive
        Request.objects.filter(pk=request.pk).update(adaptive=adaptive)


def request_change(
    *,
    request: Request,
    actor: str,
    reason: str,
    submit: bool = False,
    priority: int | None = None,
    steps: Sequence[Mapping[str, Any]] | None = None,
    confirm: bool = False,
    adaptive: bool | None = None,
) -> None:
    """Submit it, change its priority, production steps or adaptive rounds, as asked; what is so already is left alone.

    Raises:
        InvalidTransition: one of them is refused; nothing was changed.
        StaleState: it changed meanwhile; nothing was changed.
    """
    told: dict[str, Any] = {"request": request, "actor": actor, "reason": reason}
    verbs: list[Callable[[], None]] = []
    if submit:
        verbs.append(partial(request_submit, **told))
    if priority is not None and priority != request.priority:
        verbs.append(partial(request_set_priority, priority=priority, **told))
    if steps is not None and list(steps) != request.production_steps:
        verbs.append(partial(request_set_steps, steps=steps, confirm=confirm, **told))
    if adaptive is not None and adaptive != request.adaptive:
        verbs.append(partial(request_set_adaptive, adaptive=adaptive, **told))
    if len(verbs) == 1:
        verbs[0]()
    elif verbs:
        _together(verbs, request.request_name, actor, reason)


def _together(verbs: Sequence[Callable[[], None]], name: str, actor: str, reason: str) -> None:
    try:
        with transaction.atomic():
            for verb in verbs:
                verb()
    except InvalidTransition as error:  # the refused verb's own entry went with the transaction
        audit(actor=actor, action="request_change", target=name, reason=reason, refused=True, why=str(error))
        raise
