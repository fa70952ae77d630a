"""Clean: from any status nothing of the request is left, and nothing brings it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from dags_app.models import DAG, Leftover, WorkUnit, WorkUnitState
from dags_app.planning.writer import AGAIN
from outputs_app.models import (
    BlockStatus,
    BlockValidation,
    CaseState,
    DatasetOwner,
    Effect,
    EffectKind,
    EffectState,
    FindingKind,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
    StorageCheck,
    Validity,
)
from requests_app.lifecycle.cleaner import CLEANER_GRACE_DAYS
from requests_app.models import EvaluationLease, Request, RequestStatus, RequestTransition, StopIntent
from requests_app.services import (
    request_abort,
    request_clean,
    request_fail,
    request_hold,
    request_invalidate,
    request_restart,
    request_stop,
)
from requests_app.services.cleaning import dependents
from requests_app.states import transition
from requests_app.work.planner import dag_id
from sites_app.models import Pool
from sites_app.pools import schedd_add
from sites_app.submit_roots import MARKER, RESERVED
from tests.support.faults import fault
from tests.support.rows import request_row, workflow_row
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.faults import Mode
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import DAY_SECONDS, cycles, fresh, started, work_done
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.errors import FieldRefused, InvalidTransition, StaleState

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests/requests_app/lifecycle/test_cleaning.py"
#: For the long run.
MORE_CALLS = pytest.mark.deep(f"{HERE}::test_a_registration_under_way_is_taken_back_after_it")
MORE_SUBMISSIONS = pytest.mark.deep(f"{HERE}::test_a_dag_that_is_being_submitted_is_found_and_removed")
AS_IT_RUNS = pytest.mark.deep(
    f"{HERE}::test_a_running_request_goes_with_all_that_it_has_registered_and_late_manifests_register_nothing"
)
MORE_VERBS = pytest.mark.deep(f"{HERE}::test_a_worker_that_was_paused_before_its_call_brings_nothing_back")
S = RequestStatus
WORLD = {"CLEANER_ENABLED": "true"}
BY: dict[str, Any] = {"actor": "olga", "reason": "wrong from the start"}


def clean(request: Request, **more: Any) -> None:
    request_clean(request=request, confirm=request.request_name, **BY, **more)


def cleaned(world: World, request: Request) -> None:
    clean(fresh(request))


def invalidated(world: World, request: Request) -> None:
    """Others do meanwhile what the paused worker was about to do."""
    request_fail(request=fresh(request), **BY)
    cycles(world)
    request_invalidate(request=fresh(request), **BY)


def to_the_end(world: World, request: Request, number: int = 12) -> RequestStatus:
    for _ in range(number):
        world.cycle()
        world.clock.advance(61)
        if fresh(request).status == S.CLEANED:
            break
    check(world)
    return RequestStatus(request.status)


@once
def partly_registered(world: World) -> tuple[Request, Job]:
    """It runs, one unit done and registered."""
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    for _ in range(3):  # effects wait for each other
        world.cycle()
        world.clock.advance(600)
    assert OutputFile.objects.exclude(rule_id="").exists()
    return request, job


@once
def accounted(world: World, units: int) -> Request:
    """It runs; of its units so many are done, and nothing of them is registered yet."""
    request, job = started(world)
    for unit in job.open_nodes[:units]:
        world.schedd.unit_done(job, unit)
    world.observe()
    world.evaluate(request)
    return request


def assert_nothing_left(world: World, request: Request) -> None:
    """Of the only request of a world, outside and in our rows."""
    valid = {lfn for block in world.dbs.registered.values() for lfn in block.files} - world.dbs.invalid
    assert not valid and not world.rucio.rules and not world.schedd.live
    files = OutputFile.objects.filter(block__workflow__request=request)
    assert {(file.validity, file.rule_id) for file in files} <= {(Validity.INVALID, "")}
    assert not (conf().submit_root / request.request_name).exists()
    unregistered = set(files.values_list("lfn", flat=True)) - world.rucio.replicas.keys()
    assert unregistered <= set(world.schedd.removed_files)
    assert not DatasetOwner.objects.filter(request=request).exists()
    assert not WorkUnit.objects.filter(workflow__request=request, state=WorkUnitState.PLANNED).exists()


def assert_stays_so(world: World, request: Request) -> None:
    before = OutputFile.objects.count(), Effect.objects.count(), len(world.dbs.registered), len(world.rucio.replicas)
    cycles(world, 3)
    assert fresh(request).status == S.CLEANED
    assert before == (OutputFile.objects.count(), Effect.objects.count(), len(world.dbs.registered), len(world.rucio.replicas))
    assert_nothing_left(world, request)


def edges(request: Request) -> list[str]:
    return list(RequestTransition.objects.filter(request=request).order_by("id").values_list("to_status", flat=True))


def test_it_is_cleaned_from_every_status_and_again_is_the_same(world: World) -> None:
    requests = {status: request_row(status) for status in S if status is not S.CLEANED}
    for status, request in requests.items():
        EvaluationLease.objects.create(request=request)
        if status not in (S.NEW, S.SUBMITTED):
            workflow_row(request)
        clean(request)
        fresh(request)
        epoch = 1 if status is S.CLEANING else 2
        begun = S.STOPPING if status in (S.ACTIVE, S.STOPPING) else S.CLEANING
        assert (request.status, request.epoch) == (begun, epoch), status
        clean(request)
        assert fresh(request).epoch == epoch, status
    for _ in range(4):
        world.cycle()
        if {fresh(request).status for request in requests.values()} == {S.CLEANED}:
            break
    for status, request in requests.items():
        assert fresh(request).status == S.CLEANED, status
        clean(request)
        counted = edges(request).count(S.CLEANING), edges(request).count(S.CLEANED)
        assert counted == (status is not S.CLEANING, 1), status


def test_a_running_request_goes_with_all_that_it_has_registered_and_late_manifests_register_nothing(world: World) -> None:
    request, job = partly_registered(world)
    files, block = OutputFile.objects.count(), ProcessingBlock.objects.first()
    assert block is not None
    now = timezone.now()
    validation = BlockValidation.objects.create(block=block, asked_at=now)
    StorageCheck.objects.create(validation=validation, generation=1, rse="R", site="T2", files=1, next_try_at=now)
    IntegrityCase.objects.create(request=request, block=block, name="/store/x", prognosis=FindingKind.ZERO_EVENTS)
    world.schedd.unit_done(job, "mg_000001")  # not accounted yet
    clean(request)
    assert (fresh(request).status, request.stop_intent) == (S.STOPPING, StopIntent.CLEAN)
    world.evaluate(request)
    world.schedd.unit_done(job, "mg_000002")  # its merge ended in the very moment of the removal
    assert to_the_end(world, request) is S.CLEANED
    assert_nothing_left(world, request)
    assert edges(request)[-3:] == [S.STOPPING, S.CLEANING, S.CLEANED]
    evidence = RequestTransition.objects.filter(request=request).latest("id").evidence
    assert evidence["rules_deleted"] and evidence["output_files"] == {"invalid": files}
    assert not evidence["units_left_at_sites"]
    assert OutputFile.objects.count() == files, "what came late is not registered"
    assert not BlockValidation.objects.exists() and not StorageCheck.objects.exists()
    case = IntegrityCase.objects.get()
    assert case.state == CaseState.REMOVED and case.ended_at is not None
    assert_stays_so(world, request)

    rows, jobs = Leftover.objects.filter(unit__workflow__request=request), len(world.schedd.site_jobs)
    assert rows.exists() and not rows.filter(settled_at__isnull=False).exists()
    world.clock.advance(CLEANER_GRACE_DAYS * DAY_SECONDS + 60)
    for _ in range(2):
        world.clean_sites()
    assert len(world.schedd.site_jobs) == jobs + 1, "a job whose DAGMan was removed may have gone on writing: its journal tells"
    assert not rows.filter(settled_at__isnull=True).exists()
    assert not Path(DAG.objects.get(workflow__request=request).submit_dir).exists()


@once
def registered_whole(world: World) -> Request:
    request, job = partly_registered(world)
    world.schedd.end(job, End.FINISHED)
    assert work_done(world, request)
    assert world.dbs.registered
    return request


def test_a_request_whose_work_is_done_goes_too(world: World) -> None:
    request = registered_whole(world)
    clean(request)
    assert to_the_end(world, request) is S.CLEANED
    assert_stays_so(world, request)
    assert {block.status for block in ProcessingBlock.objects.all()} == {BlockStatus.INVALIDATED}


def test_a_held_request_gives_its_open_round_up(world: World) -> None:
    request, job = partly_registered(world)
    for unit in ("mg_000001", "mg_000002"):
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    cycles(world, 2)
    assert fresh(request).status == S.HELD
    clean(request)
    assert fresh(request).status == S.CLEANING
    assert to_the_end(world, request) is S.CLEANED
    assert_stays_so(world, request)


# --- nobody brings anything back


def at_the_next_call_of(service: str, world: World, request: Request) -> None:
    world.scripts[service].meanwhile = lambda: clean(Request.objects.get(pk=request.pk))


def test_one_whose_input_is_being_read_gets_no_workflow(world: World) -> None:
    request = world.request(documents.generation(300))
    at_the_next_call_of("configcache", world, request)
    world.evaluate(request)
    assert to_the_end(world, request) is S.CLEANED
    assert not hasattr(Request.objects.get(pk=request.pk), "workflow")


@pytest.mark.parametrize("calls", [pytest.param(0, marks=MORE_SUBMISSIONS), 1, pytest.param(2, marks=AS_IT_RUNS)])
def test_a_dag_that_is_being_submitted_is_found_and_removed(calls: int, world: World) -> None:
    request = world.request(documents.generation(100))

    def later(left: int) -> Callable[[], None]:
        def act() -> None:
            if left:
                world.schedd.script.meanwhile = later(left - 1)
            else:
                clean(Request.objects.get(pk=request.pk))

        return act

    world.schedd.script.meanwhile = later(calls)
    world.evaluate(request)
    world.schedd.script.meanwhile = None
    if fresh(request).status not in (S.STOPPING, S.CLEANING, S.CLEANED):
        clean(request)
    assert to_the_end(world, request) is S.CLEANED
    assert_stays_so(world, request)


@pytest.mark.parametrize(
    ("calls", "service"),
    [
        (0, "dbs"),
        (3, "rucio"),
        *(
            pytest.param(calls, service, marks=MORE_CALLS)
            for calls in range(6)
            for service in ("rucio", "dbs")
            if (calls, service) not in ((0, "dbs"), (3, "rucio"))
        ),
    ],
)
def test_a_registration_under_way_is_taken_back_after_it(service: str, calls: int, world: World) -> None:
    request = accounted(world, 3)
    script, begun = world.scripts[service], world.scripts[service].calls
    world.clock.advance(600)
    for _ in range(40):
        if script.calls == begun + calls:
            at_the_next_call_of(service, world, request)
        world.effects(1)
        world.clock.advance(61)
        world.evaluate(request)
        if fresh(request).stop_intent or request.status == S.CLEANING:
            break
    script.meanwhile = None
    if request.status not in (S.STOPPING, S.CLEANING):
        clean(request)
    world.clock.advance(conf().effect_lease_seconds)
    assert to_the_end(world, request, 20) is S.CLEANED
    assert_stays_so(world, request)


@pytest.mark.parametrize(
    ("call", "action", "paused_seconds"),
    [
        ("register_block", cleaned, 600),
        ("register_block", cleaned, 0),
        ("protect_files", invalidated, 600),
        pytest.param("register_block", invalidated, 600, marks=MORE_VERBS),
        pytest.param("protect_files", cleaned, 600, marks=MORE_VERBS),
        pytest.param("protect_files", cleaned, 0, marks=MORE_VERBS),
    ],
)
def test_a_worker_that_was_paused_before_its_call_brings_nothing_back(
    call: str, action: Callable[[World, Request], None], paused_seconds: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody claims the effect of a former epoch again: its holder has to find out by itself. As long as its claim runs it may
    make its call, which is waited for."""
    request, job = started(world)
    service = world.dbs if call == "register_block" else world.rucio
    real, paused, raised = getattr(service, call), [], []

    def stopped(*given: Any, **more: Any) -> Any:
        if not paused:
            paused.append(call)
            claimed = world.running
            assert claimed is not None
            world.clock.advance(paused_seconds)
            action(world, request)
            raised.append(Effect.objects.get(pk=claimed.pk).claim_epoch - claimed.claim_epoch)
            for _ in range(4):
                world.cycle()
                world.clock.advance(61 if paused_seconds else 0)
        return real(*given, **more)

    monkeypatch.setattr(service, call, stopped)
    for unit in ("mg_000000", "mg_000001", "mg_000002"):
        world.schedd.unit_done(job, unit)
    world.schedd.end(job, End.FINISHED)
    for _ in range(5):
        world.cycle()
        world.clock.advance(600)
    ran_out = paused_seconds > 0
    assert bool(raised[0]) == ran_out, "the claim that had run out is nobody's any more"
    valid = {lfn for block in world.dbs.registered.values() for lfn in block.files} - world.dbs.invalid
    assert not valid and not world.rucio.rules
    assert set(Effect.objects.values_list("state", flat=True)) <= {EffectState.DONE, EffectState.DISCARDED}
    lost = world.scripts["dbs"].lost + world.scripts["rucio"].lost
    assert (lost > 0) == ran_out, "what was claimed together gives way together"
    check(world)


