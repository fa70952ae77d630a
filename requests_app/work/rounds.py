"""Rounds: closing one, discarding a DAG that never ran, preparing a rescue (docs/design/model.md, Rounds and rescues).

And what the open round's directory says to an operation, read before its transaction: a file system that hangs must keep no
row locked.
Rows are asked again inside the transaction; what was read is refused there when it is of another round or DAG by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from django.db.models import Max, Min, QuerySet, Sum
from django.utils import timezone

from dags_app.dagman import newest_rescue
from dags_app.models import DAG, LIVE_DAG, LIVE_UNIT, DAGKind, DAGStatus, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.planning.sizing import sizes_of
from dags_app.services.dag_files import RescueLeft, rescue_left, rescue_obstacle
from dags_app.services.failures import BadInput
from dags_app.services.plan import dag_record_rescue
from dags_app.services.submit import fence_forgotten
from dags_app.services.units import unit_nodes_final, units_fail
from dags_app.states import dag_transition
from outputs_app.blocks.ownership import lumis_give_back
from requests_app.alerts import alert
from requests_app.lease import Evaluation
from requests_app.models import Request, RequestStatus, RequestTransition, Round, Workflow
from requests_app.work.accounting import account_again
from requests_app.work.exclusions import bad_input_exclude, bad_input_read, only_bad_input_left
from requests_app.work.overrides import max_rescues
from requests_app.work.sizing import rescue_sizing
from wms2.errors import StaleState

log = structlog.get_logger(__name__)


def round_open(workflow: Workflow) -> Round | None:
    """The round in progress."""
    return workflow.rounds.filter(closed_at__isnull=True).first()


def round_close(*, round_: Round, reason: str, bad_input: BadInput, abandoned: Collection[str] = ()) -> None:
    """Credit what is done, give the rest back: the claims of units that are not done end. Input files
    that their jobs gave up over are excluded, the others are tried again later.

    In the caller's transaction, ``bad_input`` as ``bad_input_read`` said before it. Units named in ``abandoned`` have not failed:
    they generate, and what is lost are their numbers.
    """
    lost = list(WorkUnit.objects.filter(round=round_, state__in=LIVE_UNIT).exclude(state=WorkUnitState.DONE))
    if lost:
        units_fail(units=[u for u in lost if u.name in abandoned], problem=reason, state=WorkUnitState.ABANDONED)
        units_fail(units=[u for u in lost if u.name not in abandoned], problem=reason)
        bad_input_exclude(round_=round_, units=lost, named=bad_input)
    Round.objects.filter(pk=round_.pk, closed_at__isnull=True).update(closed_at=timezone.now())
    log.info("round closed", round=round_.index, given_up=len(lost), reason=reason)


def dag_discard(*, dag: DAG, reason: str) -> None:
    """End a READY DAG whose absence from the schedd is proved; in the caller's transaction.

    A fresh one gives everything back, also its event and lumi numbers: none can have been used, but where the database was
    restored from before a submission.
    """
    dag_transition(dag, DAGStatus.REMOVED, event="discarded", detail={"reason": reason})
    if dag.kind != DAGKind.FRESH:
        return
    units = list(WorkUnit.objects.filter(dag=dag))
    if not fence_forgotten(dag):
        _give_numbers_back(dag)
    WorkUnit.objects.filter(pk__in=[u.pk for u in units]).delete()
    dag.round.closed_at = timezone.now()
    dag.round.save(update_fields=["closed_at"])


def _give_numbers_back(dag: DAG) -> None:
    """Only when this DAG took the newest numbers; otherwise the gap stays, which is harmless (error-handling 5.1)."""
    workflow = Workflow.objects.select_for_update(no_key=True).get(pk=dag.workflow_id)
    rows = WorkUnitClaim.objects.filter(unit__dag=dag).values_list("kind").order_by().annotate(Min("first"), Max("last"))
    taken = {kind: (first, last + 1) for kind, first, last in rows}
    events = taken.get(WorkUnitClaim.KIND_GENERATED)
    if events and events[1] == workflow.next_first_event:
        workflow.next_first_event = events[0]
        workflow.next_first_lumi, after = taken[WorkUnitClaim.KIND_GENERATED_LUMIS]
        lumis_give_back(request_id=workflow.request.pk, first=workflow.next_first_lumi, after=after)
        workflow.save(update_fields=["next_first_event", "next_first_lumi"])


def rescue_prepare(evaluation: Evaluation) -> DAG | None:
    """The READY row of a rescue, when the open round's last DAG left one and rescues are not used up.

    Otherwise the open round is closed, so that what is left can be planned anew, and None is returned.
    """
    workflow = evaluation.request.workflow
    round_ = round_open(workflow)
    if round_ is None:
        return None
    last = dag_run_last(round_)
    obstacle = rescue_obstacle(last, rescue_left(last)) if last is not None else "no DAG of the round has run"
    if not WorkUnit.objects.filter(round=round_, state=WorkUnitState.PLANNED).exists():
        obstacle = "no work unit is left"
    there = evaluation.request.reserved_schedd
    if last is not None and last.schedd is not None and there is not None and there.directories != last.schedd.directories:
        obstacle = f"it goes on at {there.name}, which does not see its directory at {last.schedd.name}"
    if evaluation.request.complete_early:
        obstacle = "the request completes early"
    if last is None or obstacle:
        _close(evaluation, round_, f"no rescue is possible: {obstacle}")
        return None
    kind = rescue_kind(last)
    if kind is DAGKind.FAILURE_RESCUE and failure_rescues(evaluation, round_) >= max_rescues(evaluation.request):
        _close(evaluation, round_, "rescue attempts used up")
        return None
    if kind is DAGKind.FAILURE_RESCUE and only_bad_input_left(round_, bad_input_read(round_)):
        _close(evaluation, round_, "what is left gave up over input files: they are read elsewhere, or later")
        return None
    file, sizing = newest_rescue(Path(last.dag_file_path)), rescue_sizing(evaluation.request, last)
    with evaluation.fenced():
        return dag_record_rescue(
            failed=last,
            kind=kind,
            rescue_file=str(file),
            priority=evaluation.request.priority,
            sizes=sizes_of(sizing.workflow, sizing.profile),
            decisions=sizing.decisions,
        )


def round_plan_anew(evaluation: Evaluation, ready: DAG, why: str) -> None:
    """End the round of a DAG that is READY and certainly in no queue, so that what is left is planned anew. Stopped in between,
    the next evaluation finds that no rescue is possible once more."""
    with evaluation.fenced():
        dag_discard(dag=ready, reason=why)
    workflow = evaluation.request.workflow
    workflow.refresh_from_db(fields=["next_first_event", "next_first_lumi"])  # it may have given its numbers back
    if (round_ := round_open(workflow)) is not None:
        _close(evaluation, round_, f"no rescue is possible: {why}")


def rescue_kind(last: DAG) -> DAGKind:
    """A DAG that was stopped or removed did not fail: its rescue does not count against the limit (error-handling 7.2)."""
    stopped = last.status in (DAGStatus.STOPPED, DAGStatus.REMOVED) or last.stop_requested_at is not None
    return DAGKind.STOP_RESCUE if stopped else DAGKind.FAILURE_RESCUE


def failure_rescues(evaluation: Evaluation, round_: Round) -> int:
    """Failure rescues of the round since the last release."""
    released = (
        RequestTransition.objects.filter(request=evaluation.request, from_status=RequestStatus.HELD).order_by("-id").first()
    )
    rescues = DAG.objects.filter(round=round_, kind=DAGKind.FAILURE_RESCUE, submitted_at__isnull=False)
    return rescues.filter(created_at__gt=released.at).count() if released else rescues.count()


def _close(evaluation: Evaluation, round_: Round, reason: str) -> None:
    account_again(evaluation)  # a manifest that is there by now is worth more than doing its work again
    abandoned, bad_input = units_abandoned(round_), bad_input_read(round_)
    with evaluation.fenced():
        round_close(round_=round_, reason=reason, bad_input=bad_input, abandoned=abandoned)
    if abandoned and not evaluation.request.complete_early:  # then an operator wants no more
        lost = _generated(round_).filter(unit__name__in=abandoned).aggregate(events=Sum("events"))["events"]
        alert(
            evaluation.request,
            "numbers_abandoned",
            f"{len(abandoned)} work units of round {round_.index} that had not failed are given up, {reason}: {lost} event"
            " numbers stay unused, as many events are planned anew",
        )


def units_abandoned(round_: Round) -> set[str]:
    """Units whose generated numbers are lost if the round closes, although nothing is known to have failed in them, and that have
    not ended with what does not count. Reads files: before a transaction."""
    units = WorkUnit.objects.filter(round=round_, state=WorkUnitState.PLANNED, problem="")
    names = set(units.filter(claims__in=_generated(round_)).values_list("name", flat=True))
    last = dag_run_last(round_) if names else None
    nodes = unit_nodes_final(last, completed=last.status == DAGStatus.COMPLETED) if last is not None else None
    return names - set((*nodes.failed, *nodes.done) if nodes is not None else ())


def _generated(round_: Round) -> QuerySet[WorkUnitClaim]:
    """The event numbers that the round's units took."""
    return WorkUnitClaim.objects.filter(unit__round=round_, kind=WorkUnitClaim.KIND_GENERATED)


