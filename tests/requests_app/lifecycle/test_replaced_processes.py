"""A process that is paused right before it acts on a DAG, and replaced meanwhile, acts on nothing that has come since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dags_app.models import DAG, LIVE_DAG, DAGStatus
from dags_app.payload.contract import layout
from dags_app.services import submit
from dags_app.services.stop import StopMode, dag_hold, dag_release
from dags_app.services.submit import submission_unknown_seconds
from requests_app.lifecycle import stopping
from requests_app.models import Request, RequestStatus
from requests_app.services import request_abort, request_hold, request_release, request_set_priority, request_stop
from sites_app.models import Schedd
from tests.support.scripted import documents
from tests.support.scripted.faults import Mode
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import fresh, run_on, started
from tests.support.scripted.schedd import OWNER, End, Job, Stranger
from tests.support.scripted.world import World
from wms2.adapters import caller
from wms2.conf import conf

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "maintenance"}


def paused_at(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, meanwhile: Callable[[], object]) -> None:
    """The first to call it stands still right before, while others go on."""
    real = getattr(place, name)

    def paused(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(place, name, real)
        meanwhile()
        return real(*args, **named)

    monkeypatch.setattr(place, name, paused)


def until(world: World, request: Request, status: RequestStatus) -> None:
    for _ in range(8):
        world.cycle()
        world.clock.advance(30)
        if fresh(request).status == status:
            return
    raise AssertionError(f"{request.status}: {request.waiting_for}")


def later(world: World) -> None:
    """The process that stands still has no lease any more."""
    world.clock.advance(conf().lease_seconds + 60)


def goes_on(world: World, request: Request, job: Job) -> None:
    """Somebody else stops the DAG, and its directory is submitted once more."""
    later(world)
    if fresh(request).status == S.ACTIVE:
        request_stop(request=request, mode=StopMode.NOW, **BY)
    until(world, request, S.ACTIVE)
    new = world.job_of(request)
    assert new is not job and new.directory == job.directory


def dag_of(request: Request) -> DAG:
    return DAG.objects.select_related("schedd__pool").get(workflow__request=request, status__in=LIVE_DAG)


def test_a_late_drain_does_not_halt_the_submission_that_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.cycle()
    request_stop(request=fresh(request), mode=StopMode.DRAIN, **BY)

    def others() -> None:
        later(world)
        world.evaluate(request)
        assert job.halted
        world.schedd.end(job, End.DRAINED)
        until(world, request, S.ACTIVE)

    paused_at(monkeypatch, stopping, "dag_drain", others)
    world.evaluate(request)
    assert world.job_of(request).fence > job.fence
    assert not world.job_of(request).halted
    assert run_on(world, request) == S.COMPLETED


def test_a_late_release_does_not_let_the_submission_go_on_that_an_operator_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, job = started(world)
    world.cycle()
    dag_hold(dag=dag_of(request), **BY)
    request_hold(request=fresh(request), **BY)

    def others() -> None:
        later(world)
        world.schedd.end(job, End.REMOVED)
        until(world, request, S.HELD)
        request_release(request=request, **BY)
        until(world, request, S.ACTIVE)
        with world.process():  # another than the one that is paused
            dag_hold(dag=dag_of(request), **BY)

    paused_at(monkeypatch, world.schedd, "release_tree", others)
    world.evaluate(request)
    assert world.job_of(request).fence > job.fence
    assert world.job_of(request).held_because == "olga: maintenance"


@pytest.mark.parametrize("action", [dag_hold, dag_release])
def test_an_operators_late_word_on_a_dag_is_not_for_the_next_submission(
    action: Callable[..., int], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, job = started(world)
    world.cycle()
    paused_at(
        monkeypatch, world.schedd, "hold_tree" if action is dag_hold else "release_tree", lambda: goes_on(world, request, job)
    )
    assert action(dag=dag_of(request), **BY) == 0
    assert not world.job_of(request).held_because


def test_a_late_priority_is_not_given_to_the_next_submission(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, job = started(world)
    request_set_priority(request=fresh(request), priority=7, **BY)

    def others() -> None:
        later(world)
        request_set_priority(request=fresh(request), priority=5, **BY)
        goes_on(world, request, job)

    paused_at(monkeypatch, world.schedd, "set_priority", others)
    world.evaluate(request)
    assert world.job_of(request).priority == 5


def test_one_who_stands_still_before_submitting_writes_nothing_over_the_next_submissions_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = world.request(documents.generation(100))
    monkeypatch.setattr(submit.factory, "job_credential", lambda: None)

    def others() -> None:
        world.clock.advance(1000)
        until(world, request, S.ACTIVE)
        (world.job_of(request).directory / layout.AVOID_INCLUDE).write_text("DAG_AVOID = as of the later one\n")

    paused_at(monkeypatch, submit.writer, "held_by", others)
    world.cycle()
    (job,) = world.schedd.jobs
    assert job.fence == 2
    assert "as of the later one" in (job.directory / layout.AVOID_INCLUDE).read_text()


def test_one_who_stands_still_until_another_has_submitted_does_not_submit_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = world.request(documents.generation(100))

    def others() -> None:
        world.clock.advance(1000)
        until(world, request, S.ACTIVE)

    paused_at(monkeypatch, submit, "since_boot", others)
    world.cycle()
    (job,) = world.schedd.jobs
    assert (job.fence, world.schedd.fences) == (2, {request.request_name: [2]})
    assert DAG.objects.get().dagman_cluster_id == str(job.cluster)
    assert not world.errors


@pytest.mark.parametrize("knows_of_its_lease", [True, False])
def test_one_who_stands_still_until_the_dag_was_given_up_does_not_submit_it(
    knows_of_its_lease: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the thread that renews its lease has not run yet since."""
    request = world.request(documents.generation(100))
    if not knows_of_its_lease:
        monkeypatch.setattr(caller, "_stop_if_lost", lambda: None)

    def others() -> None:
        world.clock.advance(1000)
        request_abort(request=fresh(request), **BY)
        until(world, request, S.ABORTED)

    paused_at(monkeypatch, submit, "since_boot", others)
    world.cycle()
    assert world.schedd.jobs == []
    assert DAG.objects.get().status not in LIVE_DAG
    check(world)