def test_what_it_still_owed_is_never_done_and_replicas_without_a_rule_get_one_that_ends(world: World) -> None:
    """Rucio removes a replica only with the end of its last rule."""
    request = accounted(world, 2)
    world.clock.advance(600)
    while not world.rucio.replicas:
        world.effects(1)
    assert not world.rucio.rules
    replicas = set(world.rucio.replicas)
    owed = list(Effect.objects.filter(request=request, state=EffectState.PENDING).values_list("pk", flat=True))
    assert owed
    clean(request)
    assert to_the_end(world, request) is S.CLEANED
    assert not world.dbs.registered
    assert set(Effect.objects.filter(pk__in=owed).values_list("state", flat=True)) == {EffectState.DISCARDED}
    protected = [content for operation, content in world.rucio.script.answered if operation == "protect_files"]
    assert set(",".join(protected).split(",")) == set(world.rucio.replicas) == replicas
    unregistered = set(OutputFile.objects.values_list("lfn", flat=True)) - replicas
    assert unregistered and unregistered <= set(world.schedd.removed_files)
    assert not set(world.schedd.removed_files) & replicas, "Rucio removes them"
    assert_stays_so(world, request)


# --- killed anywhere

TAKING_BACK = (EffectKind.INVALIDATION_MANIFEST, EffectKind.DBS_INVALIDATE, EffectKind.RUCIO_RELEASE)
POINTS = [
    "stop.claimed", "stop.called", "site_job.claimed", "site_job.called", "site_job.recorded", "clean.called",
    *(f"{kind}.{point}" for kind in TAKING_BACK for point in ("claimed", "called", "recorded")),
]  # fmt: skip


