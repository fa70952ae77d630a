"""QUEUED -> PLANNING by admission, and RESUBMITTING -> QUEUED."""

from __future__ import annotations

from requests_app.admission import decide
from requests_app.lease import Evaluation
from requests_app.lifecycle.missing import look_for_locations
from requests_app.models import RequestStatus
from wms2.locks import LockKey, transaction_lock

S = RequestStatus


def handle_queued(evaluation: Evaluation) -> None:
    """Take a slot if it is this request's turn; otherwise say what it waits for."""
    if look_for_locations(evaluation):
        return
    with transaction_lock(LockKey.ADMISSION):
        decision = decide(evaluation.request)
        if decision.admitted:
            evaluation.transition(
                S.PLANNING,
                "admitted: a DAG slot is free and it is this request's turn",
                decision.placement,
                reserved_schedd=decision.schedd,
                reserved_slots=decision.slots,
            )
        else:
            evaluation.note(waiting_for=decision.waits_for)


def handle_resubmitting(evaluation: Evaluation) -> None:
    """The DAG is gone and its rescue file is there: back into the queue."""
    evaluation.transition(S.QUEUED, "stopped cleanly, to be resumed from its rescue file")
