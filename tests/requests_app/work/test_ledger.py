"""The account of a request's work adds up, whatever happened to its units."""

from __future__ import annotations

import pytest

from dags_app.models import LIVE_UNIT, DAGStatus, WorkUnitState
from dags_app.planning.specs import ClaimKind, ClaimSpec
from dags_app.services.plan import claim_rows, claims_record
from requests_app.models import InputFile, Workflow
from requests_app.work.ledger import files_left, ledger_check, ledger_of
from tests.support.rows import dag_row, input_spec, unit_row, workflow_row
from wms2.errors import LedgerViolation

pytestmark = pytest.mark.django_db


def unit(workflow: Workflow, state: WorkUnitState, *claims: ClaimSpec):
    dag = workflow.dags.first() or dag_row(workflow, DAGStatus.RUNNING)
    fields = {"manifest_sha256": "x" * 64, "fence": 1} if state is WorkUnitState.DONE else {}
    row = unit_row(dag, dag.work_units.count(), state=state, **fields)
    files = {f.lfn: (f.pk, f.events) for f in InputFile.objects.filter(workflow=workflow)}
    claims_record(r._replace(live=state in LIVE_UNIT) for c in claims for r in claim_rows(row.pk, c, workflow.number, files))
    return row


def generated(first: int, last: int) -> ClaimSpec:
    return ClaimSpec(ClaimKind.GENERATED, first, last, run=1, first_lumi=first, last_lumi=last)


def events_of(lfn: str, first: int, last: int) -> ClaimSpec:
    return ClaimSpec(ClaimKind.FILE_EVENTS, first, last, lfn)


@pytest.fixture(name="with_input")
def _with_input() -> Workflow:
    workflow = workflow_row(spec=input_spec())
    for name, events in {"a": 100, "b": 100, "c": 100, "d": 0, "e": 100, "f": 100}.items():
        InputFile.objects.create(workflow=workflow, lfn=f"/{name}", block_name="/x/y/Z#1", size_bytes=1, events=events)
    return workflow


def test_generation_counts_done_planned_lost_and_left() -> None:
    workflow = workflow_row(next_first_event=401)
    unit(workflow, WorkUnitState.DONE, generated(1, 100))
    unit(workflow, WorkUnitState.PLANNED, generated(101, 200))
    unit(workflow, WorkUnitState.DONE_UNACCOUNTED, generated(201, 300))
    unit(workflow, WorkUnitState.FAILED, generated(301, 400))
    ledger = ledger_check(ledger_of(workflow))
    assert (ledger.done_events, ledger.planned_events, ledger.lost_events) == (100, 200, 100)
    assert ledger.left_events == 3200 - 300, "a lost range is made up for by later numbers"


def test_claiming_more_numbers_than_were_taken_is_a_violation() -> None:
    workflow = workflow_row(next_first_event=50)
    unit(workflow, WorkUnitState.PLANNED, generated(1, 100))
    with pytest.raises(LedgerViolation, match="event numbers"):
        ledger_check(ledger_of(workflow))


def test_files_are_in_exactly_one_state_each(with_input: Workflow) -> None:
    unit(with_input, WorkUnitState.DONE, events_of("/a", 0, 99))
    unit(with_input, WorkUnitState.PLANNED, events_of("/b", 0, 99), events_of("/d", 0, 0))
    unit(with_input, WorkUnitState.FAILED, events_of("/c", 0, 99))
    InputFile.objects.filter(lfn="/e").update(excluded_at="2026-01-01T00:00:00Z", excluded_reason="bad", excluded_kind="lost")
    ledger = ledger_check(ledger_of(with_input))
    assert ledger.summary() == "1 files done, 2 planned, 1 attempted, 1 excluded, 1 left of 6"
    assert (ledger.done_events, ledger.planned_events, ledger.left_events, ledger.excluded_events) == (100, 100, 200, 100)


def test_fresh_files_come_before_those_of_failed_units(with_input: Workflow) -> None:
    unit(with_input, WorkUnitState.FAILED, events_of("/a", 0, 99))
    assert [f.lfn for f in files_left(with_input)] == ["/b", "/c", "/d", "/e", "/f", "/a"]


def test_a_partly_claimed_file_is_left_until_all_its_events_are_claimed(with_input: Workflow) -> None:
    unit(with_input, WorkUnitState.DONE, events_of("/a", 0, 39))
    assert ledger_of(with_input).done_files == 0
    assert "/a" in {f.lfn for f in files_left(with_input)}
    unit(with_input, WorkUnitState.DONE, events_of("/a", 40, 99))
    assert ledger_of(with_input).done_files == 1
    assert "/a" not in {f.lfn for f in files_left(with_input)}


def test_a_finished_empty_file_is_done(with_input: Workflow) -> None:
    unit(with_input, WorkUnitState.DONE, events_of("/d", 0, 0))
    ledger = ledger_check(ledger_of(with_input))
    assert ledger.done_files == 1
    assert ledger.done_events == 0


def test_more_events_claimed_than_a_file_has_is_a_violation(with_input: Workflow) -> None:
    unit(with_input, WorkUnitState.DONE, events_of("/a", 0, 99))
    InputFile.objects.filter(lfn="/a").update(events=60)
    with pytest.raises(LedgerViolation, match="/a"):
        ledger_of(with_input)