@fault(
    "killed while a request is cleaned",
    done="whoever cleans a running request is killed at each step: stopping it, removing at sites, taking back in DBS and Rucio",
    spec="ADR 0021",
    afterwards="another goes on: CLEANED, and nothing comes back",
)
def test_killed_once_at_every_step_it_goes_on(world: World, tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    killed_while_cleaned(world, ",".join(POINTS), mark)
    assert set(mark.read_text().split()) == set(POINTS)


@pytest.mark.deep(f"{HERE}::test_killed_once_at_every_step_it_goes_on")
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_one_step_it_goes_on(point: str, world: World) -> None:
    killed_while_cleaned(world, point, None)
    assert world.deaths == 1, "the point was met"


def killed_while_cleaned(world: World, points: str, mark: Path | None) -> None:
    request, job = partly_registered(world)
    world.schedd.unit_done(job, "mg_000001")
    clean(request)
    world.crash_at, world.crash_mark = points, str(mark or "")
    for _ in range(40 + 2 * points.count(",")):  # pauses are drawn
        world.cycle()
        world.clock.advance(361)  # longer than any lease or claim
        if fresh(request).status == S.CLEANED:
            break
    assert to_the_end(world, request, 20) is S.CLEANED
    assert_stays_so(world, request)


# --- what is asked


def test_its_name_has_to_be_typed(world: World) -> None:
    request = request_row(S.FAILED)
    with pytest.raises(FieldRefused, match="type the request's name"):
        request_clean(request=request, confirm="another", **BY)
    with pytest.raises(FieldRefused, match="not being cleaned yet"):
        clean(request, accept_rest=True)
    assert fresh(request).status == S.FAILED


def test_requests_that_rest_on_it_must_be_accepted(world: World) -> None:
    request = registered_whole(world)
    (dataset,) = request.workflow.output_datasets.all()[:1]
    reader = request_row(S.QUEUED)
    workflow_row(reader, input_dataset=dataset.name)
    following = request_row(S.QUEUED, previous_version_request=request)
    derived = request_row(S.QUEUED, derived_from=request)
    waiting = request_row(S.QUEUED)
    waiting.depends_on.add(request)
    request_row(S.ABORTED, previous_version_request=request)
    assert dependents(request) == sorted(row.request_name for row in (reader, following, derived, waiting))
    with pytest.raises(FieldRefused, match="4 requests rest on it"):
        clean(request)
    clean(request, accept_dependents=True)
    assert fresh(request).status == S.CLEANING


def test_a_stop_becomes_a_clean_and_nothing_weaker_again(world: World) -> None:
    request, _ = started(world)
    request_stop(request=request, **BY)
    new = request_restart(request=request, **BY)
    clean(request, accept_dependents=True)
    for weaker in (request_hold, request_abort):
        weaker(request=request, **BY)
    assert fresh(request).stop_intent == StopIntent.CLEAN
    assert to_the_end(world, request) is S.CLEANED
    assert fresh(new).status == S.ABORTED, "the version that was to replace it does not begin"


def test_a_stop_that_was_about_to_go_on_does_not(world: World) -> None:
    """The intent is another by the time at which an evaluation that has read the weaker one takes its edge."""
    request = request_row(S.STOPPING, stop_intent=StopIntent.RESUME)
    as_read = Request.objects.get(pk=request.pk)
    clean(request)
    with pytest.raises(StaleState):
        transition(as_read, S.QUEUED, actor="lifecycle", reason="the DAG had finished by itself")
    assert fresh(request).stop_intent == StopIntent.CLEAN


def test_nothing_else_is_done_to_one_that_is_cleaned(world: World) -> None:
    request = request_row(S.FAILED)
    clean(request)
    with pytest.raises((InvalidTransition, StaleState)):
        request_abort(request=request, **BY)
    with pytest.raises((InvalidTransition, StaleState)):
        request_restart(request=request, **BY)


def test_what_cannot_be_removed_keeps_it_with_the_reason_until_an_operator_accepts_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, _ = partly_registered(world)
    clean(request)
    world.scripts["rucio"].arm(Mode.DOWN, times=100)
    assert to_the_end(world, request, 3) is S.CLEANING
    assert "take its outputs back" in request.waiting_for and "no answer" in request.waiting_for
    world.heal()
    monkeypatch.setenv("WMS2_CLEANER_ENABLED", "false")
    conf.cache_clear()
    world.clock.advance(600)
    assert to_the_end(world, request, 3) is S.CLEANING
    assert request.waiting_for == "the cleaner to look for what 1 round left at sites; the cleaner is switched off"
    for _ in range(3):  # what was done of it meanwhile gives it half a day more
        world.clock.advance(DAY_SECONDS)
        world.cycle()
    assert fresh(request).alert_code == "slow_cleaning"
    clean(request)
    assert fresh(request).status == S.CLEANING
    clean(request, accept_rest=True)
    reported = RequestTransition.objects.filter(request=request).latest("id")
    assert (fresh(request).status, reported.actor, reported.reason) == (S.CLEANED, "olga", BY["reason"])
    assert "switched off" in reported.evidence["waited_for"]
    assert request.alert_code == ""


def file_of_others(*parts: str | Path) -> Path:
    path = Path(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("of others")
    return path


def own_files() -> list[Path]:
    """Below the directories of WMS2's own."""
    reserved = [conf().submit_root / name / "11111111-1111-1111-1111-111111111111" for name in sorted(RESERVED)]
    return [file_of_others(directory, "result.json") for directory in reserved]


def test_directories_that_none_of_its_dags_has_survive_below_every_root(world: World, tmp_path: Path) -> None:
    """What attempts at planning that died have left goes too."""
    request, _ = started(world)
    name, root, directory = request.request_name, conf().submit_root, Path(DAG.objects.get().submit_dir).name
    elsewhere = file_of_others(tmp_path, "elsewhere", name, "data")
    nested = file_of_others(root, "nested", name, "data")
    for number, other in enumerate((elsewhere.parents[1], nested.parents[1], tmp_path)):
        schedd_add(pool=Pool.objects.get(), name=f"schedd{number}@test", submit_root=str(other), **BY)
    (tmp_path / name).mkdir()
    beside = file_of_others(root, name, "notes.txt")
    following = dag_id(request.workflow, request.workflow.rounds.count())
    own = own_files()
    for left in (f".{directory}.abc.tmp", following, f"{AGAIN}7/{directory}", f"{AGAIN}8/.{following}.abc.tmp"):
        file_of_others(root, name, left, "workflow.dag")
    clean(request)
    assert to_the_end(world, request) is S.CLEANED
    assert all(path.exists() for path in (elsewhere, nested, tmp_path / name, beside, *own))
    assert list((root / name).iterdir()) == [beside]


def test_wms2s_own_directories_survive_requests_of_their_names_from_a_former_release(world: World) -> None:
    requests = [request_row(S.SUBMITTED, request_name=name) for name in sorted(RESERVED)]
    own = own_files()
    for request in requests:
        EvaluationLease.objects.create(request=request)
        workflow_row(request)
        clean(request)
    for _ in range(4):
        world.cycle()
    assert {fresh(request).status for request in requests} == {S.CLEANED}
    assert all(path.exists() for path in own)


def test_below_a_root_that_is_not_marked_as_its_own_or_where_a_row_names_another_directory_or_a_link_nothing_is_removed(
    world: World, tmp_path: Path
) -> None:
    request, _ = started(world)
    marker, directory = conf().submit_root / MARKER, Path(DAG.objects.get().submit_dir)
    ours = marker.read_text()
    marker.unlink()
    clean(request)
    assert to_the_end(world, request, 3) is S.CLEANING
    for marked in (None, "", "another-instance"):
        if marked is not None:
            marker.write_text(marked)
            assert to_the_end(world, request, 2) is S.CLEANING, marked
        assert directory.is_dir() and str(directory) in request.waiting_for, marked
        assert (f"instance '{marked}'" if marked else "have its schedd checked") in request.waiting_for

    victim = file_of_others(conf().submit_root, "another_request", "22222222-2222-2222-2222-222222222222", "workflow.dag")
    DAG.objects.update(submit_dir=str(victim.parent))
    marker.write_text(ours)
    assert to_the_end(world, request, 2) is S.CLEANING
    assert victim.exists() and "by hand" in request.waiting_for
    DAG.objects.update(submit_dir=str(directory.parent / ".."))
    assert to_the_end(world, request, 2) is S.CLEANING
    assert victim.exists() and directory.is_dir() and "by hand" in request.waiting_for
    directory.parent.rename(tmp_path / "moved")
    directory.parent.symlink_to(tmp_path / "moved")
    DAG.objects.update(submit_dir=str(directory))
    assert to_the_end(world, request, 2) is S.CLEANING
    assert directory.is_dir() and "link" in request.waiting_for
    directory.parent.unlink()
    (tmp_path / "moved").rename(directory.parent)
    assert to_the_end(world, request) is S.CLEANED
    assert victim.exists() and not directory.parent.exists()
