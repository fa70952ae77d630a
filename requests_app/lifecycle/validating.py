"""After the last job: outputs validated, counted again from the catalogue, what is left removed (docs/design/model.md, After the
last job; ADR 0020).

Nothing of a request runs here, and none fails by itself: what is not as it should be waits and says for what. Unmerged files stay
until the outputs are validated (``UNMERGED_FROZEN``); only then the datasets become VALID in DBS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, F, Q

from dags_app.models import Leftover, WorkUnit, WorkUnitState
from outputs_app.checks.validation import ValidationProgress, events_in_catalogue, validation_process
from outputs_app.models import OPEN_CASE, OPEN_EFFECT, Effect, EffectKind, EffectState, FindingKind, IntegrityCase
from outputs_app.services import datasets_publish
from requests_app.alerts import alert, alert_over
from requests_app.feed import emit_event
from requests_app.harvesting.jobs import harvest_ask
from requests_app.lease import Evaluation
from requests_app.lifecycle.cleaner import rounds_unneeded
from requests_app.lifecycle.finish import registrations
from requests_app.models import UNWANTED, HoldCode, ReqMgr2Request, Request, RequestStatus, Round, Workflow
from requests_app.services.invalidation import previous_superseded
from requests_app.work.cutting import cases_settle
from requests_app.work.groups import siblings_missing
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from requests_app.work.recount import Counted, events_more, recount
from requests_app.work.remaining import events_most
from requests_app.work.replaced_inputs import inputs_replaced
from requests_app.work.spec import spec_of
from wms2.conf import conf
from wms2.errors import LedgerViolation
from wms2.runtime import clock
from wms2.runtime.in_force import in_force
from wms2.runtime.notify import REMOVE_LEFTOVERS, RUN_EFFECTS, notify
from wms2.web.formatting import counted as number_of

#: A request whose last round has a larger share of failed work units is not extended by itself.
_EXTEND_MOST_FAILED = 0.5
#: While more requests are queued, none is extended.
_EXTEND_MOST_QUEUED = 1000

S = RequestStatus
#: Between two looks at whether an extension may go on.
CHECK_AGAIN_SECONDS = 300.0
SIBLINGS_SECONDS = 3600.0


def handle_validating(evaluation: Evaluation) -> None:
    """Until every block is validated, or a file needs an operator."""
    with evaluation.fenced():
        progress = _process(evaluation)
        if progress.open_cases:
            why = f"{number_of(progress.open_cases, 'integrity case')} open"
            evaluation.transition(S.WAITING_INTEGRITY, why, _evidence(progress))
        elif progress.done:
            why = f"{number_of(progress.blocks, 'block')} with {number_of(progress.files, 'file')} validated"
            evaluation.transition(S.VALIDATED_OUTPUTS, why, _evidence(progress))
        else:
            evaluation.note(waiting_for=_progress_words(progress))


def handle_waiting_integrity(evaluation: Evaluation) -> None:
    """Cases are settled as operators decide; blocks without any go on being validated. It never fails by itself."""
    request = evaluation.request
    try:
        still_open = cases_settle(evaluation)
    except LedgerViolation as error:
        evaluation.hold(HoldCode.LEDGER, str(error))
        return
    if not still_open:
        if not request.complete_early and not inputs_replaced(evaluation):
            return  # here, where further files that were lost can still be taken in
        evaluation.transition(S.VALIDATING_OUTPUTS, "no integrity case is open any more", {"at": clock.now().isoformat()})
        return
    with evaluation.fenced():
        progress = _progress_words(_process(evaluation))
        rows = IntegrityCase.objects.filter(request=request, state__in=OPEN_CASE).order_by("site", "prognosis")
        kinds = rows.values_list("site", "prognosis").annotate(number=Count("pk"))
        cases = (f"{number} {FindingKind(kind).label}{f' at {site}' if site else ''}" for site, kind, number in kinds)
        evaluation.note(waiting_for=f"its integrity cases: {', '.join(cases)}; {progress}")


def _process(evaluation: Evaluation) -> ValidationProgress:
    request = evaluation.request
    return validation_process(workflow_id=request.workflow.pk, request_id=request.pk, request_epoch=request.epoch)


def _evidence(progress: ValidationProgress) -> dict[str, Any]:
    return progress._asdict() | {"at": clock.now().isoformat()}


def _progress_words(progress: ValidationProgress) -> str:
    done = f"{progress.validated} of {number_of(progress.blocks, 'block')} validated"
    return f"{done}; {progress.waiting_for}" if progress.waiting_for else done


# --- counted again


def handle_validated(evaluation: Evaluation) -> None:
    """Work that was taken back is planned again; then the catalogue says whether it is enough."""
    request = evaluation.request
    if not request.complete_early and not inputs_replaced(evaluation):
        return
    try:
        ledger = ledger_check(ledger_of(request.workflow, whole=False))
    except LedgerViolation as error:
        evaluation.hold(HoldCode.LEDGER, str(error))
        return
    evidence: dict[str, Any] = {"ledger": ledger.as_dict(), "at": clock.now().isoformat()}
    if ledger.work_left and not request.complete_early:
        evaluation.transition(S.QUEUED, f"work was taken back, it is planned again: {ledger.summary()}", evidence)
        return
    counted = recount(request, events_in_catalogue(request.workflow.pk))
    evidence["datasets"] = [each.as_dict() for each in counted]
    short = [each for each in counted if each.short]
    if short and not request.complete_early:
        _extend(evaluation, ledger, short, evidence)
        return
    alert_over(evaluation, "extension_waits")
    with evaluation.fenced():
        if ledger_of(request.workflow, whole=False).work_left and not request.complete_early:
            evaluation.again_in(0)  # input files were let in again just now
            return
        if missing := siblings_missing(request):
            evaluation.note(waiting_for=missing)
            evaluation.again_in(SIBLINGS_SECONDS)  # outputs of one that has ended may be taken back, which wakes none
            return
        why = "as asked, with what is done" if short else "enough events are in DBS"
        evaluation.transition(S.REMOVING_FILES, why, evidence)


def _extend(evaluation: Evaluation, ledger: Ledger, short: Sequence[Counted], evidence: dict[str, Any]) -> None:
    """Further events are generated, as many as are short and no more; else it is held, or waits until that makes sense."""
    request, workflow = evaluation.request, evaluation.request.workflow
    found, obstacle = f"DBS has {', '.join(map(str, short))}", ""
    generation, made = spec_of(workflow).generation, ledger.made_events
    more = events_more(short, ledger.done_events)
    if generation is None:
        obstacle = "all its input is done"
    elif more is None:
        obstacle = "nothing says how many would make up for it"
    elif request.derived_by:
        obstacle = f"it is not extended, {request.derived_by} does what it has not used: complete it early"
    elif made + more > (most := events_most(generation)):
        obstacle = f"{more} more would have to be generated, {made} were planned, at most {most} may be"
    if obstacle or more is None:
        evaluation.hold(HoldCode.SHORT, f"{found}; {obstacle}", evidence)
        return
    if obstacle := _not_now(workflow):
        evaluation.note(waiting_for=f"better times to generate {more} more events: {obstacle}; {found}")
        alert(request, "extension_waits", f"{found}; {more} more are to be generated: {obstacle}")
        evaluation.again_in(CHECK_AGAIN_SECONDS)
        return
    extension = {"events": more, "before": workflow.requested_events, "after": workflow.requested_events + more}
    with evaluation.fenced():
        Workflow.objects.filter(pk=workflow.pk).update(requested_events=F("requested_events") + more)
        emit_event("request.extended", request, **extension, why=found)
        evaluation.transition(S.QUEUED, f"{found}; extended by {more} events to generate", evidence | {"extension": extension})


def _not_now(workflow: Workflow) -> str:
    """Why nothing should be extended now; empty if it may be."""
    units = WorkUnit.objects.filter(round=Round.objects.filter(workflow=workflow).order_by("-index").first())
    failed, total = units.filter(state=WorkUnitState.FAILED).count(), units.count()
    if total and failed / total > _EXTEND_MOST_FAILED:
        return f"{failed} of {total} work units of its last round failed, at most {_EXTEND_MOST_FAILED:.0%} may have"
    queued = Request.objects.filter(status=S.QUEUED).count()
    return f"{queued} requests are queued, at most {_EXTEND_MOST_QUEUED} may be" if queued > _EXTEND_MOST_QUEUED else ""


# --- removed


def handle_removing(evaluation: Evaluation) -> None:
    """The datasets become VALID, and what its work units left is removed; for what stays there is an alert, not a delay."""
    request, workflow, now = evaluation.request, evaluation.request.workflow, clock.now()
    waits: list[str] = []
    with evaluation.fenced():
        publishes = not _valid_when_announced(request)
        if publishes and not datasets_publish(request_id=request.pk, request_epoch=request.epoch, workflow_id=workflow.pk):
            open_effects = Effect.objects.filter(request=request, kind=EffectKind.DBS_VALID, state__in=OPEN_EFFECT)
            waits.append(registrations(open_effects))
            notify(RUN_EFFECTS)
    units = Leftover.objects.filter(unit__workflow=workflow)
    left, stays = units.filter(settled_at__isnull=True), ""
    if not conf().cleaner_enabled:
        stays = "the cleaner is off"
    else:
        given_up = left.filter(Q(site__in=conf().cleaner_off_sites) | Q(tries__gte=in_force().removal_tries), job=None)
        waiting = left.exclude(pk__in=given_up.values("pk")).count()
        left.filter(tries=0, job=None, next_try_at__gt=now).update(next_try_at=now)
        rounds = rounds_unneeded(now).filter(workflow=workflow, leftovers_at__isnull=True).count()
        if rounds or waiting:
            notify(REMOVE_LEFTOVERS)
            whose = number_of(rounds, "round") if rounds else number_of(waiting, "work unit")
            waits.append(f"the removal of what {whose} left")
        first = given_up.order_by("site", "id").first()
        if first is not None:
            units_ = number_of(given_up.count(), "work unit")
            stays = f"{units_}, e.g. at {first.site}: {first.problem or 'nothing is removed there'}"
    if waits:
        evaluation.note(waiting_for="; ".join(waits))
        return
    _complete(evaluation, {"removed_files": sum(units.values_list("removed_files", flat=True)), "left": left.count()}, stays)


def _valid_when_announced(request: Request) -> bool:
    """Whether announcing the request in ReqMgr2 makes its datasets VALID, as for WMCore's; others are not announced."""
    if conf().datasets_valid_at == "completion":
        return False
    there = ReqMgr2Request.objects.filter(request=request).exclude(name=None).exclude(status__in=UNWANTED)
    return conf().reqmgr2_report and there.exists()


def _complete(evaluation: Evaluation, removed: dict[str, Any], stays: str) -> None:
    request, now = evaluation.request, clock.now()
    discarded = Effect.objects.filter(request=request, kind=EffectKind.DBS_VALID, state=EffectState.DISCARDED).count()
    evidence = {**removed, "stays": stays, "at": now.isoformat(), "datasets_given_up": discarded}
    with evaluation.fenced():
        evaluation.transition(S.COMPLETED, f"files stay: {stays}" if stays else "what it left is removed", evidence)
        previous_superseded(request)
        harvest_ask(request)
        if not stays:
            Workflow.objects.filter(pk=request.workflow.pk).update(inputs_removed_at=now)
        elif conf().cleaner_enabled:
            alert(request, "leftovers_stay", f"not removed: {stays}")
