"""Who starts next: order, limits over live DAG rows, failing requests passed over, room on the schedd."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dags_app.models import DAGStatus
from requests_app.admission import decide, queue, slots_used
from requests_app.limits import limit_set
from requests_app.models import RequestStatus
from sites_app.models import ScheddState
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row

pytestmark = pytest.mark.django_db
QUEUED = RequestStatus.QUEUED


def limit(name: str, value: int) -> None:
    limit_set(name=name, value=value, actor="tester", reason="test")


def test_the_order_is_urgent_then_priority_then_time_queued() -> None:
    now = timezone.now()
    late = request_row(QUEUED, priority=500, queued_at=now)
    early = request_row(QUEUED, priority=500, queued_at=now - timedelta(hours=1))
    high = request_row(QUEUED, priority=900, queued_at=now)
    urgent = request_row(QUEUED, priority=1, urgent=True, queued_at=now)
    assert list(queue()) == [urgent, high, early, late]


def test_only_as_many_start_as_slots_are_free_and_the_others_are_told_their_place() -> None:
    schedd_row()
    limit("max_active_dags", 2)
    running = workflow_row(request_row(RequestStatus.ACTIVE))
    dag_row(running, DAGStatus.RUNNING)
    first, second = request_row(QUEUED, priority=900), request_row(QUEUED, priority=100)
    assert decide(first).admitted
    answer = decide(second)
    assert not answer.admitted
    assert "place 2" in answer.waits_for


def test_each_queued_request_is_told_the_place_it_has_in_the_queue() -> None:
    schedd_row()
    limit("max_active_dags", 1)
    now = timezone.now()
    for urgent, priority, minutes in [(False, 5, 1), (True, 1, 0), (False, 5, 2), (False, 9, 0), (True, 2, 0), (False, 5, 1)]:
        request_row(QUEUED, urgent=urgent, priority=priority, queued_at=now - timedelta(minutes=minutes))
    first, *others = queue()
    assert decide(first).admitted
    assert [decide(request).waits_for.split()[3] for request in others] == ["2", "3", "4", "5", "6"]


def test_places_far_behind_are_not_counted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    schedd_row()
    limit("max_active_dags", 1)
    monkeypatch.setattr("requests_app.admission.COUNTED_PLACES", 2)
    rows = [request_row(QUEUED, priority=priority) for priority in (9, 8, 7, 6)]
    assert [decide(row).waits_for for row in rows[1:]] == [
        "its turn: place 2 in the queue, 1 free slots",
        "its turn: 2 or more before it in the queue, 1 free slots",
        "its turn: 2 or more before it in the queue, 1 free slots",
    ]


def test_held_and_ended_requests_hold_no_slot_and_planning_ones_do() -> None:
    for status in (RequestStatus.HELD, RequestStatus.COMPLETED, RequestStatus.ABORTED):
        dag_row(workflow_row(request_row(status)), DAGStatus.REMOVED)
    assert slots_used() == 0
    workflow_row(request_row(RequestStatus.PLANNING))
    assert slots_used() == 1
    both = workflow_row(request_row(RequestStatus.PLANNING))
    dag_row(both, DAGStatus.READY)
    assert slots_used() == 2, "a planning request and its DAG row are one slot"


def test_a_request_that_failed_to_plan_is_passed_over_not_waited_for() -> None:
    schedd_row()
    limit("max_active_dags", 1)
    failing = request_row(QUEUED, priority=900, next_attempt_at=timezone.now() + timedelta(minutes=5), last_error="dbs: down")
    other = request_row(QUEUED, priority=1)
    assert "dbs: down" in decide(failing).waits_for
    assert decide(other).admitted


def test_a_schedd_is_full_when_its_dagman_slots_are() -> None:
    limit("dag_max_merge_groups", 4)
    full = schedd_row("full", max_dagman_slots=9)  # 9 // (1 + 4) = 1 DAG
    schedd_row("drained", state=ScheddState.DRAINING)
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=full)
    answer = decide(request_row(QUEUED))
    assert not answer.admitted
    assert "full: 1 of 1 DAGs" in answer.waits_for
    assert "drained: state draining" in answer.waits_for


def test_the_emptier_schedd_is_chosen_and_the_rejected_one_explained() -> None:
    busy, free = schedd_row("busy"), schedd_row("free")
    silent = schedd_row("silent", unreachable_since=timezone.now())
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=busy)
    answer = decide(request_row(QUEUED))
    assert answer.schedd == free
    assert answer.placement is not None
    assert silent.name in answer.placement["rejected"]


def test_the_idle_job_budget_holds_back_a_dag_that_would_pass_it() -> None:
    schedd_row()
    limit("idle_job_budget", 10)
    answer = decide(request_row(QUEUED))
    assert not answer.admitted
    assert "idle-job budget" in answer.waits_for
