"""When a request that nothing wakes has to be looked at again: the moments at which time alone changes something (ADR 0061).

Handlers say what they themselves come back for (``Evaluation.again_in``); here is what holds in every status.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Min

from outputs_app.blocks import blocks_next_due
from requests_app.lease import Evaluation
from requests_app.lifecycle.missing import LOOKED_AT
from requests_app.lifecycle.timeouts import timeout_seconds
from requests_app.models import EVALUATED, InputFile, RequestStatus, Workflow
from requests_app.work.block_limits import block_limits
from wms2 import clock
from wms2.conf import conf

S = RequestStatus
#: What an evaluation takes one step towards at a time: a submission whose outcome is not known, a stop that is not proved.
IN_STEPS = (S.PLANNING, S.STOPPING, S.RESUBMITTING, S.PARTIAL)


def say_when_due(evaluation: Evaluation) -> None:
    """Add these moments to what the handler has said."""
    request = evaluation.request
    status = S(request.status)
    if status not in EVALUATED:
        return
    if status in IN_STEPS:
        evaluation.again_next_cycle()
    moments = [request.next_attempt_at]
    seconds = timeout_seconds(status)
    if seconds is not None:
        moments.append(request.status_since + timedelta(seconds=seconds))
    workflow: Workflow | None = getattr(request, "workflow", None)  # read already, to look after its blocks
    if workflow is not None:
        block = blocks_next_due(workflow_id=workflow.pk, limits=block_limits(workflow))
        if block is not None:
            evaluation.again_at(max(block, clock.now() + timedelta(seconds=conf().cycle_seconds)))
        if status in LOOKED_AT:
            moments.append(_missing_alert(workflow))
    now = clock.now()
    for moment in moments:
        if moment is not None and moment > now:
            evaluation.again_at(moment)


def _missing_alert(workflow: Workflow) -> datetime | None:
    first = InputFile.objects.filter(workflow=workflow, waiting_since__isnull=False).aggregate(first=Min("waiting_since"))[
        "first"
    ]
    return first + timedelta(seconds=conf().input_missing_alert_seconds) if first is not None else None
