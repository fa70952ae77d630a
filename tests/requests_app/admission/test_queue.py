"""Who starts next: order, limits over live DAG rows, failing requests passed over, room on the schedd."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.models import DAG, DAGKind, DAGStatus
from dags_app.planning.sizing import Sizes
from dags_app.services.plan import dag_record_rescue
from requests_app.admission.placement import schedd_for, slots_used, units_follow
from requests_app.admission.queue import admit, admit_if_changed, eligible, in_order, policy_now
from requests_app.lease import evaluating
from requests_app.lifecycle.planning import handle_queued
from requests_app.limits import limit_set
from requests_app.models import AdmissionLimit, Request, RequestStatus, RequestTransition, Round
from sites_app.models import Schedd, ScheddState, Site
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from wms2.models import Wake

pytestmark = pytest.mark.django_db
QUEUED, PLANNING = RequestStatus.QUEUED, RequestStatus.PLANNING


def limit(name: str, value: int) -> None:
    limit_set(name=name, value=value, actor="tester", reason="test")


def waits(request: Request) -> str:
    """What a queued request is told."""
    request.refresh_from_db()
    assert request.status == QUEUED
    return request.waiting_for


def back(request: Request) -> None:
    """As if it had not been admitted."""
    Request.objects.filter(pk=request.pk).update(status=QUEUED, reserved_schedd=None, reserved_slots=0)


def test_the_order_is_urgent_then_priority_then_time_queued() -> None:
    now = timezone.now()
    late = request_row(QUEUED, priority=500, queued_at=now)
    early = request_row(QUEUED, priority=500, queued_at=now - timedelta(hours=1))
    high = request_row(QUEUED, priority=900, queued_at=now)
    urgent = request_row(QUEUED, priority=1, urgent=True, queued_at=now)
    assert list(in_order(eligible(), policy_now(), now)) == [urgent, high, early, late]


def test_only_as_many_start_as_slots_are_free_and_only_they_are_woken() -> None:
    schedd_row()
    limit("max_active_dags", 2)
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING)
    first, second, third = (request_row(QUEUED, priority=priority) for priority in (900, 100, 50))
    assert admit() == 1
    first.refresh_from_db()
    assert first.status == PLANNING
    assert [waits(request) for request in (second, third)] == ["its turn for a DAG slot"] * 2
    assert {wake.request_id for wake in Wake.objects.all()} == {first.pk}
    assert RequestTransition.objects.get(request=first).evidence["chosen"] == "schedd@test"
    assert admit() == 0
    unchanged = list(Request.objects.filter(status=QUEUED).values_list("waiting_for", "updated_at"))
    limit("max_active_dags", 3)
    assert admit() == 1
    assert Request.objects.values_list("waiting_for", "updated_at").get(status=QUEUED) in unchanged, "no cost of a long queue"
    assert waits(third) == "its turn for a DAG slot"


@pytest.mark.parametrize("length", [2, 40])
def test_a_pass_that_admits_nobody_takes_as_many_statements_whatever_the_length_of_the_queue(length: int) -> None:
    schedd_row(max_dagman_slots=2)
    for _ in range(length):
        request_row(QUEUED)
    admit()
    with CaptureQueriesContext(connection) as asked:
        admit()
    assert len([query for query in asked if "clock_timestamp" not in query["sql"]]) == 22
    writes = [query["sql"] for query in asked if query["sql"].startswith(("UPDATE", "INSERT"))]
    assert len(writes) <= 2, "one for each thing that is waited for, which finds no row"


@pytest.mark.parametrize("length", [2, 9])
def test_a_pass_reads_closed_sites_and_bans_once_and_no_specification(length: int) -> None:
    schedd_row()
    Site.objects.create(name="T2_OPEN"), Site.objects.create(name="T2_SHUT", status="disabled")
    for _ in range(length):
        workflow = workflow_row(request_row(QUEUED))
        workflow.spec |= {"site_whitelist": ["T2_OPEN"]}
        workflow.save(update_fields=["spec"])
    shut = workflow_row(request_row(QUEUED, priority=1))
    shut.spec |= {"site_whitelist": ["T2_SHUT"]}
    shut.save(update_fields=["spec"])
    with CaptureQueriesContext(connection) as asked:
        assert admit() == length
    read = [query["sql"] for query in asked if query["sql"].startswith("SELECT")]
    assert [sum(f'FROM "{table}"' in sql for sql in read) for table in ("sites", "site_bans", "workflows")] == [1, 1, 1]
    assert not [sql for sql in read if '"workflows"."spec",' in sql or '"workflows"."spec" FROM' in sql]
    assert waits(shut.request).startswith("a site: T2_SHUT is disabled")


def test_held_and_ended_requests_hold_no_slot_and_planning_ones_do() -> None:
    for status in (RequestStatus.HELD, RequestStatus.COMPLETED, RequestStatus.ABORTED):
        dag_row(workflow_row(request_row(status)), DAGStatus.REMOVED)
    assert slots_used() == 0
    workflow_row(request_row(PLANNING))
    assert slots_used() == 1
    both = workflow_row(request_row(PLANNING))
    dag_row(both, DAGStatus.READY)
    assert slots_used() == 2, "a planning request and its DAG row are one slot"


def test_a_request_that_failed_to_plan_is_passed_over_not_waited_for() -> None:
    schedd_row()
    limit("max_active_dags", 1)
    later = timezone.now() + timedelta(minutes=5)
    failing = workflow_row(request_row(QUEUED, priority=900, next_attempt_at=later, last_error="dbs: down")).request
    other = request_row(QUEUED, priority=1)
    with evaluating(failing.pk, owner="test") as evaluation:
        assert evaluation is not None
        handle_queued(evaluation)
    assert "dbs: down" in waits(failing)
    admit()
    assert "dbs: down" in waits(failing)
    other.refresh_from_db()
    assert other.status == PLANNING


def test_a_pause_that_is_over_is_taken_off_and_the_request_takes_part_again() -> None:
    schedd_row()
    request = workflow_row(request_row(QUEUED, next_attempt_at=timezone.now() - timedelta(seconds=1), failed_attempts=3)).request
    assert admit() == 0, "its own evaluation comes first: it may wait for the sites of its input"
    with evaluating(request.pk, owner="test") as evaluation:
        assert evaluation is not None
        handle_queued(evaluation)
    assert admit() == 1
    request.refresh_from_db()
    assert (request.status, request.failed_attempts) == (PLANNING, 3)


def test_those_who_cannot_be_placed_keep_nobody_behind_them_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requests_app.admission.queue.FURTHER", 2)
    limit("max_active_dags", 2)
    schedd_row("there")
    gone = schedd_row("gone", state=ScheddState.DISABLED, submit_root="/of/gone")
    heads = [request_row(QUEUED, priority=900 + n) for n in range(11)]
    for head in heads:
        rescue_of(head, gone)
    behind = [request_row(QUEUED, priority=1), request_row(QUEUED, priority=2)]
    passes = 0
    while Request.objects.filter(pk__in=[each.pk for each in behind], status=QUEUED).exists():
        admit()
        passes += 1
        assert passes <= 4
    assert all("gone: state disabled" in waits(head) for head in heads), "still told, also when others were looked at"
    Schedd.objects.update(state=ScheddState.ENABLED)
    limit("max_active_dags", 3)
    assert admit() == 1
    heads[-1].refresh_from_db()
    assert heads[-1].status == PLANNING, "once slots were taken the next pass begins with the first"


def test_those_above_their_limit_who_cannot_be_placed_hide_no_other_from_the_slots_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("requests_app.admission.queue.FURTHER", 2)
    limit("max_active_dags", 3)
    schedd_row("there")
    gone = schedd_row("gone", state=ScheddState.DISABLED, submit_root="/of/gone")
    AdmissionLimit.objects.create(kind="campaign", name="Run3", max_dags=1)
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE, campaign="Run3")), DAGStatus.RUNNING)
    heads = [request_row(QUEUED, priority=900 + n, campaign="Run3" if n % 2 else "") for n in range(13)]
    for head in heads:
        rescue_of(head, gone)
    behind = [request_row(QUEUED, priority=n, campaign="Run3") for n in (1, 2)]
    passes = 0
    while Request.objects.filter(pk__in=[each.pk for each in behind], status=QUEUED).exists():
        admit_if_changed()
        passes += 1
        assert passes <= 8
    assert {request.status for request in heads} == {QUEUED}
    for _ in range(9):
        admit_if_changed()
    with CaptureQueriesContext(connection) as asked:
        assert admit_if_changed() == 0
    assert len(asked) < 9, "once all were looked at no further pass is made"


def test_admission_stops_and_begins_again_with_a_gap_between() -> None:
    schedd_row(max_dagman_slots=1000)
    limit("idle_job_budget", 100)
    dag = running_dag(nodes_idle=100)
    request = request_row(QUEUED)
    for idle, started in ((100, 0), (95, 0), (90, 0), (89, 1)):
        DAG.objects.filter(pk=dag.pk).update(nodes_idle=idle)
        assert admit() == started
    back(request)
    DAG.objects.filter(pk=dag.pk).update(nodes_idle=95)
    assert admit() == 1, "below the high watermark"


def test_an_admission_writes_only_rows_that_wait_for_something_else_now() -> None:
    schedd_row()
    limit("max_active_dags", 1)
    for _ in range(20):
        request_row(QUEUED)
    admit()
    dag = Request.objects.get(status=PLANNING)
    before = dict(Request.objects.filter(status=QUEUED).values_list("pk", "updated_at"))
    admit()
    Request.objects.filter(pk=dag.pk).update(status=RequestStatus.HELD, hold_code="operator", hold_reason="x")
    assert admit() == 1, "a slot became free"
    after = dict(Request.objects.filter(status=QUEUED).values_list("pk", "updated_at"))
    assert all(before[pk] == at for pk, at in after.items())


def test_a_schedd_is_full_when_less_than_half_of_what_a_dag_would_use_is_left() -> None:
    limit("dag_max_merge_groups", 4)
    full = schedd_row("full", max_dagman_slots=7)
    schedd_row("drained", state=ScheddState.DRAINING)
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=full, merge_groups=4)
    request = request_row(QUEUED)
    assert admit() == 0
    assert "full: 1 DAGs with 5 of 7 DAGMan slots, 3 more are needed" in waits(request)
    assert "drained: state draining" in waits(request)
    Schedd.objects.filter(pk=full.pk).update(max_dagman_slots=8)
    assert admit() == 1
    request.refresh_from_db()
    assert request.reserved_slots == 3, "two units at once, of the four that it would run"


def test_a_dag_takes_as_many_slots_as_it_was_submitted_with_whatever_the_limit_is_now() -> None:
    schedd = schedd_row(max_dagman_slots=15)
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=schedd, merge_groups=10)
    request = request_row(QUEUED)
    limit("dag_max_merge_groups", 9)
    assert admit() == 0  # 11 + 6 of 15
    limit("dag_max_merge_groups", 3)
    assert admit() == 1  # 11 + 4
    request.refresh_from_db()
    assert request.reserved_slots == 4


def test_those_admitted_in_one_pass_count_each_other() -> None:
    limit("dag_max_merge_groups", 4)
    first, second = schedd_row("first", max_dagman_slots=5), schedd_row("second", max_dagman_slots=5)
    requests = [request_row(QUEUED, priority=priority) for priority in (3, 2, 1)]
    assert admit() == 2
    for request in requests:
        request.refresh_from_db()
    assert {request.reserved_schedd for request in requests[:2]} == {first, second}
    assert "first: 1 DAGs with 5 of 5" in waits(requests[2])


def test_what_is_being_planned_has_its_slots_already() -> None:
    limit("dag_max_merge_groups", 4)
    schedd, other = schedd_row("first", max_dagman_slots=6), schedd_row("second", max_dagman_slots=5)
    planning = request_row(PLANNING, reserved_schedd=schedd, reserved_slots=5)
    second = request_row(QUEUED, priority=2)
    assert admit() == 1
    second.refresh_from_db()
    assert second.reserved_schedd == other
    back(second)
    request_row(RequestStatus.PARTIAL, reserved_schedd=other, reserved_slots=5)
    assert admit() == 0
    assert "first: 1 DAGs with 5 of 6" in waits(second)
    dag = dag_row(workflow_row(planning), DAGStatus.READY, merge_groups=4)
    assert schedd_for(planning, dag).schedd == schedd, "its own reservation does not stand in its way"
    DAG.objects.filter(pk=dag.pk).update(schedd=schedd)
    assert admit() == 0
    assert "first: 1 DAGs with 5 of 6" in waits(second), "counted once, by its DAG"


def rescue_of(request: Request, schedd: Schedd) -> DAG:
    """The DAG that the request's next one rescues."""
    return dag_row(workflow_row(request), DAGStatus.STOPPED, schedd=schedd, merge_groups=9)


