"""One evaluation of one request, from the lease to the log line. The only place beside the cycle that catches everything.

``HANDLERS`` maps each status to the function that does one step of a request in it (spec 4.2); all are safe to repeat. An alert
never skips the evaluation. Handlers write through the ``Evaluation`` they get; what they may conclude from a service that does
not answer is: nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import structlog

from requests_app.alerts import BROKEN, alert, alert_over, alert_stuck_effects, report_broken
from requests_app.lease import QUEUE, Evaluation, evaluating, evaluating_due
from requests_app.lifecycle.active import handle_active
from requests_app.lifecycle.cleaning import handle_cleaning
from requests_app.lifecycle.finish import handle_held, handle_partial
from requests_app.lifecycle.missing import alert_missing
from requests_app.lifecycle.planning import handle_planning, handle_queued, handle_resubmitting, handle_submitted
from requests_app.lifecycle.stopping import handle_stopping
from requests_app.lifecycle.timeouts import watch_timeout
from requests_app.lifecycle.validating import handle_removing, handle_validated, handle_validating, handle_waiting_integrity
from requests_app.models import EVALUATED, RequestStatus, Workflow
from requests_app.work.block_limits import blocks_close_due
from wms2.conf import conf
from wms2.errors import LeaseLost, StaleState
from wms2.metrics.series import EVALUATIONS_TOTAL, FORGOTTEN_TOTAL, LOCKS_REFUSED_TOTAL
from wms2.runtime import clock
from wms2.runtime.identity import process_name
from wms2.runtime.locks import lock_refused
from wms2.runtime.notify import EVALUATE_DUE, notify
from wms2.runtime.passes import row_by_itself
from wms2.runtime.periodic import POLL_SECONDS
from wms2.runtime.shared_counts import SharedCounts
from wms2.work.workers import may_take

log = structlog.get_logger(__name__)
#: One evaluation follows a request through so many statuses, so that one notification carries it as far as it can go.
MAX_STEPS = 8
#: Requests whose leases are taken together.
BATCH = 20
#: Statuses whose step may take minutes: services are asked for a whole dataset, a DAG is planned and written.
HEAVY = (RequestStatus.SUBMITTED, RequestStatus.PLANNING)
#: What an evaluation takes one step towards at a time: a submission whose outcome is not known, a stop that is not proved.
IN_STEPS = (RequestStatus.PLANNING, RequestStatus.STOPPING, RequestStatus.RESUBMITTING, RequestStatus.PARTIAL)
#: How ``waiting_for`` begins when a step gave way to a change of another process. The next one finds what has become of it,
#: unless the rows contradict each other: then it gives way each time.
CHANGED = "rows that were changed meanwhile; it is tried again every few seconds:"
#: How it begins when another session has kept rows of it locked for so many evaluations of this process, each within the seconds.
LOCKED = "rows that another session of the database keeps locked; it is tried again each cycle:"
LOCKED_TIMES, LOCKED_SECONDS = 3, 900.0
_locked = SharedCounts()
#: Where cycles are short, what else a process does between two polls may take as long.
EXPLAINED_SECONDS = 30.0


def evaluate_one(pk: Any, *, light: bool = False) -> None:
    """Evaluate one request, due or not. It is fine if another process holds the lease.

    Args:
        light: leave to others what may take minutes, and have it due at once.
    """
    left_out = HEAVY if light else ()
    with evaluating(pk, owner=process_name()) as evaluation:
        if evaluation is not None:
            check_request(evaluation, left_out)
    if evaluation is not None and evaluation.request.status in left_out:
        notify(EVALUATE_DUE)  # a worker that is called finds the lease free


def evaluate_due(*, seconds: float) -> int:
    """Evaluate what is due, a batch at a time, until nothing is or the time is over; how many evaluations there were."""
    ends_at, count = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at and may_take(QUEUE):
        before = count
        with evaluating_due(owner=process_name(), limit=BATCH) as evaluations:
            for evaluation in evaluations:
                check_request(evaluation)
                count += 1
        if count == before:
            break
    return count


def check_request(evaluation: Evaluation, left_out: Collection[str] = ()) -> None:
    """Until the status stays, or there is nothing to do; then set when it is due again."""
    request = evaluation.request
    with structlog.contextvars.bound_contextvars(request_name=request.request_name, dag_id=evaluation.dag_id):
        try:
            _steps(evaluation, left_out)
            _report_forgotten(evaluation)
        except StaleState as error:
            EVALUATIONS_TOTAL.labels(request.status, "stale").inc()
            log.info("evaluation gave way", why=str(error))
            evaluation.again_in(POLL_SECONDS)
            if not isinstance(error, LeaseLost):  # else another evaluation says what there is to say
                _report(evaluation, f"{CHANGED} {error}")
        except Exception as error:  # the others must be served; a later evaluation tries this one again
            evaluation.again_next_cycle()
            if lock_refused(error):
                EVALUATIONS_TOTAL.labels(request.status, "locked").inc()
                LOCKS_REFUSED_TOTAL.labels("evaluation").inc()
                first_line = str(error).partition("\n")[0]
                log.warning("locked by another process, tried again later", status=request.status, error=first_line)
                # how often in a row, as far as this process knows; it is about to be said, so a few more do not matter
                if _locked.ask(lambda counts: counts.add(str(request.pk), LOCKED_SECONDS, anew=True))[0] >= LOCKED_TIMES:
                    _report(evaluation, f"{LOCKED} {first_line}")
                return
            EVALUATIONS_TOTAL.labels(request.status, "error").inc()
            log.exception("evaluation failed", status=request.status)
            what = f"{type(error).__name__}: {error}"
            _report(evaluation, f"{BROKEN} {what}", last_error=what)


def _steps(evaluation: Evaluation, left_out: Collection[str]) -> None:
    request = evaluation.request
    alert_stuck_effects(evaluation)
    for step in range(MAX_STEPS):
        status = request.status
        if status not in EVALUATED:
            return
        if status in left_out:
            evaluation.again_in(0)
            return
        if step:  # handlers write it by rows of their own
            workflow = Workflow.objects.defer("psets").filter(request=request).first()
            if workflow is not None:
                request.workflow = workflow
        evaluation.due_at = evaluation.dag = evaluation.blocks = None  # what was said of a former status
        evaluate(evaluation)
        EVALUATIONS_TOTAL.labels(status, "ok").inc()
        _works_again(evaluation)
        if request.status == status:
            _say_when_due(evaluation)
            return
    evaluation.again_in(0)


def _say_when_due(evaluation: Evaluation) -> None:
    """When a request that nothing wakes is evaluated again, in any status, beside what the handlers have said."""
    request = evaluation.request
    if request.status in IN_STEPS:
        evaluation.again_next_cycle()
    if request.next_attempt_at is not None and request.next_attempt_at > clock.now():
        evaluation.again_at(request.next_attempt_at)


def _report_forgotten(evaluation: Evaluation) -> None:
    """A sweep that finds something to do has found a request that would have stood still: a defect of WMS2.

    Unless it only came before the poll or the answer of a schedd that would have woken it just then: that shows within two
    cycles. The alert is over with the next evaluation that something has woken, or whose sweep finds nothing.
    """
    if evaluation.unexplained:
        FORGOTTEN_TOTAL.inc()
        log.error("forgotten request: nothing woke it, and there was something to do", did=evaluation.unexplained)
        alert(evaluation.request, "forgotten", f"nothing woke it, and a sweep found something to do: {evaluation.unexplained}")
    elif not (evaluation.swept and evaluation.written):
        alert_over(evaluation, "forgotten")
    if evaluation.swept and evaluation.written:
        evaluation.found = "; ".join(evaluation.written)[:4000]
        evaluation.again_in(max(EXPLAINED_SECONDS, 2 * conf().cycle_seconds + POLL_SECONDS))


def _report(evaluation: Evaluation, waiting_for: str, **more: str) -> None:
    """Say on the request what broke, and look at the clock: a step that breaks every time must not stay as it is for ever."""
    words = {name: text.replace("\0", "") for name, text in {"waiting_for": waiting_for, **more}.items()}  # PostgreSQL refuses it
    with row_by_itself("evaluations", evaluation.request, partial(report_broken, pk=evaluation.request.pk)):
        try:
            evaluation.note(**words)
            watch_timeout(evaluation)
        except StaleState as gone:
            log.info("evaluation gave way", why=str(gone))


def _works_again(evaluation: Evaluation) -> None:
    """What a broken evaluation or a failed attempt has said stands no longer, where the step that works says nothing itself. The
    attempt of a queued one is admission's to make, and that of one in planning ends with a transition."""
    request = evaluation.request
    if request.waiting_for.startswith(BROKEN):
        evaluation.note(waiting_for="", last_error="")
    elif request.waiting_for.startswith((CHANGED, LOCKED)):
        evaluation.note(waiting_for="")
    paused = request.next_attempt_at is not None and request.next_attempt_at > clock.now()
    attempted = request.status not in (RequestStatus.QUEUED, RequestStatus.PLANNING)
    if request.failed_attempts and attempted and not evaluation.failed and not paused:
        evaluation.note(last_error="", failed_attempts=0, next_attempt_at=None)


HANDLERS: dict[str, Callable[[Evaluation], None]] = {
    RequestStatus.SUBMITTED: handle_submitted,
    RequestStatus.QUEUED: handle_queued,
    RequestStatus.PLANNING: handle_planning,
    RequestStatus.ACTIVE: handle_active,
    RequestStatus.PARTIAL: handle_partial,
    RequestStatus.STOPPING: handle_stopping,
    RequestStatus.RESUBMITTING: handle_resubmitting,
    RequestStatus.HELD: handle_held,
    RequestStatus.VALIDATING_OUTPUTS: handle_validating,
    RequestStatus.WAITING_INTEGRITY: handle_waiting_integrity,
    RequestStatus.VALIDATED_OUTPUTS: handle_validated,
    RequestStatus.REMOVING_FILES: handle_removing,
    RequestStatus.CLEANING: handle_cleaning,
}


def evaluate(evaluation: Evaluation) -> None:
    """Do one step of the request by its status, then check its blocks and the clock."""
    HANDLERS[evaluation.request.status](evaluation)
    blocks_close_due(evaluation)
    alert_missing(evaluation)
    watch_timeout(evaluation)
