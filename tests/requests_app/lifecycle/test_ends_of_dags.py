"""What the life cycle makes of the end of a DAG: contradicting evidence, what counts as failed, which rescue file may be run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dags_app.models import DAG, DAGKind, DAGStatus, WorkUnit, WorkUnitState
from requests_app.models import Event, HoldCode, Request, RequestStatus, RequestTransition
from requests_app.services import StopMode, request_abort, request_hold, request_release, request_stop
from requests_app.services.release import ReleaseMode, release_plan
from requests_app.work.ledger import ledger_of
from tests.support.scripted.dagman import Account
from tests.support.scripted.progress import cycles, run_on, started, status, work_done
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2.conf import conf

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus


def kinds(request: Request) -> list[str]:
    """Of the request's submitted DAGs, oldest first."""
    return list(DAG.objects.filter(workflow__request=request, fence__gt=0).order_by("fence").values_list("kind", flat=True))


# --- evidence


@pytest.mark.parametrize("lie", ["history", "metrics", "status", "rescue"])
def test_where_one_source_contradicts_the_others_the_end_is_unknown_alerted_and_never_completed(world: World, lie: str) -> None:
    request, job = started(world)
    world.schedd.end(job, End.FINISHED)
    assert job.history is not None
    if lie == "history":
        job.history = replace(job.history, exit_code=1, dag_status=2)
    elif lie == "metrics":
        path = job.directory / "workflow.dag.metrics"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"exitcode": 1, "DagStatus": 2}))
    elif lie == "status":
        path = job.directory / "workflow.dag.status"
        path.write_text(path.read_text().replace("NodeStatus = 5", "NodeStatus = 6", 1))
    else:
        (job.directory / "workflow.dag.rescue001").write_text("# half")
    for _ in range(6):
        world.cycle()
    assert (status(request), request.alert_code) == (S.ACTIVE, "outcome_unknown")
    assert "evidence of how DAGMan job" in request.waiting_for
    assert Event.objects.filter(request=request, kind="alert", data__code="outcome_unknown").count() == 1
    world.schedd.history_lags = True  # it has been cut off before that job
    cycles(world)
    request.refresh_from_db()
    assert (status(request), request.alert_code) == (S.ACTIVE, "outcome_unknown")


def test_a_dagman_that_does_not_come_up_again_after_its_host_died_is_told_as_that_and_the_work_is_done_after_a_release(
    world: World,
) -> None:
    request, job = started(world)
    world.schedd.end(job, End.DRAINED)
    assert job.history is not None
    for left in ("workflow.dag.metrics", "workflow.dag.rescue001"):
        (job.directory / left).unlink()  # it writes neither
    job.history = replace(job.history, dag_status=0, counted_at_seconds=100, started_at_seconds=102)  # exit code 1
    cycles(world)
    request.refresh_from_db()
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.THRESHOLD)
    dag = DAG.objects.get(pk=job.dag_id)
    assert dag.status == DAGStatus.FAILED
    assert "DAGMan itself gave up with exit code 1 when it was started again; its log says why" in request.hold_reason
    assert f"{len(job.nodes)} of {len(job.nodes)} work units are left" in request.hold_reason
    request_release(request=request, actor="olga", reason="the host is back")
    assert run_on(world, request) is S.COMPLETED
    assert ledger_of(request.workflow).done_events == 300


def test_half_a_contradiction_completes_nothing_while_it_is_stopped_either(world: World) -> None:
    request, job = started(world)
    request_stop(request=request, actor="olga", reason="maintenance")
    world.schedd.end(job, End.FINISHED)
    assert job.history is not None
    job.history = replace(job.history, exit_code=1, dag_status=2)
    world.cycle()
    assert (status(request), "evidence of how" in request.waiting_for) == (S.STOPPING, True)
    world.schedd.history_lags = True
    world.cycle()
    assert DAG.objects.get(pk=job.dag_id).status == DAGStatus.SUBMITTED


def test_files_that_are_cut_off_leave_it_to_the_history(world: World) -> None:
    request, job = started(world)
    world.schedd.end(job, End.FINISHED)
    for name in ("workflow.dag.metrics", "workflow.dag.status"):
        path = job.directory / name
        path.write_text(path.read_text()[:40])
    assert work_done(world, request)


# --- what counts as failed