def test_a_submission_is_looked_for_from_the_moment_on_when_it_was_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from its intent, a submission that was paused for long would be thought absent while it is still under way."""
    world.request(documents.generation(100))
    paused_at(monkeypatch, submit, "since_boot", lambda: world.clock.advance(conf().lease_seconds / 2))
    paused_at(monkeypatch, world.schedd, "submit_dag", lambda: world.schedd.script.arm(Mode.LOST))
    world.cycle()
    dag = DAG.objects.get()
    assert dag.status == DAGStatus.READY
    left_seconds = submission_unknown_seconds(dag)
    assert left_seconds > conf().submit_timeout_seconds + conf().submit_unknown_grace_seconds - 10


def test_a_strangers_dagman_with_the_dags_id_is_not_taken_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request = world.request(documents.generation(100))
    strangers: list[Stranger] = []
    paused_at(
        monkeypatch, world.schedd, "find_dag", lambda: strangers.append(world.schedd.stranger(str(DAG.objects.get().pk), fence=9))
    )
    until(world, request, S.ACTIVE)
    job = world.job_of(request)
    dag = dag_of(request)
    assert (dag.dagman_cluster_id, dag.fence, job.fence) == (str(job.cluster), 1, 1)
    for action in (dag_hold, dag_release):
        assert action(dag=dag, **BY) == 1
    assert run_on(world, request) == S.COMPLETED
    (stranger,) = strangers
    assert stranger.touched == []
    assert Schedd.objects.get().owner == OWNER, "learned, where no check of the schedd has"


def test_strangers_jobs_with_our_stamps_are_no_load_of_ours(world: World) -> None:
    request, _ = started(world)
    world.cycle()
    before = dict(dag_of(request).observed)
    strangers = [world.schedd.stranger(str(dag_of(request).pk), idle_jobs=10**6), world.schedd.stranger("no DAG of ours")]
    world.clock.advance(4000)
    world.cycle()
    assert dag_of(request).observed == before
    assert Schedd.objects.get().orphans == []
    assert [each.touched for each in strangers] == [[], []]