def test_a_rescue_waits_for_the_schedd_that_has_its_directory() -> None:
    limit("dag_max_merge_groups", 4)
    home = schedd_row("home", max_dagman_slots=15, submit_root="/of/home")
    schedd_row("roomy")
    request = request_row(QUEUED)
    failed = rescue_of(request, home)

    def admitted() -> Schedd | None:
        admit()
        request.refresh_from_db()
        return request.reserved_schedd

    assert (admitted(), request.reserved_slots) == (home, 10)
    back(request)
    home.state = ScheddState.DRAINING
    home.save()
    assert admitted() == home, "where nobody else sees its directory, a draining schedd keeps it"
    back(request)
    sees = schedd_row("sees", submit_root=home.submit_root)
    assert admitted() == sees
    back(request)
    sees.delete()
    for changes in ({"state": ScheddState.DISABLED}, {"state": ScheddState.ENABLED, "unreachable_since": timezone.now()}):
        Schedd.objects.filter(pk=home.pk).update(**changes)
        assert admitted() is None
        assert waits(request).startswith("its schedd, which has its DAG's directory: home: ")
    Round.objects.filter(pk=failed.round_id).update(closed_at=timezone.now())
    chosen = admitted()
    assert chosen is not None and chosen.name == "roomy", "the next round is planned anew, and goes anywhere"


