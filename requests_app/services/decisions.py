"""The plain operations: submit, abort, hold, priority, note, pins, production steps (spec 6.2.1), sites, validation (ADR
0019), and
several of them at once (PATCH).

Each is idempotent, has an actor and a reason, and only records intent.

Refused operations raise InvalidTransition (409) and are audited too (docs/design/control.md, Audit). The others are ``stopping``
(stop, fail), ``release``, ``restart`` and ``invalidation``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction

from outputs_app.checks.reconciliation.services import comparisons_ask
from outputs_app.checks.validation import validation_again, validation_process
from outputs_app.effects.invalidation import invalidation_asked
from outputs_app.models import ProcessingBlock
from outputs_app.selectors import datasets_reported
from requests_app import intake, states
from requests_app.feed import emit_event
from requests_app.limits import limits_now
from requests_app.models import (
    AFTER_WORK,
    DONE,
    TERMINAL,
    UNWANTED,
    HoldCode,
    ReqMgr2Request,
    Request,
    RequestStatus,
    StopIntent,
    Workflow,
)
from requests_app.services.common import (
    give_up,
    may_run,
    put,
    recorded_operation,
    rows_read,
    stop_first,
    stopped_for,
    workflow_known,
)
from requests_app.services.stopping import ended_follow_up
from requests_app.states import hold_changes
from requests_app.work.groups import related_move
from requests_app.work.ledger import Ledger, ledger_of
from requests_app.work.overrides import ERROR_LIMITS, PINS, THROTTLES, check_pins, overrides_of
from requests_app.work.production_steps import (
    of_steps,
    share_done,
    steps_passed,
    steps_read,
    steps_refused,
    steps_rounded_by,
    work_of_a_unit,
)
from requests_app.work.rounds import round_files_at_rest
from requests_app.work.spec import spec_of, spec_to_json
from sites_app.bans import LEFT, bans_left
from sites_app.models import Site
from sites_app.selectors import candidate_sites, known_site_names, sites_named
from sites_app.services import site_ban_by_operator, site_unban_by_operator
from wms2.actions import AlreadyDone, applies
from wms2.audit import audit
from wms2.errors import InvalidTransition
from wms2.runtime import clock

S = RequestStatus
MAX_PRIORITY = 999_999
_FOR_GOOD = timedelta(days=3650)
#: Before these nothing is validated yet; in between, what is not validated would be taken for lost, and made again.
_VALIDATED = (S.VALIDATING_OUTPUTS, S.WAITING_INTEGRITY, S.COMPLETED, S.FAILED, S.ABORTED)
#: Ends after which a priority means nothing.
_OVER = (*TERMINAL, S.COMPLETED, S.CLEANING)


def request_submit(*, request: Request, actor: str, reason: str = "submitted by the requester") -> None:
    """NEW -> SUBMITTED.

    Raises:
        InvalidTransition: it is not new, or waits for the version that it replaces. (A held one has an edge to SUBMITTED too,
            but that is a release.)
    """
    with recorded_operation(request, actor, "request_submit", reason):
        applies(request, submit_refused(request))
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
    """End the request for good, at any moment. Done twice it is done once."""
    files = round_files_at_rest(request)
    with recorded_operation(request, actor, "request_abort", reason):
        if not applies(request, abort_refused(request)):
            return
        if not stop_first(request, StopIntent.ABORT, actor, reason):
            if request.status == S.NEW:  # one that would have replaced another and never began: that may be restarted again
                for old in Request.objects.filter(superseded_by_request=request.request_name):
                    put(old, superseded_by_request="")
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
    why = f"It is {request.get_status_display()}; {'hold it first' if request.status in AFTER_WORK else 'it has ended'}."
    return AlreadyDone(why) if request.status == S.ABORTED else why


def request_complete(*, request: Request, actor: str, reason: str) -> None:
    """Plan nothing more: it completes with what is done, once that is registered. A running DAG is stopped first."""
    files = round_files_at_rest(request)
    with recorded_operation(request, actor, "request_complete", reason):
        if not applies(request, complete_refused(request)):
            return
        pause = {"next_attempt_at": None, "waiting_for": ""} if request.status == S.QUEUED else {}
        put(request, complete_early=True, **pause)
        if request.status == S.HELD:
            give_up(request, reason, files)
            states.transition(request, S.QUEUED, actor=actor, reason=reason)
        elif may_run(request):
            states.transition(request, S.STOPPING, actor=actor, reason=reason, stop_intent=StopIntent.RESUME)


def complete_refused(request: Request) -> str:
    """Why it cannot complete with what is done; empty if it can."""
    if request.complete_early:
        return AlreadyDone("It completes already with what is done.")
    if request.status in (*_OVER, S.NEW, S.SUBMITTED) or workflow_known(request) is None:
        return f"It is {request.get_status_display()}; it can complete early once it is queued."
    if request.status == S.STOPPING:
        intent = StopIntent(request.stop_intent)
        return "" if intent.goes_on or intent is StopIntent.HOLD else f"It is being stopped already: {intent.label.lower()}."
    return ""


def request_hold(*, request: Request, actor: str, reason: str, code: HoldCode = HoldCode.OPERATOR) -> None:
    """Put the request aside; a running DAG is stopped cleanly first."""
    with recorded_operation(request, actor, "request_hold", reason):
        if not applies(request, hold_refused(request)):
            return
        changes = hold_changes(code, reason)
        if not stop_first(request, StopIntent.HOLD, actor, reason, **changes):
            states.transition(request, S.HELD, actor=actor, reason=reason, **changes)


def hold_refused(request: Request) -> str:
    """Why it cannot be held; empty if it can."""
    if request.status == S.HELD:
        return AlreadyDone("It is held already.")
    if request.status == S.STOPPING:
        return stopped_for(request, StopIntent.HOLD)
    if states.allowed(request.status, S.HELD) or states.allowed(request.status, S.STOPPING):
        return ""
    return f"It is {request.get_status_display()}; that cannot be held."


def request_keep(*, request: Request, actor: str, reason: str) -> None:
    """Keep what it made although it was rejected in ReqMgr2 after it had completed here."""
    with recorded_operation(request, actor, "request_keep", reason):
        if applies(request, keep_refused(request)):
            ReqMgr2Request.objects.filter(request=request).update(over=True, problem="", compared_at=clock.now())


def keep_refused(request: Request) -> str:
    """Why there is nothing to decide; empty if there is."""
    row = getattr(request, "reqmgr2", None)
    if row is None or row.status not in UNWANTED or request.status not in DONE:
        return f"It is {request.get_status_display()}, and not rejected in ReqMgr2 since it completed; nothing is to be decided."
    return AlreadyDone("What it made is kept already.") if row.over else ""


def request_set_priority(*, request: Request, priority: int, actor: str, reason: str) -> None:
    """Change the admission priority; jobs in the queue get it within a cycle, a DAG at its next submission."""
    if not 0 <= priority <= MAX_PRIORITY:
        raise InvalidTransition(f"priority {priority} is not between 0 and {MAX_PRIORITY}")
    with recorded_operation(request, actor, "request_set_priority", f"{request.priority} -> {priority}: {reason}"):
        applies(request, priority_refused(request))
        put(request, priority=priority)


def priority_refused(request: Request) -> str:
    """Why a priority means nothing any more; empty if it does."""
    return f"It is {request.get_status_display()}; nothing more is planned." if request.status in _OVER else ""


def request_note(*, request: Request, notes: str, actor: str, reason: str) -> None:
    """Put an operator's remark in place of the one before; an empty one takes it away. Feed and audit keep them all."""
    with recorded_operation(request, actor, "request_note", reason, notes=notes):
        if notes != request.notes:
            put(request, notes=notes)
            emit_event("request.note", request, notes=notes, actor=actor, reason=reason)


