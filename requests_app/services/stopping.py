"""Stop and fail. A stop keeps everything and goes on later; a failure is decided by an operator (error-handling 4.2, 7)."""

from __future__ import annotations

from functools import partial

from dags_app.services.lost_queue import directory_evidence, lost_confirm
from dags_app.services.stop import StopMode, dag_request_stop
from outputs_app.blocks.filling import blocks_end
from outputs_app.effects.invalidation import manifest_ask
from outputs_app.models import BlockStatus, EffectKind
from requests_app import states
from requests_app.alerts import report_broken
from requests_app.models import Request, RequestStatus, StopIntent, Workflow
from requests_app.services.common import give_up, live_dag_of, may_run, recorded_operation, stop_first, stopped_for
from requests_app.work.rounds import RoundFiles, round_files_at_rest
from wms2.actions import AlreadyDone, applies
from wms2.errors import FieldRefused, StaleState
from wms2.runtime.locks import Fenced
from wms2.runtime.notify import RUN_EFFECTS, notify
from wms2.runtime.passes import row_by_itself

S = RequestStatus
#: Between DAGs there is nothing to stop; the request goes on by itself (error-handling 7.1).
_NOTHING_RUNS = (S.QUEUED, S.RESUBMITTING, S.PLANNING, S.PARTIAL)


def request_stop(*, request: Request, actor: str, reason: str, mode: StopMode = StopMode.NOW) -> None:
    """Stop the running DAG cleanly and queue the request again; its rescue goes on where the DAG stood.

    Args:
        mode: NOW removes the DAG, jobs that run are lost; DRAIN lets the work units that run finish, and starts no other.
    """
    with recorded_operation(request, actor, "request_stop", reason, mode=mode.value):
        if not applies(request, stop_refused(request)):
            return
        if request.status != S.STOPPING:
            states.transition(request, S.STOPPING, actor=actor, reason=reason, stop_intent=StopIntent.RESUME)
        dag = live_dag_of(request)
        if dag is not None:
            dag_request_stop(dag=dag, reason=reason, mode=mode)


def stop_refused(request: Request) -> str:
    """Why there is nothing to stop; empty if there is."""
    if request.status == S.STOPPING or may_run(request):
        return ""
    why = f"It is {request.get_status_display()}; no DAG of it runs."
    return AlreadyDone(why) if request.status in _NOTHING_RUNS else why


def request_force(*, request: Request, actor: str, reason: str, confirm: str, insist: bool = False) -> None:
    """Settle a stop without the proof that its DAG has left the queue: of a schedd that is gone for good. The DAG ends as lost;
    what of it shows up later is removed as jobs that must not run. A stop to go on becomes one to hold.

    Args:
        confirm: the request's name, typed.
        insist: also while the schedd answers.

    Raises:
        InvalidTransition: it is not being stopped, or no DAG of it is left.
        FieldRefused: not its name; or the schedd answers and ``insist`` is not given.
    """
    dag = live_dag_of(request)
    found = directory_evidence(dag) if dag is not None else None
    with recorded_operation(request, actor, "request_force", reason, insist=insist):
        if confirm != request.request_name:
            raise FieldRefused("confirm", f"type the request's name, {request.request_name}")
        if not applies(request, force_refused(request)) or dag is None or found is None:
            return
        silent = dag.unanswered_since or (dag.schedd.unreachable_since if dag.schedd is not None else None)
        if silent is None and not insist:
            raise FieldRefused("insist", f"{dag.schedd_name} answers: the removal there proves itself; insist if it does not")
        jobs = {"idle": dag.nodes_idle, "running": dag.nodes_running, "held": dag.nodes_held}
        evidence = {"forced": True, "why": "the end was not proved", "directory": found.as_json(), "jobs": jobs}
        if not lost_confirm(dag, actor=actor, reason=reason, evidence=evidence):
            raise StaleState(f"the DAG of {request.request_name} has changed")


def force_refused(request: Request) -> str:
    """Why there is nothing to force; empty if there is."""
    if request.status != S.STOPPING:
        return f"It is {request.get_status_display()}; only the end of one that is being stopped can be forced: stop or abort it."
    dag = live_dag_of(request)
    if dag is None:
        return "No DAG of it is left; it arrives by itself."
    return AlreadyDone("Its DAG is given up already.") if dag.lost_confirmed_at is not None else ""


def request_fail(*, request: Request, actor: str, reason: str) -> None:
    """End the request as failed; what it has registered is listed for invalidation. Only people do this."""
    files = round_files_at_rest(request)
    with recorded_operation(request, actor, "request_fail", reason):
        if not applies(request, fail_refused(request)):
            return
        if not stop_first(request, StopIntent.FAIL, actor, reason):
            fail_now(request, actor, reason, files)


def fail_refused(request: Request) -> str:
    """Why it cannot be failed; empty if it can."""
    if request.status == S.FAILED:
        return AlreadyDone("It is Failed already.")
    if request.status == S.STOPPING:
        return stopped_for(request, StopIntent.FAIL)
    if states.allowed(request.status, S.FAILED) or may_run(request):
        return ""
    return f"It is {request.get_status_display()}; it can be failed when it is held or runs, before that it is aborted."


def fail_now(request: Request, actor: str, reason: str, files: RoundFiles) -> None:
    """The edge to FAILED when nothing runs, with what belongs to it; in the caller's transaction."""
    states.transition(request, S.FAILED, actor=actor, reason=reason)
    give_up(request, reason, files)
    ended_follow_up(request)


def ended_follow_up(request: Request) -> None:
    """What every way into FAILED and ABORTED asks for: blocks with what is done are registered and kept, until an operator or the
    cleanup policy of a later version takes them back; of a failed request the invalidation manifest is written."""
    workflow = Workflow.objects.filter(request=request).first()
    if workflow is not None:
        blocks_end(workflow_id=workflow.pk, request_id=request.pk, request_epoch=request.epoch)
        notify(RUN_EFFECTS)
        if request.status == S.FAILED:
            manifest_ask(request_id=request.pk, request_epoch=request.epoch)


def left_blocks_end(fenced: Fenced) -> None:
    """End blocks that are OPEN although their request has ended: those that former releases left, and those whose parents' blocks
    have been registered since. None whose outputs are taken back."""
    rows = Request.objects.filter(status__in=(S.FAILED, S.ABORTED), workflow__blocks__status=BlockStatus.OPEN)
    wanted = rows.exclude(effects__kind=EffectKind.RUCIO_RELEASE)
    for pk in wanted.order_by().values_list("pk", flat=True).distinct():
        with row_by_itself("blocks of ended requests", pk, partial(report_broken, pk=pk)), fenced():
            request = wanted.select_for_update(no_key=True, of=("self",)).filter(pk=pk).first()
            if request is not None:
                blocks_end(workflow_id=request.workflow.pk, request_id=pk, request_epoch=request.epoch)
