"""After a round: the next one, a rescue, a hold, new input, or validation (docs/design/model.md, Request statuses).

PARTIAL is rescued below the threshold, otherwise held (error-handling 3.2); FAILED is never set here. A request with
``OpenRunningTimeout`` takes new files of its dataset until none has come for that long (spec 4.3): DBS is asked at most every
``input_reread_seconds``, and once more when the time is over. What DAGMan has done for a held request is still accounted for.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import QuerySet

from dags_app.models import WorkUnit, WorkUnitState
from dags_app.planning.specs import InputSpec
from dags_app.selectors import dag_last
from dags_app.services.failures import failure_summary
from outputs_app.blocks.filling import blocks_register_sealed, blocks_seal_all
from outputs_app.models import OPEN_EFFECT, REPORTS, BlockStatus, Effect, EffectState, ProcessingBlock
from outputs_app.selectors import STUCK
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from requests_app.lifecycle.missing import hold_over_exclusions, wait_for_locations
from requests_app.lifecycle.steps import step_evidence, step_taken
from requests_app.limits import limits_now
from requests_app.models import HoldCode, InputFile, InputLumis, LumiFate, RequestStatus, Round, Workflow
from requests_app.selectors.account import stored_ledger
from requests_app.work.accounting import account_again
from requests_app.work.exclusions import bad_input_read
from requests_app.work.input_reading import input_open, inputs_reread
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from requests_app.work.overrides import limits_of
from requests_app.work.replaced_inputs import inputs_replaced
from requests_app.work.rounds import failure_rescues, round_close, round_open
from wms2.conf import conf
from wms2.errors import LedgerViolation, ServiceError, ServiceRejected, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.notify import RUN_EFFECTS, notify
from wms2.web.formatting import counted

S = RequestStatus
log = structlog.get_logger(__name__)


def finish(evaluation: Evaluation) -> None:
    """No DAG is live: close the round, plan again if work is left or the input has grown, wait while the input may still grow,
    otherwise have the outputs validated once everything is registered.

    Raises:
        LedgerViolation: the numbers do not add up.
    """
    request = evaluation.request
    workflow = request.workflow
    account_again(evaluation)
    waiting = WorkUnit.objects.filter(workflow=workflow, state=WorkUnitState.DONE_UNACCOUNTED).order_by("index")
    if waiting.exists():
        evaluation.again_next_cycle()
        first = f"e.g. {waiting[0].name}: {waiting[0].problem}"
        evaluation.note(waiting_for=f"{waiting.count()} work units done but unaccounted, {first}")
        return
    round_ = round_open(workflow)
    if round_ is not None:
        _refuse_forgotten_units(round_)
        bad_input = bad_input_read(round_)
        with evaluation.fenced():
            round_close(round_=round_, reason="the DAG has ended", bad_input=bad_input)
    was_open = input_open(workflow) is not None  # as it was for planning
    if not request.complete_early and not inputs_replaced(evaluation):
        return
    workflow.refresh_from_db(fields=["input_closed_at"])  # a flush does not wait for this evaluation
    new_files, problem = check_input(evaluation)
    ledger = _ledger(evaluation, changed=round_ is not None or new_files > 0)
    if ledger.work_left and not request.complete_early:
        closed_now = was_open and input_open(workflow) is None
        if request.status == S.PLANNING and not new_files and not closed_now:
            if wait_for_locations(evaluation) or wait_for_input(evaluation, problem):
                return
            why = f"work is left that cannot be planned: {ledger.summary()}"
            evaluation.hold(HoldCode.SHORT, why, _evidence(workflow))
        else:
            step = step_taken(evaluation)  # here it costs no submission
            evidence = _evidence(workflow) | step_evidence(request, step)
            evaluation.transition(S.QUEUED, f"round closed, work left: {ledger.summary()}", evidence, **step)
        return
    if not request.complete_early and wait_for_input(evaluation, problem):
        return
    if workflow.input_imported_at is not None and not ledger.work_done and not request.complete_early:
        why = f"nothing of the input can be processed: {ledger.summary()}; {_first_reason(workflow)}"
        evaluation.hold(HoldCode.REFUSED, why, _evidence(workflow))
        return
    with evaluation.fenced():
        blocks_seal_all(workflow_id=workflow.pk)
        blocks_register_sealed(workflow_id=workflow.pk, request_id=request.pk, request_epoch=request.epoch)
        notify(RUN_EFFECTS)
    evaluation.blocks = None  # they have changed
    validate_when_registered(evaluation)


def _ledger(evaluation: Evaluation, *, changed: bool) -> Ledger:
    """Counted; but while an ACTIVE request waits for its registrations, what was counted stands for as long as it is so."""
    request = evaluation.request
    if request.status == S.ACTIVE and not changed:
        stored, present = stored_ledger(request, request.workflow)
        if present:
            return stored
    return ledger_check(ledger_of(request.workflow, whole=False))


def _evidence(workflow: Workflow) -> dict[str, object]:
    return ledger_of(workflow).as_dict()


def _first_reason(workflow: Workflow) -> str:
    refused = InputLumis.objects.filter(workflow=workflow, fate=LumiFate.REFUSED).order_by("id").first()
    if refused is not None:
        return f"e.g. run {refused.run} lumi {refused.span.lower}: {refused.reason}"
    file = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=False).order_by("lfn").first()
    return f"e.g. {file.lfn}: {file.excluded_reason}" if file is not None else "the dataset has no valid file"


def _refuse_forgotten_units(round_: Round) -> None:
    """A DAG that completed leaves no unit open; closing the round over one would make its work twice."""
    forgotten = WorkUnit.objects.filter(round=round_, state=WorkUnitState.PLANNED)
    if forgotten.exists():
        raise LedgerViolation(
            f"the DAG has completed, but {forgotten.count()} work units are still planned, e.g. {forgotten[0].name}"
        )


def nothing_more(evaluation: Evaluation) -> bool:
    """Whether all its rounds are accounted and closed, and neither work is left nor input to come."""
    workflow = evaluation.request.workflow
    if round_open(workflow) is not None or input_open(workflow) is not None:
        return False
    return not ledger_of(workflow, whole=False).work_left or evaluation.request.complete_early


def validate_when_registered(evaluation: Evaluation) -> None:
    """No work is left and no round is open: on to validation, or say what of its registrations is waited for."""
    request = evaluation.request
    open_effects = Effect.objects.filter(request=request, state__in=OPEN_EFFECT).exclude(kind__in=REPORTS)
    # alerted on already (``alerts.alert_stuck_effects``)
    stuck = open_effects.filter(state__in=STUCK, epoch=request.epoch).order_by("id").first()
    if stuck is not None:
        evaluation.note(waiting_for=f"an operator: {stuck.get_kind_display()} was {stuck.state}: {stuck.last_error}")
        return
    if open_effects.exists():
        evaluation.note(waiting_for=registrations(open_effects))
        return
    blocks = ProcessingBlock.objects.filter(workflow=request.workflow)
    unfinished = blocks.exclude(status__in=(BlockStatus.ARCHIVED, BlockStatus.GIVEN_UP))
    if unfinished.exists():
        many, one = counted(unfinished.count(), "block"), unfinished[0]
        evaluation.note(waiting_for=f"{many} to be archived, e.g. {one.dbs_block_name}: {one.status}")
        return
    if not request.complete_early and hold_over_exclusions(evaluation):
        return
    why, evidence = "all work done,", {**_evidence(request.workflow), "blocks": blocks.count()}
    gone = Effect.objects.filter(request=request, state=EffectState.DISCARDED, epoch=request.epoch)
    discarded = gone.exclude(kind__in=REPORTS).count()
    if discarded:
        lost = evidence["blocks_given_up"] = blocks.filter(status=BlockStatus.GIVEN_UP).count()
        evidence["registrations_discarded"] = discarded
        why = f"all work done; {counted(lost, 'block')} and {counted(discarded, 'registration')} given up by operators, the rest"
    with evaluation.fenced():
        if ledger_of(request.workflow, whole=False).work_left and not request.complete_early:
            evaluation.note(waiting_for="input files that were let in again just now")
            evaluation.again_in(0)
            return
        evaluation.transition(S.VALIDATING_OUTPUTS, f"{why} registered, protected and archived", evidence)


def registrations(effects: QuerySet[Effect]) -> str:
    """What is waited for, and what of it fails. How many are left changes with no evaluation; the page counts them."""
    failing = effects.exclude(last_error="").order_by("next_attempt_at").first()
    why = (
        f"; {failing.get_kind_display()} again at {failing.next_attempt_at:%H:%M:%S} UTC: {failing.last_error}" if failing else ""
    )
    return f"its registrations in DBS and Rucio{why}"


def check_input(evaluation: Evaluation) -> tuple[int, ServiceError | None]:
    """Read DBS again if the input is open and it is time: so many new files, or why it could not be read. A silent DBS is asked
    again later; a refusal is alerted on."""
    workflow = evaluation.request.workflow
    wanted = input_open(workflow)
    if wanted is None or clock.now() < _next_reading(workflow, wanted):
        return 0, None
    try:
        new_files = inputs_reread(workflow=workflow, fenced=evaluation.fenced)
        if not evaluation.request.failed_attempts:  # else it is of a step that paused
            evaluation.note(last_error="")
        alert_over(evaluation, "input_unreadable")
        return new_files, None
    except (ServiceUnavailable, ServiceRejected) as error:
        log.warning("input not read again", request_name=workflow.request_id, error=str(error))
        evaluation.note(last_error=str(error))
        if isinstance(error, ServiceRejected):
            alert(evaluation.request, "input_unreadable", f"{wanted.dataset} cannot be read again: {error}")
        return 0, error


def wait_for_input(evaluation: Evaluation, problem: ServiceError | None) -> bool:
    """True while new input may come: the request then waits, without a slot, and says until when, or why it cannot look."""
    workflow = evaluation.request.workflow
    wanted = input_open(workflow)
    if wanted is None:
        return False
    if problem is not None:
        again = clock.now() + timedelta(seconds=conf().cycle_seconds)
        why = f"an answer about {wanted.dataset}, which is still open: {problem}"
        pause = evaluation.paused(problem)
    else:
        again = max(_next_reading(workflow, wanted), clock.now() + timedelta(seconds=1))
        why = f"new files of {wanted.dataset}, taken until {_open_until(workflow, wanted):%Y-%m-%d %H:%M:%S} UTC if none comes"
        pause = {"next_attempt_at": again, "last_error": f"no {why}"}
    if evaluation.request.status == S.PLANNING:
        evaluation.transition(S.QUEUED, f"nothing to plan yet; waits for {why}", **pause)
    else:
        evaluation.note(waiting_for=why)
        evaluation.again_at(again)
    return True


def _open_until(workflow: Workflow, wanted: InputSpec) -> datetime:
    return (workflow.input_grew_at or workflow.created_at) + timedelta(seconds=wanted.open_seconds)


def _next_reading(workflow: Workflow, wanted: InputSpec) -> datetime:
    """The next in the row of readings, or the last one, when the time is over."""
    pause = timedelta(seconds=conf().input_reread_seconds)
    last = workflow.input_read_at or workflow.created_at
    return min(last + pause, max(_open_until(workflow, wanted), last + timedelta(seconds=1)))


def handle_partial(evaluation: Evaluation) -> None:
    """Failed units over the round's units against the threshold; rescues since the last release against the maximum.

    A unit that DAGMan finished and that only lacks its account has not failed; nor has one that was removed from the queue.
    """
    workflow = evaluation.request.workflow
    round_ = round_open(workflow)
    units = WorkUnit.objects.filter(round=round_)
    total, open_ = units.count(), units.filter(state=WorkUnitState.PLANNED).count()
    last = dag_last(workflow.pk)
    removed = min(int(last.outcome.get("units", {}).get("removed", 0)), open_) if last is not None else 0
    failed = open_ - removed
    rescues = failure_rescues(evaluation, round_) if round_ else 0
    summary = failure_summary(workflow.pk)
    limits = limits_of(evaluation.request, limits_now())
    threshold, most = limits.error_hold_threshold, limits.error_max_rescue_attempts
    evidence: dict[str, Any] = {
        "work_units": total, "failed": failed, "removed": removed, "rescues": rescues, "threshold": threshold,
        "max_rescues": most, "failures": summary,
    }  # fmt: skip
    few = evaluation.request.adaptive and total * threshold < 1  # each unit of such a round is above the threshold
    if total and failed / total >= threshold and not (few and not rescues) and not evaluation.request.complete_early:
        why = f"{failed} of {total} work units failed, the threshold is {threshold:.0%}"
        if last is not None and last.outcome.get("broken"):
            why = f"{last.outcome['broken']}; {open_} of {total} work units are left"
        evaluation.hold(HoldCode.THRESHOLD, _with(why, summary), evidence)
    elif rescues >= most and not evaluation.request.complete_early:
        why = _with(f"{failed} of {total} work units still failed after {rescues} rescues", summary)
        evaluation.hold(HoldCode.RESCUES, why, evidence)
    else:
        why = f"rescue {rescues + 1} of {most}: {failed} of {total} work units failed"
        why += f", {removed} were removed from the queue" if removed else ""
        step = step_taken(evaluation)
        evaluation.transition(S.PLANNING, why, evidence | step_evidence(evaluation.request, step), **step)


def _with(why: str, summary: str) -> str:
    return f"{why}; {summary}" if summary else why


def handle_held(evaluation: Evaluation) -> None:
    """Look again at units that are done but unaccounted; a violation raises an alert, the request is held already."""
    if not hasattr(evaluation.request, "workflow"):
        return
    try:
        account_again(evaluation)
    except LedgerViolation as error:
        alert(evaluation.request, "ledger_violation", str(error))
    if WorkUnit.objects.filter(workflow=evaluation.request.workflow, state=WorkUnitState.DONE_UNACCOUNTED).exists():
        evaluation.again_next_cycle()