def request_compare(*, request: Request, actor: str, reason: str) -> None:
    """Have its output datasets compared with DBS and Rucio as soon as a worker has time."""
    with recorded_operation(request, actor, "request_compare", reason):
        applies(request, compare_refused(request))
        comparisons_ask(datasets_reported(request.pk))


def compare_refused(request: Request) -> str:
    """Why there is nothing to compare; empty if there is."""
    blocks = rows_read(request).get("blocks")
    reported = datasets_reported(request.pk) if blocks is None else [block for block in blocks if block.first_file_at]
    return "" if reported else "None of its outputs was registered anywhere yet."


def request_set_steps(
    *, request: Request, steps: Sequence[Mapping[str, Any]], actor: str, reason: str, confirm: bool = False
) -> None:
    """Replace the steps that are still to come; an empty list takes them away. Those that whole work units will meet badly are
    warned of, as far as the size of units is known: of a generation, else from its first round on.

    Args:
        confirm: a step that is passed already is meant: it stops the running DAG at once.

    Raises:
        InvalidTransition: a step is wrong, raises the priority, or is passed already and not confirmed; or the request is urgent
            or over.
    """
    wanted = steps_read(steps)
    with recorded_operation(request, actor, "request_set_steps", reason, steps=[step.model_dump() for step in wanted]):
        applies(request, priority_refused(request))
        workflow = Workflow.objects.filter(request=request).first()
        ledger = ledger_of(workflow, whole=False) if workflow is not None else Ledger()
        share = share_done(ledger)
        refused = steps_refused(wanted, priority=request.priority, urgent=request.urgent)
        if refused:
            raise InvalidTransition(f"production_steps: {refused}")
        if steps_passed(wanted, share) and not confirm:
            raise InvalidTransition(
                f"production_steps: {share:.1%} are done, so the step at {wanted[0].fraction:.1%} is passed already and would"
                " stop the DAG at once; send confirm if that is meant"
            )
        unit = work_of_a_unit(workflow, ledger, limits_now().jobs_per_work_unit) if workflow is not None else 0
        rounded = steps_rounded_by(wanted, ledger, unit) if unit else []
        warnings = [text for text in request.warnings if text not in of_steps(request.warnings)]
        put(request, production_steps=[step.model_dump() for step in wanted], warnings=[*warnings, *rounded])


