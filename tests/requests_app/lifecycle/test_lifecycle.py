"""Requests through the scripted world, from the document to the end: the plain ways, and what the property test has found."""

from __future__ import annotations

import pytest

from dags_app.models import DAG, DAGHistory, DAGStatus, WorkUnit, WorkUnitState
from dags_app.planning import writer
from outputs_app.models import Effect, EffectState
from requests_app.admission.placement import slots_used
from requests_app.lifecycle import planning
from requests_app.models import Event, HoldCode, Request, RequestStatus, Workflow
from requests_app.services import request_abort, request_hold, request_release
from tests.support.scripted import documents
from tests.support.scripted.dagman import Account, write_manifest
from tests.support.scripted.faults import Mode
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import run_on, started, status
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.work.resources import lease_take

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus


def test_a_generation_completes_over_two_rounds(world: World) -> None:
    request = world.request(documents.generation(400))
    assert run_on(world, request) is S.COMPLETED
    assert len(world.schedd.jobs) == 2


def test_a_release_whose_work_is_done_waits_for_its_registrations_like_any_other(world: World) -> None:
    """Not in PLANNING, which keeps a slot and is over after an hour: DBS may be away for days."""
    request = world.request(documents.generation(100))
    for _ in range(2):
        world.cycle()
    world.schedd.end(world.job_of(request), End.FINISHED)
    world.observe()
    world.evaluate(request)
    assert (status(request), Effect.objects.exclude(state=EffectState.DONE).exists()) == (S.ACTIVE, True)
    request_hold(request=request, actor="op", reason="not now")
    world.evaluate(request)
    request_release(request=request, actor="op", reason="now")
    world.evaluate(request)
    assert status(request) is S.ACTIVE
    assert slots_used() == 0
    world.clock.advance(7200)
    world.evaluate(request)
    assert status(request) is S.ACTIVE
    assert "registration" in request.waiting_for
    assert run_on(world, request) is S.COMPLETED


@pytest.mark.parametrize("split", [{"files_per_job": 2}, {"events_per_job": 70}, {"lumis_per_job": 4}])
def test_a_reprocessing_completes_with_every_file_once(world: World, split: dict[str, int]) -> None:
    dataset = world.source("Plain", 100, 30, 0, 200, 10)
    request = world.request(documents.reprocessing(dataset, **split))
    assert run_on(world, request) is S.COMPLETED


def units(request: Request) -> dict[str, WorkUnitState]:
    """Round and name -> state."""
    rows = WorkUnit.objects.filter(workflow__request=request).order_by("round__index", "index")
    return {f"{unit.round.index}/{unit.name}": WorkUnitState(unit.state) for unit in rows.select_related("round")}


def test_a_unit_that_violates_its_claim_holds_the_request_and_the_other_units_still_count(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000", Account.EXTRA)
    world.schedd.end(job, End.FINISHED)
    for _ in range(3):
        world.cycle()
        check(world)
    assert status(request) is S.HELD
    assert request.hold_code == HoldCode.LEDGER
    done, planned = WorkUnitState.DONE, WorkUnitState.PLANNED
    assert units(request) == {"0/mg_000000": planned, "0/mg_000001": done, "0/mg_000002": done}

    request_release(request=request, actor="op", reason="look again")
    assert run_on(world, request) is S.COMPLETED
    assert units(request)["0/mg_000000"] == WorkUnitState.FAILED
    assert units(request)["1/mg_000000"] == WorkUnitState.DONE, "its work was done by a unit of the next round"


def test_a_job_whose_submission_a_restored_database_does_not_know_is_adopted_and_its_units_count(world: World) -> None:
    request, job = started(world)
    dags = DAG.objects.filter(workflow__request=request)
    DAGHistory.objects.filter(dag__in=dags).delete()
    before = {"attempt": 0, "fence": 0, "submit_intent_at": None, "submitted_at": None, "dagman_cluster_id": ""}
    dags.update(status=DAGStatus.READY, **before)
    Workflow.objects.filter(request=request).update(fence_counter=0)
    Request.objects.filter(pk=request.pk).update(status=S.PLANNING)
    world.evaluate(request)
    assert (dags.get().dagman_cluster_id, dags.get().fence) == (str(job.cluster), job.fence)
    for _ in range(12):  # without looking at the history, which lacks a piece
        for each in world.schedd.live:
            world.schedd.end(each, End.FINISHED)
        world.cycle()
        world.clock.advance(60)
    assert status(request) is S.COMPLETED
    assert world.schedd.jobs[0] == job
    fences = [each.fence for each in world.schedd.jobs]
    assert fences == sorted(set(fences)), "no later one has the same"


def test_a_step_that_breaks_every_time_is_told_and_held_after_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write_dag_directory", full)
    request = world.request(documents.generation())
    world.cycle()
    assert status(request) is S.PLANNING
    assert "No space left" in request.last_error
    world.clock.advance(3601)
    world.cycle()
    assert status(request) is S.HELD
    assert request.hold_code == HoldCode.TIMEOUT
    assert "No space left" in request.hold_reason
    assert len(world.errors) == 2


def test_who_has_the_memory_that_a_plan_waits_for_is_named_when_its_time_is_over(world: World) -> None:
    request = world.request(documents.generation())
    Request.objects.filter(pk=request.pk).update(last_error="DBS did not answer, long ago")
    lease_take(name="planning", units=2000, holder="a script", process="olga", ttl_seconds=86_400)
    world.cycle()
    world.clock.advance(3601)
    world.cycle()
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.TIMEOUT)
    assert "2000 are taken: 2000 by olga for a script" in request.hold_reason


