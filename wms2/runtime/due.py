"""Marks that a request has to be evaluated: a row in the writer's own transaction (ADR 0013).

Rows are only ever added here, so no writer waits for a row that another transaction has locked. An
evaluation removes those it sees when it takes the request's lease; what is committed later is there afterwards and has the
request evaluated once more. A transaction that rolls back marks nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from wms2.models import Wake
from wms2.runtime.notify import EVALUATE_REQUEST, notify


def mark_due(request_ids: Iterable[uuid.UUID], why: str) -> None:
    """Have these requests evaluated within the next poll; call it in the transaction that changes what they rest on.

    Args:
        why: a few words for people and metrics, e.g. "effect done".
    """
    Wake.objects.bulk_create([Wake(request_id=request_id, why=why) for request_id in request_ids])


def mark_due_now(request_id: uuid.UUID, why: str) -> None:
    """The same for what an operator has asked for: the worker of operations has it evaluated as soon as this is committed."""
    mark_due([request_id], why)
    notify(EVALUATE_REQUEST, str(request_id))
