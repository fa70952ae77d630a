"""Input datasets that grow: a request with ``OpenRunningTimeout`` takes new files until none has come for that long.

Called where a round has ended (``finish``): what is new is planned as a further round, and nothing completes while more may
come. DBS is asked at most every ``input_reread_seconds``, and once more when the time is over. Spec 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from dags_app.planning.specs import InputSpec
from requests_app.alerts import alert
from requests_app.lease import Evaluation
from requests_app.lifecycle.pauses import pause_fields
from requests_app.models import RequestStatus, Workflow
from requests_app.work.input_reading import inputs_reread
from requests_app.work.spec import spec_of
from wms2 import clock
from wms2.conf import conf
from wms2.errors import ServiceError, ServiceRejected, ServiceUnavailable

log = structlog.get_logger(__name__)
S = RequestStatus


@dataclass(frozen=True, slots=True)
class Looked:
    """What reading the input again has brought: so many new files, or why it could not be read."""

    new_files: int = 0
    problem: ServiceError | None = None


def look_for_input(evaluation: Evaluation) -> Looked:
    """Read DBS again if the input is open and it is time. A silent DBS is asked again later; a refusal is alerted on."""
    workflow = evaluation.request.workflow
    wanted = _open_input(workflow)
    if wanted is None or clock.now() < _next_reading(workflow, wanted):
        return Looked()
    try:
        return Looked(inputs_reread(workflow=workflow, fenced=evaluation.fenced))
    except (ServiceUnavailable, ServiceRejected) as error:
        log.warning("input not read again", request_name=workflow.request_id, error=str(error))
        evaluation.note(last_error=str(error)[:4000])
        if isinstance(error, ServiceRejected):
            alert(evaluation.request, "input_unreadable", f"{wanted.dataset} cannot be read again: {error}")
        return Looked(problem=error)


def wait_for_input(evaluation: Evaluation, looked: Looked) -> bool:
    """True while new input may come: the request then waits, without a slot, and says until when, or why it cannot look."""
    workflow = evaluation.request.workflow
    wanted = _open_input(workflow)
    if wanted is None:
        return False
    if looked.problem is not None:
        _wait_for_catalogue(evaluation, wanted, looked.problem)
        return True
    again = max(_next_reading(workflow, wanted), clock.now() + timedelta(seconds=1))
    why = f"new files of {wanted.dataset}, taken until {_open_until(workflow, wanted):%Y-%m-%d %H:%M:%S} UTC if none comes"
    if evaluation.request.status == S.PLANNING:
        evaluation.transition(S.QUEUED, f"nothing to plan yet; waits for {why}", next_attempt_at=again, last_error=f"no {why}")
    else:
        evaluation.note(waiting_for=why)
    return True


def _wait_for_catalogue(evaluation: Evaluation, wanted: InputSpec, problem: ServiceError) -> None:
    why = f"an answer about {wanted.dataset}, which is still open: {problem}"[:4000]
    if evaluation.request.status == S.PLANNING:
        fields = pause_fields(evaluation.request.failed_attempts, problem)
        evaluation.transition(S.QUEUED, f"nothing to plan yet; waits for {why}", **fields)
    else:
        evaluation.note(waiting_for=why)


def _open_input(workflow: Workflow) -> InputSpec | None:
    wanted = spec_of(workflow).input
    if wanted is None or not wanted.open_seconds or workflow.input_closed_at is not None:
        return None
    return wanted


def _open_until(workflow: Workflow, wanted: InputSpec) -> datetime:
    return (workflow.input_grew_at or workflow.created_at) + timedelta(seconds=wanted.open_seconds)


def _next_reading(workflow: Workflow, wanted: InputSpec) -> datetime:
    """The next in the row of readings, or the last one, when the time is over."""
    pause = timedelta(seconds=conf().input_reread_seconds)
    last = workflow.input_read_at or workflow.created_at
    return min(last + pause, max(_open_until(workflow, wanted), last + timedelta(seconds=1)))