@dataclass(frozen=True, slots=True)
class RoundFiles:
    """Of the round that was open when it was read, if any."""

    round_id: object = None
    named: BadInput = field(default_factory=dict)
    rescues: Mapping[uuid.UUID, RescueLeft] = field(default_factory=dict)
    abandoned: Collection[str] = ()  # see ``units_abandoned``

    def bad_input(self, round_: Round) -> BadInput:
        """What nodes gave up over, see ``bad_input_read``.

        Raises:
            StaleState: another round was open when it was read.
        """
        if round_.pk != self.round_id:
            raise StaleState(f"round {round_.index} was begun meanwhile; try again")
        return self.named

    def rescue_obstacle(self, dag: DAG) -> str:
        """Why the DAG cannot be rescued; empty if it can.

        Raises:
            StaleState: the DAG was not yet there when it was read.
        """
        if dag.pk not in self.rescues:
            raise StaleState(f"DAG {dag.pk} was submitted meanwhile; try again")
        return rescue_obstacle(dag, self.rescues[dag.pk])


def round_files_read(request: Request) -> RoundFiles:
    """Of the open round."""
    workflow = Workflow.objects.filter(request=request).first()
    round_ = round_open(workflow) if workflow else None
    if round_ is None:
        return RoundFiles()
    looked_at = {dag.pk: dag for dag in (dag_run_last(round_), dag_fenced_last(round_)) if dag is not None}
    rescues = {key: rescue_left(dag) for key, dag in looked_at.items()}
    return RoundFiles(round_.pk, bad_input_read(round_), rescues, units_abandoned(round_))


def round_files_at_rest(request: Request) -> RoundFiles:
    """The same; nothing while a DAG may run, when operations only leave what is wanted and need not wait for a file system."""
    status = Request.objects.filter(pk=request.pk).values_list("status", flat=True).get()
    live = DAG.objects.filter(workflow__request=request, status__in=LIVE_DAG)
    runs = status in (RequestStatus.ACTIVE, RequestStatus.STOPPING) or live.exists()
    return RoundFiles() if runs else round_files_read(request)


def dag_run_last(round_: Round) -> DAG | None:
    """The round's last DAG that was submitted."""
    return DAG.objects.filter(round=round_, submitted_at__isnull=False).order_by("-fence").first()


def dag_fenced_last(round_: Round) -> DAG | None:
    """The round's newest submission, recorded or not."""
    return DAG.objects.filter(round=round_, fence__gt=0).order_by("-fence").first()
