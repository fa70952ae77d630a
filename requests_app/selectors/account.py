"""The ledger's numbers for readers: as the life cycle counts them, a violation told instead of raised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from requests_app.ledger import ledger_check, ledger_of
from requests_app.models import Workflow
from wms2.errors import LedgerViolation


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers, one line about them, and what does not add up."""

    numbers: dict[str, Any]
    summary: str
    violation: str


def account_of(workflow: Workflow) -> Account:
    """Where the work of a workflow stands; a few grouped queries, whatever the size of its input."""
    try:
        ledger = ledger_of(workflow)
    except LedgerViolation as error:
        return Account({}, "", str(error))
    try:
        ledger_check(ledger)
    except LedgerViolation as error:
        return Account(ledger.as_dict(), ledger.summary(), str(error))
    return Account(ledger.as_dict(), ledger.summary(), "")
