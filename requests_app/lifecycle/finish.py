"""After a round: the next one, or the end (docs/design/model.md, Request statuses)."""

from __future__ import annotations

from dags_app.models import WorkUnit, WorkUnitState
from outputs_app.blocks import blocks_advance, blocks_seal
from outputs_app.models import OPEN_EFFECT, BlockStatus, Effect, ProcessingBlock
from outputs_app.selectors import effect_stuck
from outputs_app.services import datasets_publish
from requests_app.lease import Evaluation
from requests_app.lifecycle.growing import look_for_input, wait_for_input
from requests_app.lifecycle.missing import hold_over_exclusions, wait_for_locations
from requests_app.lifecycle.steps import step_evidence, step_taken
from requests_app.models import HoldCode, InputFile, InputLumis, LumiFate, RequestStatus, Round, Workflow
from requests_app.services.invalidation import previous_superseded
from requests_app.states import hold_changes
from requests_app.work.accounting import account_again
from requests_app.work.bad_input import bad_input_read
from requests_app.work.ledger import ledger_check, ledger_of
from requests_app.work.rounds import round_close, round_open
from wms2.errors import LedgerViolation
from wms2.nudge import RUN_EFFECTS, nudge
from wms2.words import counted

S = RequestStatus


def finish(evaluation: Evaluation) -> None:
    """No DAG is live: close the round, plan again if work is left or the input has grown, wait while the input may still grow,
    otherwise complete once everything is registered.

    Raises:
        LedgerViolation: the numbers do not add up.
    """
    request = evaluation.request
    workflow = request.workflow
    account_again(evaluation)
    waiting = WorkUnit.objects.filter(workflow=workflow, state=WorkUnitState.DONE_UNACCOUNTED).order_by("index")
    if waiting.exists():
        evaluation.note(
            waiting_for=f"{waiting.count()} work units done but unaccounted, e.g. {waiting[0].name}: {waiting[0].problem}"[:4000]
        )
        return
    round_ = round_open(workflow)
    if round_ is not None:
        _refuse_forgotten_units(round_)
        bad_input = bad_input_read(round_)
        with evaluation.fenced():
            round_close(round_=round_, reason="the DAG has ended", bad_input=bad_input)
    looked = look_for_input(evaluation)
    ledger = ledger_of(workflow, whole=False)  # each cycle while registrations are waited for
    ledger_check(ledger)
    if ledger.work_left:
        if request.status == S.PLANNING and not looked.new_files:
            if wait_for_locations(evaluation):
                return
            why = f"work is left that cannot be planned: {ledger.summary()}"
            evaluation.transition(S.HELD, why, _evidence(workflow), **hold_changes(HoldCode.SHORT, why))
        else:
            step = step_taken(evaluation)  # here it costs no submission
            evidence = _evidence(workflow) | step_evidence(request, step)
            evaluation.transition(S.QUEUED, f"round closed, work left: {ledger.summary()}", evidence, **step)
        return
    if wait_for_input(evaluation, looked):
        return
    if workflow.input_imported_at is not None and not ledger.work_done:
        why = f"nothing of the input can be processed: {ledger.summary()}; {_first_reason(workflow)}"
        evaluation.transition(S.HELD, why, _evidence(workflow), **hold_changes(HoldCode.REFUSED, why))
        return
    with evaluation.fenced():
        blocks_seal(workflow_id=workflow.pk)
        blocks_advance(workflow_id=workflow.pk, request_id=request.pk, request_epoch=request.epoch)
        nudge(RUN_EFFECTS)
    _complete_when_registered(evaluation)


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


def _complete_when_registered(evaluation: Evaluation) -> None:
    request = evaluation.request
    open_effects = Effect.objects.filter(request=request, state__in=OPEN_EFFECT)
    stuck = effect_stuck(request.pk)  # alerted on already (``alerts.tell_stuck_effects``)
    if stuck is not None:
        evaluation.note(waiting_for=f"an operator: {stuck.get_kind_display()} was {stuck.state}: {stuck.last_error}"[:4000])
        return
    count = open_effects.count()
    if count:
        failing = open_effects.exclude(last_error="").order_by("next_attempt_at").first()
        why = (
            f"; {failing.get_kind_display()} again at {failing.next_attempt_at:%H:%M:%S} UTC: {failing.last_error}"
            if failing
            else ""
        )
        evaluation.note(waiting_for=f"{counted(count, 'registration')} in DBS and Rucio{why}"[:4000])
        return
    blocks = ProcessingBlock.objects.filter(workflow=request.workflow)
    unfinished = blocks.exclude(status=BlockStatus.ARCHIVED)
    if unfinished.exists():
        many, one = counted(unfinished.count(), "block"), unfinished[0]
        evaluation.note(waiting_for=f"{many} to be archived, e.g. {one.dbs_block_name}: {one.status}")
        return
    if hold_over_exclusions(evaluation):
        return
    evidence = {**_evidence(request.workflow), "blocks": blocks.count()}
    with evaluation.fenced():
        if ledger_of(request.workflow, whole=False).work_left:
            evaluation.note(waiting_for="input files that were let in again just now")
            return
        if not datasets_publish(request_id=request.pk, request_epoch=request.epoch, workflow_id=request.workflow.pk):
            evaluation.note(waiting_for="its datasets to become VALID in DBS")
            nudge(RUN_EFFECTS)
            return
        evaluation.transition(S.COMPLETED, "all work done, registered, protected and archived", evidence)
        previous_superseded(request)
