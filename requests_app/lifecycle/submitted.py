"""SUBMITTED -> QUEUED: the outside facts a request needs (PSets, output modules, input files) become rows (spec 4.2, 4.3)."""

from __future__ import annotations

from requests_app.lease import Evaluation
from requests_app.lifecycle.pauses import pause
from requests_app.models import HoldCode, RequestStatus
from requests_app.services.workflow import workflow_import
from requests_app.states import hold_changes
from wms2 import clock
from wms2.crash import crash_point
from wms2.errors import DocumentRefused, PlanningRefused, ServiceRejected, ServiceUnavailable

S = RequestStatus


def handle_submitted(evaluation: Evaluation) -> None:
    """Import; a refusal holds the request with every reason, an unavailable service is tried again later."""
    next_attempt_at = evaluation.request.next_attempt_at
    if next_attempt_at is not None and next_attempt_at > clock.now():
        return
    try:
        workflow_import(request=evaluation.request, fenced=evaluation.fenced)
    except (DocumentRefused, PlanningRefused, ServiceRejected) as error:
        evaluation.transition(S.HELD, str(error), **hold_changes(HoldCode.REFUSED, str(error)))
        return
    except ServiceUnavailable as error:
        pause(evaluation, error)
        return
    crash_point("import.recorded")
    evaluation.transition(S.QUEUED, "workflow and input rows are complete")
