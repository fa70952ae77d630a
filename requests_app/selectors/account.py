"""The ledger's numbers for readers: as the life cycle counts them, a violation told instead of raised.

Counting an input of 100,000 files takes seconds, and pages ask again every few seconds. So the account of a request at an end is
counted once in each process, and one that took long to count is shown for a while: readers may see numbers that are at most
``MOST_KEPT_SECONDS`` old. The life cycle itself always counts (``requests_app.work.ledger``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache

from requests_app.models import TERMINAL, Request, RequestStatus, Workflow
from requests_app.work.ledger import ledger_check, ledger_of
from wms2.errors import LedgerViolation

#: Nothing is claimed or credited any more; what brings such a request back changes its status.
ENDS = frozenset({*TERMINAL, RequestStatus.COMPLETED})
ENDED_KEPT_SECONDS = 3600.0
#: Counts quicker than this are made each time; slower ones are shown so many times as long as they took.
QUICK_SECONDS, TIMES_KEPT, MOST_KEPT_SECONDS = 0.5, 10.0, 60.0


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers, one line about them, and what does not add up."""

    numbers: dict[str, Any]
    summary: str
    violation: str


def account_of(request: Request, workflow: Workflow) -> Account:
    """Where the work of a request stands; a few grouped queries, whatever the size of its input."""
    key = f"account:{workflow.pk}:{request.status}:{request.status_since.isoformat()}"
    kept: Account | None = cache.get(key)
    if kept is not None:
        return kept
    begun = time.monotonic()
    account = _counted(workflow)
    seconds = kept_seconds(request, time.monotonic() - begun)
    if seconds > 0:
        cache.set(key, account, seconds)
    return account


def kept_seconds(request: Request, took_seconds: float) -> float:
    """How long a count that took so long may be shown; 0: not at all."""
    if request.status in ENDS:
        return ENDED_KEPT_SECONDS
    return min(took_seconds * TIMES_KEPT, MOST_KEPT_SECONDS) if took_seconds > QUICK_SECONDS else 0.0


def _counted(workflow: Workflow) -> Account:
    try:
        ledger = ledger_of(workflow)
    except LedgerViolation as error:
        return Account({}, "", str(error))
    try:
        ledger_check(ledger)
    except LedgerViolation as error:
        return Account(ledger.as_dict(), ledger.summary(), str(error))
    return Account(ledger.as_dict(), ledger.summary(), "")