def request_pin(*, request: Request, actor: str, reason: str, **pins: int | list[str]) -> None:
    """Fix sizes of its rounds from the next one on, in place of those fixed before: what is left out is sized again.

    Raises:
        InvalidTransition: a pin is outside the window, the splitting does not read it, or the request is over.
    """
    with recorded_operation(request, actor, "request_pin", reason, **pins):
        applies(request, priority_refused(request))
        kept = {name: value for name, value in request.overrides.items() if name not in PINS}
        put(request, overrides={**kept, **pins})
        workflow = Workflow.objects.filter(request=request).first()
        if workflow is not None:
            check_pins(overrides_of(request), spec_of(workflow))


def request_set_retries(*, request: Request, actor: str, reason: str, effect_max_retry_seconds: int | None = None) -> None:
    """For how long its registrations are tried after their first failure; None: as configured. Also after its end."""
    _override(request, actor, "request_set_retries", reason, effect_max_retry_seconds=effect_max_retry_seconds)


def request_set_pools(*, request: Request, actor: str, reason: str, pools: Sequence[str] = ()) -> None:
    """To which pools its DAGs may go from the next submission on; none: to all. What runs stays where it is."""
    _override(request, actor, "request_set_pools", reason, priority_refused, pools=list(pools) or None)


def request_throttle(*, request: Request, actor: str, reason: str, **limits: int) -> None:
    """How many work units and jobs of it run at the same time at most, in place of what was said before (``THROTTLES``).

    Raises:
        InvalidTransition: the request is over.
    """
    wanted = {name: limits.get(name) for name in THROTTLES}
    _override(request, actor, "request_throttle", reason, priority_refused, **wanted)


def request_set_error_limits(*, request: Request, actor: str, reason: str, **limits: float) -> None:
    """How much of it may fail, and how often it is tried again, in place of what was said before (``ERROR_LIMITS``); what is left
    out is as configured. Also while it runs.

    Raises:
        InvalidTransition: the request is over.
    """
    wanted = {name: limits.get(name) for name in ERROR_LIMITS}
    _override(request, actor, "request_set_error_limits", reason, priority_refused, **wanted)


def _override(
    request: Request, actor: str, action: str, reason: str, refused: Callable[[Request], str] | None = None, **values: object
) -> None:
    wanted = {name: value for name, value in values.items() if value is not None}
    with recorded_operation(request, actor, action, reason, **wanted):
        if refused is not None:
            applies(request, refused(request))
        kept = {name: value for name, value in request.overrides.items() if name not in values}
        put(request, overrides={**kept, **wanted})


