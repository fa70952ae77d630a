"""Who starts next: order, limits over live DAG rows, failing requests passed over, room on the schedd."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dags_app.models import DAGKind, DAGStatus
from dags_app.services.plan import dag_record_rescue
from requests_app.admission import decide, queue, schedd_for, slots_used
from requests_app.lease import evaluating
from requests_app.lifecycle.planning import handle_queued
from requests_app.limits import limit_set
from requests_app.models import RequestStatus, Round
from sites_app.models import Schedd, ScheddState
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
    full = schedd_row("full", max_dagman_slots=9)
    schedd_row("drained", state=ScheddState.DRAINING)
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=full, merge_groups=4)
    answer = decide(request_row(QUEUED))
    assert not answer.admitted
    assert "full: 1 DAGs with 5 of 9 DAGMan slots, 5 more are needed" in answer.waits_for
    assert "drained: state draining" in answer.waits_for


def test_a_dag_takes_as_many_slots_as_it_was_rendered_with_whatever_the_limit_is_now() -> None:
    schedd = schedd_row(max_dagman_slots=20)
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=schedd, merge_groups=10)
    limit("dag_max_merge_groups", 4)
    assert decide(request_row(QUEUED, priority=2)).admitted  # 11 + 5 of 20
    limit("dag_max_merge_groups", 9)
    assert not decide(request_row(QUEUED, priority=1)).admitted  # 11 + 10
    limit("idle_job_budget", 13 * 8)
    limit("dag_max_merge_groups", 4)
    assert "idle-job budget: 112 of 104" in decide(request_row(QUEUED, priority=3)).waits_for  # (10 + 4) units of 8 jobs


def test_what_is_being_planned_has_its_slots_already() -> None:
    limit("dag_max_merge_groups", 4)
    schedd, other = schedd_row("first", max_dagman_slots=6), schedd_row("second", max_dagman_slots=5)
    planning = request_row(RequestStatus.PLANNING, reserved_schedd=schedd, reserved_slots=5)
    second = request_row(QUEUED, priority=2)
    assert decide(second).schedd == other
    request_row(RequestStatus.PARTIAL, reserved_schedd=other, reserved_slots=5)
    assert "first: 1 DAGs with 5 of 6" in decide(second).waits_for
    assert schedd_for(planning).schedd == schedd, "its own reservation does not stand in its way"
    dag_row(workflow_row(planning), DAGStatus.READY, schedd=schedd, merge_groups=4)
    assert "first: 1 DAGs with 5 of 6" in decide(second).waits_for, "counted once, by its DAG"


def test_a_rescue_waits_for_the_schedd_that_has_its_directory() -> None:
    limit("dag_max_merge_groups", 4)
    home = schedd_row("home", max_dagman_slots=15, submit_root="/of/home")
    schedd_row("roomy")
    request = request_row(QUEUED)
    failed = dag_row(workflow_row(request), DAGStatus.STOPPED, schedd=home, merge_groups=9)
    answer = decide(request)
    assert (answer.schedd, answer.slots) == (home, 10)
    home.state = ScheddState.DRAINING
    home.save()
    assert decide(request).schedd == home, "where nobody else sees its directory, a draining schedd keeps it"
    sees = schedd_row("sees", submit_root=home.submit_root)
    assert decide(request).schedd == sees
    sees.delete()
    for changes in ({"state": ScheddState.DISABLED}, {"state": ScheddState.ENABLED, "unreachable_since": timezone.now()}):
        Schedd.objects.filter(pk=home.pk).update(**changes)
        answer = decide(request)
        assert not answer.admitted
        assert answer.waits_for.startswith("its schedd, which has its DAG's directory: home: ")
    Round.objects.filter(pk=failed.round_id).update(closed_at=timezone.now())
    answer = decide(request)
    assert answer.schedd is not None and answer.schedd.name == "roomy", "the next round is planned anew, and goes anywhere"


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


def test_of_two_that_are_admitted_one_after_the_other_the_second_counts_the_first() -> None:
    limit("dag_max_merge_groups", 4)
    schedd = schedd_row(max_dagman_slots=9)
    requests = [workflow_row(request_row(QUEUED, priority=priority)).request for priority in (2, 1)]
    for request in requests:
        with evaluating(request.pk, owner="test") as evaluation:
            assert evaluation is not None
            handle_queued(evaluation)
        request.refresh_from_db()
    first, second = requests
    assert (first.status, first.reserved_schedd, first.reserved_slots) == (RequestStatus.PLANNING, schedd, 5)
    assert (second.status, second.reserved_schedd) == (QUEUED, None)
    assert "1 DAGs with 5 of 9 DAGMan slots" in second.waiting_for


def test_the_row_of_a_rescue_takes_the_slots_of_the_dag_it_rescues() -> None:
    failed = dag_row(workflow_row(), DAGStatus.PARTIAL, merge_groups=3)
    rescue = dag_record_rescue(failed=failed, kind=DAGKind.FAILURE_RESCUE, rescue_file="x.rescue001", priority=1)
    rescue.refresh_from_db()
    assert rescue.merge_groups == 3