def removed_inside(job: Job, unit: str) -> None:
    """Somebody removes a unit's DAGMan; the outer one only tells that its retry was refused."""
    metrics = json.loads((job.directory / "workflow.dag.metrics").read_text())
    inner = metrics | {"DagStatus": 4, "exitcode": 2, "start_time": metrics["start_time"] + 1}
    (job.directory / unit / "group.dag.metrics").write_text(json.dumps(inner))


def test_units_whose_dagman_was_removed_are_no_failures(world: World) -> None:
    request, job = started(world)
    for unit in ("mg_000001", "mg_000002"):
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    for unit in ("mg_000001", "mg_000002"):
        removed_inside(job, unit)
    cycles(world)
    reported = RequestTransition.objects.get(request=request, from_status=S.PARTIAL)
    assert reported.to_status == S.PLANNING
    assert reported.reason == "rescue 1 of 1: 0 of 3 work units failed, 2 were removed from the queue"
    assert work_done(world, request)


def test_the_same_units_hold_the_request_when_they_failed(world: World) -> None:
    request, job = started(world)
    for unit in ("mg_000001", "mg_000002"):
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    cycles(world)
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.THRESHOLD)
    assert "2 of 3 work units failed, the threshold is 60%" in request.hold_reason


def test_units_that_only_lack_their_account_are_no_failures(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000", Account.MISSING)
    world.schedd.unit_failed(job, "mg_000001")
    world.schedd.end(job, End.FINISHED)
    cycles(world)
    reason = RequestTransition.objects.get(request=request, from_status=S.PARTIAL).reason
    assert reason == "rescue 1 of 1: 1 of 3 work units failed"
    world.schedd.repair()
    assert work_done(world, request)


# --- which rescue file


@pytest.mark.parametrize("rescue", ["an old one", "half of one"])
def test_a_rescue_file_that_forgets_done_units_is_not_run(world: World, rescue: str) -> None:
    """A full disk: DAGMan would run units again whose files are registered. Their work stays, the rest is planned anew."""
    request, job = started(world)
    for unit in ("mg_000000", "mg_000001"):
        world.schedd.unit_done(job, unit)
    world.schedd.unit_failed(job, "mg_000002")
    world.schedd.end(job, End.FINISHED)
    path = job.directory / "workflow.dag.rescue001"
    text = path.read_text()
    path.write_text(text.replace("DONE mg_000001\n", "") if rescue == "an old one" else text[:30])
    assert work_done(world, request)
    assert kinds(request) == [DAGKind.FRESH, DAGKind.FRESH]
    states = WorkUnit.objects.filter(workflow__request=request, round__index=0).order_by("index").values_list("state", flat=True)
    assert list(states) == [WorkUnitState.DONE, WorkUnitState.DONE, WorkUnitState.FAILED]


def test_a_stop_that_leaves_no_rescue_file_plans_what_is_left_anew_and_says_so(world: World) -> None:
    """A DAGMan that is removed while it is held writes none."""
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    request_stop(request=request, actor="olga", reason="maintenance")
    world.cycle()
    (job.directory / "workflow.dag.rescue001").unlink()
    cycles(world)
    reported = RequestTransition.objects.get(request=request, from_status=S.STOPPING)
    assert (reported.to_status, reported.reason) == (S.QUEUED, "stopped; what is left is planned anew: there is no rescue file")
    alert = Event.objects.get(request=request, kind="alert", data__code="numbers_abandoned").data["message"]
    assert "2 work units of round 0 that had not failed are given up, no rescue is possible: there is no rescue file" in alert
    assert "200 event numbers stay unused, as many events are planned anew" in alert
    states = WorkUnit.objects.filter(workflow__request=request, round__index=0).order_by("index").values_list("state", flat=True)
    assert list(states) == [WorkUnitState.DONE, WorkUnitState.ABANDONED, WorkUnitState.ABANDONED]
    assert run_on(world, request) is S.COMPLETED
    assert kinds(request) == [DAGKind.FRESH, DAGKind.FRESH]
    ledger = ledger_of(request.workflow)
    assert (ledger.done_events, ledger.lost_events) == (300, 200), "they are made up for"


@pytest.mark.parametrize(("end", "reported"), [(End.VANISHED, "not in the history"), (End.DISPUTED, "says")])
def test_a_stop_to_go_on_whose_end_nobody_can_prove_holds_the_request(world: World, end: End, reported: str) -> None:
    """Its jobs may still run somewhere: whether the rest is planned anew is an operator's decision."""
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    request_stop(request=request, actor="olga", reason="maintenance")
    world.schedd.end(job, end)
    world.cycle()
    assert (status(request), "evidence of how" in request.waiting_for) == (S.STOPPING, True)
    world.clock.advance(conf().submit_unknown_grace_seconds)
    cycles(world)
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.OUTCOME_UNKNOWN)
    assert reported in request.hold_reason
    assert DAG.objects.filter(workflow__request=request).count() == 1, "nothing was planned or submitted without a word"
    request_release(request=request, actor="olga", reason="its jobs are gone, I looked")
    assert work_done(world, request)


