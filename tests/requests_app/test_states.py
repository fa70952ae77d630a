"""The status table: every edge works and is recorded, everything else is refused, and nobody writes over somebody else."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from requests_app import states
from requests_app.models import EvaluationLease, Event, HoldCode, Request, RequestStatus, RequestTransition, StopIntent, Workflow
from tests.support.cases import in_one_test
from tests.support.rows import request_row, workflow_row
from wms2.errors import InvalidTransition, StaleState

pytestmark = pytest.mark.django_db
EDGES = [(a, b) for a, edges in states.TRANSITIONS.items() for b in edges]
NOT_EDGES = [(a, b) for a in RequestStatus for b in RequestStatus if b not in states.TRANSITIONS[a]]


def needed(to: RequestStatus) -> dict[str, object]:
    if to is RequestStatus.HELD:
        return states.hold_changes(HoldCode.OPERATOR, "a reason")
    return {"stop_intent": StopIntent.HOLD} if to is RequestStatus.STOPPING else {}


@in_one_test("old, new", EDGES, rows=True)
def test_every_edge_changes_the_status_with_its_audit_rows_and_the_workflows_mirror(
    old: RequestStatus, new: RequestStatus
) -> None:
    request = request_row(old)
    workflow_row(request)
    states.transition(request, new, actor="anna", reason="because", evidence={"n": 1}, **needed(new))
    stored = Request.objects.get(pk=request.pk)
    assert stored.status == new == request.status
    assert stored.status_since == request.status_since
    row = RequestTransition.objects.get(request=request)
    assert (row.from_status, row.to_status, row.actor, row.reason, row.evidence) == (old, new, "anna", "because", {"n": 1})
    assert Event.objects.get(request=request).data["to"] == new
    assert Workflow.objects.get(request=request).status == states.WORKFLOW_STATUS[new]


def test_what_is_not_in_the_table_is_refused_and_nothing_is_written() -> None:
    for old, new in NOT_EDGES:
        request = request_row(old)
        with pytest.raises(InvalidTransition, match="cannot become"):
            states.transition(request, new, actor="anna", reason="because", **needed(new))
        assert Request.objects.get(pk=request.pk).status == old
    assert not RequestTransition.objects.exists()


def test_a_stale_reader_changes_nothing() -> None:
    request = request_row(RequestStatus.QUEUED)
    late = Request.objects.get(pk=request.pk)
    states.transition(request, RequestStatus.PLANNING, actor="lifecycle", reason="first")
    with pytest.raises(StaleState):
        states.transition(late, RequestStatus.ABORTED, actor="anna", reason="second")
    assert Request.objects.get(pk=request.pk).status == RequestStatus.PLANNING
    assert RequestTransition.objects.count() == 1


def test_an_evaluation_whose_lease_was_taken_over_changes_nothing() -> None:
    request = request_row(RequestStatus.QUEUED)
    EvaluationLease.objects.create(request=request, epoch=7)
    with pytest.raises(StaleState):
        states.transition(request, RequestStatus.PLANNING, actor="lifecycle", reason="old", lease_epoch=6)
    assert Request.objects.get(pk=request.pk).status == RequestStatus.QUEUED


def test_leaving_held_clears_the_hold_and_entering_the_queue_notes_the_time() -> None:
    request = request_row(RequestStatus.HELD, queued_at=None)
    states.transition(request, RequestStatus.QUEUED, actor="anna", reason="released")
    assert (request.hold_code, request.hold_reason) == ("", "")
    assert Request.objects.get(pk=request.pk).queued_at is not None


def test_the_database_refuses_a_held_request_without_a_reason() -> None:
    with pytest.raises(IntegrityError, match="request_held_has_reason"), transaction.atomic():
        request_row(RequestStatus.HELD, hold_reason="")


def test_the_database_refuses_an_unknown_status() -> None:
    with pytest.raises(IntegrityError, match="request_status_known"), transaction.atomic():
        request_row("sleeping")  # type: ignore[arg-type]


def test_failed_can_only_be_reached_from_where_a_person_decides() -> None:
    assert {a for a, edges in states.TRANSITIONS.items() if RequestStatus.FAILED in edges} == {
        RequestStatus.PARTIAL,
        RequestStatus.STOPPING,
        RequestStatus.HELD,
    }


def test_every_status_but_the_terminal_ones_has_a_way_out() -> None:
    stuck = [s for s in RequestStatus if not set(states.TRANSITIONS[s]) - {RequestStatus.CLEANING}]
    assert set(stuck) == {RequestStatus.FAILED, RequestStatus.ABORTED, RequestStatus.CLEANED}