def test_the_emptier_schedd_is_chosen_and_the_rejected_one_explained() -> None:
    busy, free = schedd_row("busy"), schedd_row("free")
    silent = schedd_row("silent", unreachable_since=timezone.now())
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=busy)
    request = request_row(QUEUED)
    assert admit() == 1
    request.refresh_from_db()
    assert request.reserved_schedd == free
    assert silent.name in RequestTransition.objects.get(request=request).evidence["rejected"]


def running_dag(**fields: object) -> DAG:
    """One that has been counted, of units with eight jobs."""
    values = {"observed_at": timezone.now(), "total_work_units": 10, "node_counts": {"Processing": 80}, "merge_groups": 5}
    return dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, **values | fields)


def test_a_dag_runs_as_many_units_as_its_share_of_what_is_left_of_the_idle_job_budget_allows() -> None:
    schedd_row(max_dagman_slots=1000)
    limit("idle_job_budget", 1000)
    limit("dag_max_merge_groups", 100)
    running_dag(nodes_idle=88, jobs={"roles": {"landing": {"idle": 1}, "processing": {"idle": 87}}})  # and the unit's 8 to come
    first, second = request_row(QUEUED, priority=2), request_row(QUEUED, priority=1)
    assert admit() == 2
    for request in (first, second):
        request.refresh_from_db()
        # (1000 - 87 - 8) jobs among three; 301 are 37 units
        assert request.reserved_slots == 1 + 37
    reported = RequestTransition.objects.get(request=first).evidence
    assert (reported["share_jobs"], reported["sharers"], reported["idle_taken"], reported["jobs_per_unit"]) == (301, 3, 95, 8)