def test_a_release_says_why_a_rescue_file_cannot_be_run(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    for unit in ("mg_000001", "mg_000002"):
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    cycles(world)
    assert status(request) is S.HELD
    (job.directory / "workflow.dag.rescue001").write_text("# Total number of Nodes: 3\n# Nodes that failed: 0\n#   <ENDLIST>\n")
    plan = release_plan(request)
    assert (plan.mode, plan.units_done, plan.units_again) == (ReleaseMode.NEXT_ROUND, 1, 2)
    assert "does not know of 1 work units that are done, e.g. mg_000000" in plan.why
    request_release(request=request, actor="olga", reason="go on")
    assert work_done(world, request)


@pytest.mark.parametrize("decision", ["release", "abort", "abort while it runs"])
def test_units_that_never_failed_are_abandoned_whoever_gives_them_up(world: World, decision: str) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.schedd.unit_failed(job, "mg_000001")
    if decision != "abort while it runs":
        request_hold(request=request, actor="olga", reason="looking at it")
        cycles(world)
        assert status(request) is S.HELD
    if decision == "release":
        request_release(request=request, actor="olga", reason="go on", mode=ReleaseMode.NEXT_ROUND)
    else:
        request_abort(request=request, actor="olga", reason="not wanted")
        cycles(world)
        assert status(request) is S.ABORTED
    states = WorkUnit.objects.filter(workflow__request=request, round__index=0).order_by("index").values_list("state", flat=True)
    assert list(states) == [WorkUnitState.DONE, WorkUnitState.FAILED, WorkUnitState.ABANDONED]


# --- stop-rescues


def test_a_dag_that_ended_with_failures_while_it_was_stopped_is_a_stop_rescue(world: World) -> None:
    """Error-handling 7.2: what distinguishes the two is that somebody asked for the stop."""
    request, job = started(world)
    request_stop(request=request, actor="olga", reason="maintenance", mode=StopMode.DRAIN)
    world.cycle()
    world.schedd.unit_failed(job, "mg_000001")
    world.schedd.end(job, End.FINISHED)
    assert work_done(world, request)
    assert kinds(request) == [DAGKind.FRESH, DAGKind.STOP_RESCUE]


# --- while it is stopped


def test_a_dag_that_aborts_itself_while_it_is_drained_holds_its_request(world: World) -> None:
    request, job = started(world)
    request_stop(request=request, actor="olga", reason="because", mode=StopMode.DRAIN)
    cycles(world, 1)
    world.schedd.unit_failed(job, "mg_000000")
    world.schedd.end(job, End.ABORTED)
    cycles(world)
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.ABORT_CODE)
    assert "43" in request.hold_reason
    assert DAG.objects.get(workflow__request=request).outcome["aborted"] is True
    plan = release_plan(request)
    assert (plan.mode, plan.why) == (ReleaseMode.NEXT_ROUND, "the DAG aborted itself")


def test_a_drain_says_when_its_dagman_is_on_hold_or_its_schedd_is_silent(world: World) -> None:
    request, job = started(world)
    request_stop(request=request, actor="olga", reason="because", mode=StopMode.DRAIN)
    job.held_because = "no power at the site"
    cycles(world, 2)
    assert (status(request), request.alert_code) == (S.STOPPING, "dagman_held")
    assert "is held in HTCondor: no power at the site" in request.waiting_for
    world.schedd.silent = True
    cycles(world, 1)
    world.clock.advance(conf().schedd_suspicion_seconds + 1)
    cycles(world, 1)
    assert (status(request), request.alert_code) == (S.STOPPING, "schedd_unreachable")
    assert "silent since" in request.waiting_for
