"""The life cycle: one step of one request (spec 4.2). ``HANDLERS`` maps each status to its function; all are safe to repeat.

An alert never skips the evaluation. Handlers write through the ``Evaluation`` they get; what they may conclude from a service
that does not answer is: nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from requests_app.lease import Evaluation
from requests_app.lifecycle.active import handle_active
from requests_app.lifecycle.finish import handle_held, handle_partial
from requests_app.lifecycle.missing import alert_missing
from requests_app.lifecycle.planning import handle_planning, handle_queued, handle_resubmitting, handle_submitted
from requests_app.lifecycle.stopping import handle_stopping
from requests_app.lifecycle.timeouts import watch_timeout
from requests_app.models import RequestStatus
from requests_app.work.block_limits import blocks_look_after

HANDLERS: dict[str, Callable[[Evaluation], None]] = {
    RequestStatus.SUBMITTED: handle_submitted,
    RequestStatus.QUEUED: handle_queued,
    RequestStatus.PLANNING: handle_planning,
    RequestStatus.ACTIVE: handle_active,
    RequestStatus.PARTIAL: handle_partial,
    RequestStatus.STOPPING: handle_stopping,
    RequestStatus.RESUBMITTING: handle_resubmitting,
    RequestStatus.HELD: handle_held,
}


def evaluate(evaluation: Evaluation) -> None:
    """Look after its blocks, serve the request by its status, then look at the clock."""
    blocks_look_after(evaluation)
    handler = HANDLERS.get(evaluation.request.status)
    if handler is not None:
        handler(evaluation)
    alert_missing(evaluation)
    watch_timeout(evaluation)