def following(units: int, running: int, idle: int, **fields: object) -> DAG:
    """A DAG of 100 units of eight jobs that DAGMan knows to run so many at once, and so many jobs of it wait."""
    schedd = Schedd.objects.get()
    throttles = {"MergeGroup": 50, "Processing": 5000, "Merge": None, "Cleanup": None}
    return running_dag(
        total_work_units=100, node_counts={"Processing": 800}, merge_groups=units, nodes_idle=idle, schedd=schedd,
        observed={"max_jobs": units, "units_running": running}, throttles=throttles, **fields,
    )  # fmt: skip


def test_units_at_once_of_dags_that_run_follow_what_waits_of_their_jobs() -> None:
    schedd_row(max_dagman_slots=1000)
    limit("idle_job_budget", 400)
    limit("dag_max_merge_groups", 100)
    hungry, greedy, content = following(5, 5, 0), following(40, 40, 280), following(10, 10, 80)
    older = running_dag(merge_groups=4, observed={"units_running": 4})  # its DAGMan says no number
    # each of four may have 100 jobs waiting, and 40 of the budget are left
    assert {dag.pk: dag.merge_groups for dag in units_follow(transaction.atomic)} == {
        hungry.pk: 5 + 40 // 8,
        greedy.pk: 40 - 23,  # 180 jobs too many
        content.pk: 10 + 20 // 8,
    }
    older.refresh_from_db()
    assert older.merge_groups == 4
    assert len(units_follow(transaction.atomic)) == 3, "until their DAGMans say so"
    for dag in DAG.objects.exclude(pk=older.pk):
        DAG.objects.filter(pk=dag.pk).update(observed={"max_jobs": dag.merge_groups, "units_running": 1}, nodes_idle=399)
    assert max(dag.merge_groups for dag in units_follow(transaction.atomic)) == 1, "always one"