def test_planning_that_times_out_discards_a_dag_that_was_never_submitted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("nobody expected this")

    request = world.request(documents.generation())
    monkeypatch.setattr(planning, "schedd_for", broken)
    world.cycle()
    world.clock.advance(3601)
    world.cycle()
    assert status(request) is S.HELD
    world.errors.clear()
    check(world)


def test_alerts_that_take_turns_are_told_once_each(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000", Account.MISSING)
    world.schedd.end(job, End.VANISHED)
    for _ in range(4):
        world.cycle()
    reported = Event.objects.filter(request=request, kind="alert").values_list("data__code", flat=True)
    assert sorted(reported) == ["outcome_unknown", "units_unaccounted"]


def test_the_alert_of_a_manifest_that_is_not_there_is_over_once_all_are_accounted(world: World) -> None:
    """While the DAG runs on, which may be for weeks: a manifest shows a moment late on a shared file system."""
    request, job = started(world)
    for unit in ("mg_000000", "mg_000001"):
        world.schedd.unit_done(job, unit, Account.MISSING)
        world.cycle()
    for unit, left in (("mg_000000", "units_unaccounted"), ("mg_000001", "")):
        write_manifest(job.directory, unit, job.fence, Account.RIGHT)
        world.cycle()
        assert (status(request), request.alert_code) == (S.ACTIVE, left)


def test_the_alert_of_a_stop_that_could_not_be_proved_is_over_once_it_is_under_way(world: World) -> None:
    request, _ = started(world)
    request_abort(request=request, actor="op", reason="enough")
    world.schedd.removes_late = True
    world.scripts["htcondor"].arm(Mode.REFUSED)
    for alert in ("stop_unanswered", ""):
        world.cycle()
        assert (status(request), request.alert_code) == (S.STOPPING, alert), request.waiting_for


def test_an_import_that_failed_is_not_tried_again_before_its_time(world: World) -> None:
    request = world.request(documents.generation())
    world.scripts["configcache"].arm(Mode.DOWN)
    for _ in range(3):
        world.cycle()
    assert (status(request), world.scripts["configcache"].calls) == (S.SUBMITTED, 1)
    world.clock.advance(61)
    world.cycle()
    assert status(request) is S.ACTIVE
    assert request.failed_attempts == 0


def test_a_removal_that_the_schedd_refuses_is_told_and_asked_for_again(world: World) -> None:
    request, _ = started(world)
    request_abort(request=request, actor="op", reason="enough")
    world.scripts["htcondor"].arm(Mode.REFUSED)
    world.cycle()
    assert status(request) is S.STOPPING
    assert request.alert_code == "stop_unanswered"
    for _ in range(2):
        world.cycle()
    assert status(request) is S.ABORTED
    check(world)


def test_an_aborted_request_does_not_look_held(world: World) -> None:
    request, _ = started(world)
    world.schedd.removes_late = True
    request_hold(request=request, actor="op", reason="wait")
    request_abort(request=request, actor="op", reason="no, enough")
    world.schedd.removes_late = False
    for _ in range(3):
        world.cycle()
    assert (status(request), request.hold_code, request.hold_reason) == (S.ABORTED, "", "")
