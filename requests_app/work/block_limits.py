"""When a workflow's blocks are whole, by its document and the limits; blocks are sealed and registered when it is time."""

from __future__ import annotations

from datetime import timedelta

from dags_app.planning.specs import BlockClosing
from outputs_app.blocks.filling import blocks_check, blocks_register_sealed, blocks_seal_due
from outputs_app.values import BlockLimits
from requests_app.lease import Evaluation
from requests_app.models import EVALUATED, Request, RequestStatus, StopIntent, Workflow
from requests_app.work.spec import spec_of
from wms2.conf import conf
from wms2.runtime import clock
from wms2.runtime.in_force import in_force
from wms2.runtime.notify import RUN_EFFECTS, notify

#: A block that has so many events takes no more (BlockCloseMaxEvents, where that is less).
_BLOCK_MAX_EVENTS = 25_000_000
#: CRAB takes no blocks with more lumis for tasks by lumis.
_BLOCK_MAX_LUMIS = 100_000
#: Since a block's first file (BlockCloseMaxWaitTime, where that is less).
_BLOCK_MAX_WAIT_SECONDS = 66_400.0


def block_limits(workflow: Workflow) -> BlockLimits:
    """The smaller of each: ReqMgr2 fills in defaults of its own, which must not undo an operator's smaller target."""
    closing: BlockClosing = spec_of(workflow).block_closing
    limits = in_force()

    def least(limit: float, asked: int) -> float:
        return min(limit, asked) if asked else limit

    return BlockLimits(
        max_bytes=int(least(limits.block_target_bytes, closing.max_bytes)),
        max_files=int(least(limits.block_max_files, closing.max_files)),
        max_events=int(least(_BLOCK_MAX_EVENTS, closing.max_events)),
        max_lumis=_BLOCK_MAX_LUMIS,
        max_wait_seconds=least(_BLOCK_MAX_WAIT_SECONDS, closing.max_wait_seconds),
    )


def blocks_go_on(request: Request, limits: BlockLimits) -> None:
    """Seal and register what is due; in the caller's transaction."""
    blocks_seal_due(workflow_id=request.workflow.pk, limits=limits)
    blocks_register_sealed(workflow_id=request.workflow.pk, request_id=request.pk, request_epoch=request.epoch)
    notify(RUN_EFFECTS)


def blocks_close_due(evaluation: Evaluation) -> None:
    """Seal and register blocks for which it is time, but not of a request that is cleaned; sets when that next is."""
    request = evaluation.request
    workflow: Workflow | None = getattr(request, "workflow", None)
    cleaned = request.status == RequestStatus.CLEANING or request.stop_intent == StopIntent.CLEAN
    if workflow is None or request.status not in EVALUATED or cleaned:
        return
    limits, now = block_limits(workflow), clock.now()
    due = evaluation.blocks or blocks_check(workflow_id=workflow.pk, limits=limits)
    if due.by(now):
        with evaluation.fenced():
            blocks_go_on(request, limits)
        due = blocks_check(workflow_id=workflow.pk, limits=limits)
    if due.first is not None:
        evaluation.again_at(max(due.first, now + timedelta(seconds=conf().cycle_seconds)))
