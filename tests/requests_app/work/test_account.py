"""What readers see of the ledger: counted anew while a request goes on, once when it has ended, and slow counts for a while."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache

from requests_app.models import Request, RequestStatus, Workflow
from requests_app.selectors import account
from requests_app.selectors.account import account_of, kept_seconds
from requests_app.states import transition
from tests.support.rows import request_row, workflow_row

pytestmark = pytest.mark.django_db
S = RequestStatus


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Workflows in the order in which their ledgers were counted."""
    made: list[str] = []
    count = account.ledger_of

    def counted(workflow: Workflow) -> object:
        made.append(str(workflow.pk))
        return count(workflow)

    monkeypatch.setattr(account, "ledger_of", counted)
    return made


def row(status: RequestStatus) -> tuple[Request, Workflow]:
    workflow = workflow_row(request_row(status))
    return workflow.request, workflow


def test_a_request_that_goes_on_is_counted_each_time(counts: list[str]) -> None:
    request, workflow = row(S.ACTIVE)
    assert account_of(request, workflow) == account_of(request, workflow)
    assert len(counts) == 2


@pytest.mark.parametrize("status", [S.COMPLETED, S.ARCHIVED, S.ABORTED, S.FAILED, S.CLEANED])
def test_one_that_has_ended_is_counted_once(counts: list[str], status: RequestStatus) -> None:
    request, workflow = row(status)
    first = account_of(request, workflow)
    assert first.numbers["all_events"] == 3200
    assert account_of(request, workflow) == first
    assert len(counts) == 1


def test_a_change_of_status_is_a_new_account(counts: list[str]) -> None:
    request, workflow = row(S.COMPLETED)
    account_of(request, workflow)
    transition(request, S.ARCHIVED, actor="tester", reason="for a test")
    account_of(request, workflow)
    assert len(counts) == 2


def test_two_requests_have_two_accounts(counts: list[str]) -> None:
    for _ in range(2):
        account_of(*row(S.COMPLETED))
    assert len(set(counts)) == 2


def test_a_count_that_took_long_is_shown_ten_times_as_long_and_never_more_than_a_minute() -> None:
    request, _ = row(S.ACTIVE)
    assert kept_seconds(request, 0.4) == 0
    assert kept_seconds(request, 3.0) == 30
    assert kept_seconds(request, 90.0) == 60


def test_a_slow_count_is_kept(counts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    request, workflow = row(S.ACTIVE)
    monkeypatch.setattr(account, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(account, "TIMES_KEPT", 1e6)
    assert account_of(request, workflow) == account_of(request, workflow)
    assert len(counts) == 1
