"""The ledger's numbers for readers: as the life cycle counts them, a violation reported instead of raised.

Counting an input of 100,000 files takes seconds, and pages ask again every few seconds. So what was counted last is kept in a row
with what it rests on: the request's status, what its workflow has taken, its units by state, its exclusions. It is counted again
when one of these is another, a count that takes long at most for a tenth of the time: readers may then see numbers that are at
most ``MOST_FRESH_SECONDS`` old. The row holds nothing that cannot be counted. Evaluations that are repeated decide by it while
nothing has changed (``stored_ledger``), other decisions by counts (``requests_app.work.ledger``).
"""

from __future__ import annotations

import time
from datetime import timedelta

from django.db.models import Count, Max
from django.utils import timezone

from dags_app.counts import UnitCounts, unit_counts
from requests_app.models import InputFile, KeptAccount, Request, Workflow
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from requests_app.work.spec import spec_of
from wms2.api.preconditions import etag_of
from wms2.errors import LedgerViolation
from wms2.runtime.json_columns import known

#: Counts quicker than this are made at each change; slower ones are shown so many times as long as they took.
QUICK_SECONDS, TIMES_FRESH, MOST_FRESH_SECONDS = 0.5, 10.0, 60.0
_STORED = ("basis", "numbers", "summary", "violation", "counted_at", "took_seconds")


def account_of(request: Request, workflow: Workflow, units: UnitCounts) -> KeptAccount:
    """Where the work of a request with these units stands: numbers, one line about them, and what does not add up."""
    return _stored(workflow, _basis(request, workflow, units))


def stored_ledger(request: Request, workflow: Workflow) -> tuple[Ledger, bool]:
    """The same as a ledger, and whether it is that of this moment.

    Raises:
        LedgerViolation: the numbers do not add up.
    """
    basis = _basis(request, workflow, unit_counts([workflow.pk])[workflow.pk])
    stored = _stored(workflow, basis)
    if stored.violation:
        raise LedgerViolation(stored.violation)
    by_lumi = spec_of(workflow).splitting.algorithm.by_lumi
    return Ledger(**known(Ledger, stored.numbers) | {"by_lumi": by_lumi}), stored.basis == basis


def _stored(workflow: Workflow, basis: str) -> KeptAccount:
    stored: KeptAccount | None = getattr(workflow, "kept_account", None)
    if stored is None or (stored.basis != basis and not _is_fresh(stored)):
        stored = _count(workflow, basis)
    return stored


def fresh_seconds(took_seconds: float) -> float:
    """How long a count that took so long may be shown although something has changed."""
    return min(took_seconds * TIMES_FRESH, MOST_FRESH_SECONDS) if took_seconds > QUICK_SECONDS else 0.0


def _is_fresh(stored: KeptAccount) -> bool:
    """A violation never is: a page may have read while a round was recorded."""
    return not stored.violation and timezone.now() - stored.counted_at < timedelta(seconds=fresh_seconds(stored.took_seconds))


def _basis(request: Request, workflow: Workflow, units: UnitCounts) -> str:
    """Another one after each change of the account: units go one way, claims with them; exclusions, cuts have later moments."""
    out = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=False)
    excluded = out.aggregate(number=Count("*"), last=Max("excluded_at")) if workflow.input_dataset else {}
    return etag_of(
        request.status, request.status_since, request.derived_by, workflow.requested_events, workflow.next_first_event,
        workflow.next_first_lumi, workflow.input_imported_at, workflow.input_grew_at, workflow.cut_at, units.as_dict(),
        *excluded.values(),
    )  # fmt: skip


def _count(workflow: Workflow, basis: str) -> KeptAccount:
    begun, now = time.monotonic(), timezone.now()
    row = KeptAccount(workflow=workflow, basis=basis, counted_at=now, numbers={})
    try:
        ledger = ledger_of(workflow)
        row.numbers, row.summary = ledger.as_dict(), ledger.summary()
        ledger_check(ledger)
    except LedgerViolation as error:
        row.violation = str(error)
    row.took_seconds = time.monotonic() - begun
    KeptAccount.objects.bulk_create([row], update_conflicts=True, unique_fields=["workflow"], update_fields=_STORED)
    return row
