"""One evaluation of one request, from the lease to the log line. The only place besides the cycle that catches everything.

``HANDLERS`` maps each status to the function that does one step of a request in it (spec 4.2); all are safe to repeat. An alert
never skips the evaluation. Handlers write through the ``Evaluation`` they get; what they may conclude from a service that does
not answer is: nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from dags_app.selectors import dag_id_live
from requests_app.alerts import tell_stuck_effects
from requests_app.lease import Evaluation, evaluating
from requests_app.lifecycle.active import handle_active
from requests_app.lifecycle.finish import handle_held, handle_partial
from requests_app.lifecycle.missing import alert_missing
from requests_app.lifecycle.planning import handle_planning, handle_queued, handle_resubmitting, handle_submitted
from requests_app.lifecycle.stopping import handle_stopping
from requests_app.lifecycle.timeouts import watch_timeout
from requests_app.models import EVALUATED, RequestStatus
from requests_app.work.block_limits import blocks_look_after
from wms2.errors import StaleState
from wms2.identity import process_name
from wms2.locks import lock_refused
from wms2.metrics import EVALUATIONS_TOTAL, LOCKS_REFUSED_TOTAL

log = structlog.get_logger(__name__)
#: One evaluation follows a request through so many statuses, so that a nudge carries it as far as it can go.
MAX_STEPS = 8
#: How ``waiting_for`` begins when a step of WMS2 itself broke.
BROKEN = "a repair of WMS2; its step breaks, and is tried again each cycle:"


def evaluate_one(pk: Any) -> None:
    """Evaluate until the status stays, or there is nothing to do. Somebody else holding the lease is fine."""
    with evaluating(pk, owner=process_name()) as evaluation:
        if evaluation is None:
            return
        request = evaluation.request
        with structlog.contextvars.bound_contextvars(request_name=request.request_name, dag_id=dag_id_live(request.pk)):
            for step in range(MAX_STEPS):
                status = request.status
                try:
                    if not step:
                        tell_stuck_effects(evaluation)
                    if status not in EVALUATED:
                        return
                    evaluate(evaluation)
                except StaleState as error:
                    EVALUATIONS_TOTAL.labels(status, "stale").inc()
                    log.info("evaluation gave way", why=str(error))
                    return
                except Exception as error:  # the cycle must serve the others; the next cycle tries this one again
                    if lock_refused(error):
                        EVALUATIONS_TOTAL.labels(status, "locked").inc()
                        LOCKS_REFUSED_TOTAL.labels("evaluation").inc()
                        log.warning("locked by somebody else, the next cycle goes on", status=status, error=_line(error))
                        return
                    EVALUATIONS_TOTAL.labels(status, "error").inc()
                    log.exception("evaluation failed", status=status)
                    _tell(evaluation, error)
                    return
                EVALUATIONS_TOTAL.labels(status, "ok").inc()
                _works_again(evaluation)
                if request.status == status:
                    return


def _tell(evaluation: Evaluation, error: Exception) -> None:
    """Say on the request what broke, and look at the clock: a step that breaks every time must not stay as it is for ever."""
    what = f"{type(error).__name__}: {error}"
    try:
        evaluation.note(last_error=what[:4000], waiting_for=f"{BROKEN} {what}"[:4000])
        watch_timeout(evaluation)
    except StaleState as gone:
        log.info("evaluation gave way", why=str(gone))


def _works_again(evaluation: Evaluation) -> None:
    """What a broken evaluation has said stands no longer, where the step that works says nothing itself."""
    if evaluation.request.waiting_for.startswith(BROKEN):
        try:
            evaluation.note(waiting_for="")
        except StaleState as gone:
            log.info("evaluation gave way", why=str(gone))


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


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
