"""The ledger's numbers for readers: counted at once, a violation told instead of raised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from requests_app.input_sums import InputSums, input_sums
from requests_app.ledger import Ledger, ledger_check, ledger_of
from requests_app.models import Workflow
from wms2.errors import LedgerViolation


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers, one line about them, and what does not add up."""

    numbers: dict[str, Any]
    summary: str
    violation: str


def account_of(workflow: Workflow) -> Account:
    """Where the work of a workflow stands; three queries at most, whatever the size of its input."""
    try:
        ledger = _ledger(workflow)
    except LedgerViolation as error:
        return Account({}, "", str(error))
    try:
        ledger_check(ledger)
    except LedgerViolation as error:
        return Account(ledger.as_dict(), ledger.summary(), str(error))
    return Account(ledger.as_dict(), ledger.summary(), "")


def _ledger(workflow: Workflow) -> Ledger:
    if not workflow.input_dataset:
        return ledger_of(workflow)
    sums = input_sums(workflow.pk)
    if sums.overclaimed_files:
        raise LedgerViolation(f"{sums.overclaimed_files} files: more events are claimed than they have")
    return _of_input(sums)


def _of_input(sums: InputSums) -> Ledger:
    return Ledger(
        all_events=sums.all_events,
        done_events=sums.done_events,
        planned_events=sums.planned_events,
        excluded_events=sums.excluded_events,
        left_events=sums.left_events,
        lost_events=0,
        all_files=sums.all_files,
        done_files=sums.done_files,
        planned_files=sums.planned_files,
        attempted_files=sums.attempted_files,
        excluded_files=sums.excluded_files,
        left_files=sums.left_files,
        taken_numbers=0,
    )
