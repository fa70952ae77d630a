"""What readers see of the ledger: counted once and again after each change, slow counts not at each."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dags_app.counts import unit_counts
from dags_app.models import DAGStatus, WorkUnit, WorkUnitClaim, WorkUnitState
from requests_app.models import InputFile, KeptAccount, Request, RequestStatus, Workflow
from requests_app.selectors import account
from requests_app.selectors.account import account_of, fresh_seconds
from requests_app.states import transition
from tests.support.rows import dag_row, request_row, unit_row, workflow_row

pytestmark = pytest.mark.django_db
S = RequestStatus


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


def row(status: RequestStatus) -> Workflow:
    return workflow_row(request_row(status))


def read(workflow: Workflow) -> KeptAccount:
    """As a page does: from the rows as they are now."""
    fresh = Request.objects.select_related("workflow__kept_account").get(pk=workflow.request.pk)
    return account_of(fresh, fresh.workflow, unit_counts([workflow.pk])[workflow.pk])


@pytest.mark.parametrize("status", [S.ACTIVE, S.COMPLETED])
def test_while_nothing_changes_it_is_counted_once_for_all_processes(counts: list[str], status: RequestStatus) -> None:
    workflow = row(status)
    first = read(workflow)
    assert first.numbers["all_events"] == 3200
    assert read(workflow) == first
    assert len(counts) == 1


def test_a_change_of_status_of_units_of_numbers_taken_or_of_exclusions_is_a_new_account(counts: list[str]) -> None:
    workflow = row(S.COMPLETED)
    read(workflow)
    transition(workflow.request, S.ARCHIVED, actor="tester", reason="for a test")
    read(workflow)
    unit = unit_row(dag_row(workflow, DAGStatus.COMPLETED), 0)
    read(workflow)
    WorkUnit.objects.filter(pk=unit.pk).update(state=WorkUnitState.FAILED)
    read(workflow)
    Workflow.objects.filter(pk=workflow.pk).update(next_first_event=101, input_dataset="/A/B/RAW")
    read(workflow)
    InputFile.objects.create(
        workflow=workflow, lfn="/store/a", block_name="/A/B/RAW#1", size_bytes=1, events=1, excluded_at=timezone.now(),
        excluded_reason="lost", excluded_kind="lost",
    )  # fmt: skip
    read(workflow)
    read(workflow)
    assert len(counts) == 6


def test_two_requests_have_two_accounts(counts: list[str]) -> None:
    for _ in range(2):
        read(row(S.COMPLETED))
    assert len(set(counts)) == 2


def test_a_count_that_took_long_is_shown_ten_times_as_long_and_never_more_than_a_minute() -> None:
    assert fresh_seconds(0.4) == 0
    assert fresh_seconds(3.0) == 30
    assert fresh_seconds(90.0) == 60


def test_a_slow_count_is_shown_over_changes_for_a_while(counts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = row(S.ACTIVE)
    monkeypatch.setattr(account, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(account, "TIMES_FRESH", 1e6)
    first = read(workflow)
    Workflow.objects.filter(pk=workflow.pk).update(next_first_event=101)
    assert read(workflow).numbers == first.numbers
    assert len(counts) == 1
    KeptAccount.objects.update(counted_at=timezone.now() - timedelta(seconds=61))
    read(workflow)
    assert len(counts) == 2


def test_an_evaluation_knows_whether_the_account_is_that_of_this_moment(
    counts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = row(S.ACTIVE)
    monkeypatch.setattr(account, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(account, "TIMES_FRESH", 1e6)

    def kept() -> tuple[int, bool]:
        fresh = Workflow.objects.get(pk=workflow.pk)
        ledger, present = account.stored_ledger(fresh.request, fresh)
        return ledger.all_events, present

    assert kept() == kept() == (3200, True)
    unit_row(dag_row(workflow, DAGStatus.COMPLETED), 0)
    assert kept() == (3200, False)
    assert len(counts) == 1


def test_an_evaluation_does_not_go_by_a_violation_that_a_page_has_seen_while_a_round_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workflow = row(S.ACTIVE)
    monkeypatch.setattr(account, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(account, "TIMES_FRESH", 1e6)
    before = Workflow.objects.get(pk=workflow.pk)
    Workflow.objects.filter(pk=workflow.pk).update(next_first_event=101)
    unit = unit_row(dag_row(workflow, DAGStatus.RUNNING), 0)
    WorkUnitClaim.objects.create(
        unit=unit, kind=WorkUnitClaim.KIND_GENERATED, scope=workflow.number, run=1, first=1, last=100, events=100, live=True
    )
    assert account_of(before.request, before, unit_counts([workflow.pk])[workflow.pk]).violation, "of two moments"
    now = Workflow.objects.get(pk=workflow.pk)
    ledger, present = account.stored_ledger(now.request, now)
    assert (ledger.planned_events, present) == (100, True)