def test_units_at_once_grow_no_further_than_limits_slots_and_what_is_left() -> None:
    schedd = schedd_row(max_dagman_slots=30)
    limit("idle_job_budget", 100_000)
    limit("dag_max_merge_groups", 100)
    dag = following(5, 5, 0)
    assert units_follow(transaction.atomic)[0].merge_groups == 29, "and the outer DAGMan"
    Schedd.objects.filter(pk=schedd.pk).update(max_dagman_slots=1000)
    assert units_follow(transaction.atomic)[0].merge_groups == 50, "as its files say"
    Request.objects.filter(pk=dag.workflow.request.pk).update(overrides={"max_merge_groups": 20})
    assert units_follow(transaction.atomic)[0].merge_groups == 20
    DAG.objects.filter(pk=dag.pk).update(units_done=97)
    assert units_follow(transaction.atomic)[0].merge_groups == 3


def test_what_has_not_been_counted_yet_is_taken_for_waiting() -> None:
    schedd_row(max_dagman_slots=1000)
    limit("idle_job_budget", 100)
    running_dag(observed_at=None)  # five units of eight
    request_row(PLANNING, reserved_slots=6)  # the same
    request = request_row(QUEUED)
    assert admit() == 1
    request.refresh_from_db()
    assert request.reserved_slots == 2, "20 jobs among three are not one unit of eight; one runs all the same"


def test_nobody_starts_while_the_idle_job_budget_is_used_up() -> None:
    schedd_row()
    limit("idle_job_budget", 80)
    dag = running_dag(nodes_idle=80)
    request = request_row(QUEUED)
    assert admit() == 0
    assert waits(request) == "the idle-job budget: nothing starts until fewer than 72 jobs wait for a slot, or soon will"
    DAG.objects.filter(pk=dag.pk).update(nodes_idle=0, nodes_running=80)
    assert admit() == 1, "jobs that run wait for nothing"


def test_the_jobs_that_were_planned_settle_how_many_units_run_at_once() -> None:
    schedd_row(max_dagman_slots=1000)
    limit("idle_job_budget", 1000)
    limit("dag_max_merge_groups", 100)
    request = request_row(QUEUED)
    workflow = workflow_row(request)
    assert admit() == 1
    request.refresh_from_db()
    assert request.reserved_slots == 1 + 100  # 125 units of eight are its share, and 100 the limit
    dag = dag_row(workflow, DAGStatus.READY, total_work_units=30, node_counts={"Processing": 30 * 50}, merge_groups=30)
    assert schedd_for(request, dag).units == 1000 // 50
    dag.total_work_units, dag.node_counts = 3, {"Processing": 9}
    assert schedd_for(request, dag).units == 3, "no more than it has"
    Request.objects.filter(pk=request.pk).update(status=QUEUED, reserved_schedd=None, reserved_slots=0)
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.PARTIAL, submitted_at=timezone.now(), total_work_units=30)
    Round.objects.filter(pk=dag.round_id).update(closed_at=timezone.now())
    assert admit() == 1
    request.refresh_from_db()
    assert request.reserved_slots == 1 + 20, "the next round is taken to be like the one before"