def request_set_adaptive(*, request: Request, adaptive: bool, actor: str, reason: str) -> None:
    """Let it go on in rounds that are sized by what was measured, or by its hints; from the next round on."""
    with recorded_operation(request, actor, "request_set_adaptive", reason, adaptive=adaptive):
        applies(request, priority_refused(request))
        put(request, adaptive=adaptive)


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
    common: dict[str, Any] = {"request": request, "actor": actor, "reason": reason}
    actions: list[Callable[[], None]] = []
    if submit:
        actions.append(partial(request_submit, **common))
    if priority is not None and priority != request.priority:
        actions.append(partial(request_set_priority, priority=priority, **common))
    if steps is not None and list(steps) != request.production_steps:
        actions.append(partial(request_set_steps, steps=steps, confirm=confirm, **common))
    if adaptive is not None and adaptive != request.adaptive:
        actions.append(partial(request_set_adaptive, adaptive=adaptive, **common))
    if len(actions) == 1:
        actions[0]()
    elif actions:
        _together(actions, request.request_name, actor, reason)


def _together(actions: Sequence[Callable[[], None]], name: str, actor: str, reason: str) -> None:
    try:
        with transaction.atomic():
            for action in actions:
                action()
    except InvalidTransition as error:  # the refused operation's own entry went with the transaction
        audit(actor=actor, action="request_change", target=name, reason=reason, refused=True, why=str(error))
        raise


def request_set_sites(
    *, request: Request, site_whitelist: Sequence[str], actor: str, reason: str, site_blacklist: Sequence[str] = ()
) -> None:
    """Replace the site lists. Further rounds are planned for them; a rescue avoids sites that are gone; running jobs go on.

    Raises:
        InvalidTransition: no site is left, one is unknown, or the request is over.
    """
    white, black = sorted(set(site_whitelist)), sorted(set(site_blacklist))
    with recorded_operation(request, actor, "request_set_sites", reason, site_whitelist=white, site_blacklist=black):
        applies(request, priority_refused(request))
        if not set(white) - set(black):
            raise InvalidTransition("the site lists leave no site")
        if known_site_names():
            sites_named(white, "site_whitelist")
            sites_named(black, "site_blacklist")
        document = intake.with_fields(request.request_data, SiteWhitelist=white, SiteBlacklist=black)
        put(request, request_data=document, prepared=None)
        workflow = Workflow.objects.filter(request=request).first()
        if workflow is not None:
            before = candidate_sites(workflow)
            spec = replace(spec_of(workflow), site_whitelist=tuple(white), site_blacklist=tuple(black))
            workflow.spec = spec_to_json(spec)
            workflow.save(update_fields=["spec"])
            _bans(workflow, before - candidate_sites(workflow), candidate_sites(workflow) - before, actor, reason)


def _bans(workflow: Workflow, gone: frozenset[str], back: frozenset[str], actor: str, reason: str) -> None:
    """The files of a DAG are fixed; what its rescue avoids is not."""
    until, why = clock.now() + _FOR_GOOD, f"{LEFT}: {reason}"
    for site in Site.objects.filter(name__in=gone):
        site_ban_by_operator(site=site, actor=actor, reason=why, workflow=workflow, expires_at=until, insist=True)
    for ban in bans_left(workflow.pk).filter(site_id__in=back).select_related("site"):
        site_unban_by_operator(site=ban.site, actor=actor, reason=reason, workflow=workflow, ban_id=ban.pk)


def request_validate(*, request: Request, actor: str, reason: str, every_checksum: bool = False) -> None:
    """Validate all its blocks again."""
    with recorded_operation(request, actor, "request_validate", reason, every_checksum=every_checksum):
        applies(request, validate_refused(request))
        _again(request, ProcessingBlock.objects.filter(workflow=request.workflow).values_list("pk", flat=True), every_checksum)


def block_validate(*, block: ProcessingBlock, actor: str, reason: str, every_checksum: bool = False) -> None:
    """Validate one block again."""
    request = block.workflow.request
    with recorded_operation(request, actor, "block_validate", reason, block=block.dbs_block_name, every_checksum=every_checksum):
        applies(request, validate_refused(request))
        _again(request, [block.pk], every_checksum)


def _again(request: Request, block_ids: Collection[Any], every_checksum: bool) -> None:
    validation_again(block_ids, every_checksum=every_checksum)
    validation_process(workflow_id=request.workflow.pk, request_id=request.pk, request_epoch=request.epoch)


def validate_refused(request: Request) -> str:
    """Why its blocks cannot be validated again now; empty if they can."""
    if request.status not in _VALIDATED:
        return f"It is {request.get_status_display()}; only when validating, completed, failed or aborted."
    taken_back = invalidation_asked(request_id=request.pk, request_epoch=request.epoch)
    return "Its outputs are being taken back, or have been." if taken_back else ""