def test_slots_that_were_promised_at_admission_are_enough_when_the_plan_could_use_more() -> None:
    limit("dag_max_merge_groups", 100)
    schedd = schedd_row(max_dagman_slots=40)
    request = request_row(PLANNING, reserved_schedd=schedd, reserved_slots=26)
    dag = dag_row(workflow_row(request), DAGStatus.READY, total_work_units=100, node_counts={"Processing": 800}, merge_groups=100)
    decision = schedd_for(request, dag)
    assert (decision.schedd, decision.slots) == (schedd, 40), "half of a hundred units have no room"
    Request.objects.filter(pk=request.pk).update(reserved_slots=0, reserved_schedd=None)
    request.refresh_from_db()
    assert schedd_for(request, dag).schedd is None


def test_an_operators_limits_of_categories_bound_the_units_at_once() -> None:
    schedd_row(max_dagman_slots=1000)
    request = request_row(QUEUED, overrides={"max_merge": 7})
    dag = dag_row(workflow_row(request), DAGStatus.READY, total_work_units=300, node_counts={"Processing": 2400})
    assert schedd_for(request, dag).units == 7, "each unit has one merge job"
    request.overrides = {"max_processing": 40, "max_cleanup": 9}
    assert schedd_for(request, dag).units == 5, "five units of eight jobs fill it"
    request.overrides = {"max_merge_groups": 200}
    assert schedd_for(request, dag).units == 200, "more than the installation's limit, where it was said for this request"


def test_a_rescue_may_run_another_number_of_units_where_its_directory_can_be_told() -> None:
    limit("dag_max_merge_groups", 4)
    home = schedd_row("home", max_dagman_slots=15)
    request = request_row(QUEUED)
    failed = rescue_of(request, home)
    DAG.objects.filter(pk=failed.pk).update(throttles={"MergeGroup": 9, "Processing": 5000, "Merge": None, "Cleanup": None})
    assert admit() == 1
    request.refresh_from_db()
    assert (request.reserved_schedd, request.reserved_slots) == (home, 5), "rendered with nine, it runs four"


def test_the_row_of_a_rescue_takes_the_slots_of_the_dag_it_rescues() -> None:
    failed = dag_row(workflow_row(), DAGStatus.PARTIAL, merge_groups=3)
    rescue = dag_record_rescue(failed=failed, kind=DAGKind.FAILURE_RESCUE, rescue_file="x.rescue001", priority=1, sizes=Sizes())
    rescue.refresh_from_db()
    assert rescue.merge_groups == 3


def test_one_that_cannot_be_read_keeps_nobody_from_starting_and_says_so_until_it_can() -> None:
    schedd_row()
    bad, good = (request_row(QUEUED, priority=priority) for priority in (900, 100))
    Request.objects.filter(pk=bad.pk).update(overrides={"max_processing": "many"})
    assert admit() == 1
    good.refresh_from_db()
    assert good.status == PLANNING
    assert waits(bad).startswith("a repair of WMS2; its step breaks, and is tried again each cycle: ValidationError")
    assert "max_processing" in bad.last_error
    Request.objects.filter(pk=bad.pk).update(overrides={"max_processing": 10})
    assert admit() == 1


def test_a_running_one_that_cannot_be_read_keeps_nobody_from_starting() -> None:
    schedd_row()
    bad = dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, observed_at=timezone.now())
    DAG.objects.filter(pk=bad.pk).update(node_counts={"Processing": "eighty"}, total_work_units=10)
    good = request_row(QUEUED)
    assert admit() == 1
    good.refresh_from_db()
    assert good.status == PLANNING
    assert "eighty" in Request.objects.get(workflow__dags=bad).waiting_for
