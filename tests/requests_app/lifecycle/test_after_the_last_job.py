"""After its last job a request goes on by what DBS and the sites say, comes back where it was held, and is archived."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from dags_app import packs
from dags_app.models import DAG, DAGHistory, Leftover, WorkUnit, WorkUnitState
from dags_app.packs import files_like, pack_path
from outputs_app.models import (
    BlockStatus,
    BlockValidation,
    CaseAction,
    CaseState,
    Effect,
    EffectKind,
    EffectState,
    FindingKind,
    IntegrityCase,
    ProcessingBlock,
)
from requests_app.lifecycle import packing, validating
from requests_app.lifecycle.evaluator import evaluate_one
from requests_app.lifecycle.packing import archive_root, dags_pack, requests_archive
from requests_app.lifecycle.timeouts import ALERT_AFTER_SECONDS
from requests_app.models import Event, HoldCode, Request, RequestStatus, RequestTransition
from requests_app.services import input_files_restore, request_complete, request_hold, request_release
from requests_app.services.release import Changes
from requests_app.work.overrides import Overrides
from tests.support.faults import fault
from tests.support.rows import dag_row, generation_spec, input_spec, new_effect, request_row, unit_row, workflow_row
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.progress import fresh, run_on
from tests.support.scripted.schedd import End
from tests.support.scripted.tour import until
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.errors import InvalidTransition

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "looked at it"}


@once
def validated(world: World, events: int = 200) -> Request:
    """All its blocks are validated, and it is not yet counted again."""
    request = world.request(documents.generation(events))
    world.cycle()
    world.schedd.end(world.job_of(request), End.FINISHED)
    until(world, request, S.VALIDATED_OUTPUTS)
    return request


def in_dbs(request: Request, events: int) -> None:
    """So many events of each of its datasets."""
    BlockValidation.objects.filter(block__workflow__request=request).update(events=events)


def test_each_step_tells_what_its_guard_saw_and_when(world: World) -> None:
    request = validated(world)
    until(world, request, S.COMPLETED)
    rows = RequestTransition.objects.filter(request=request).order_by("id")
    evidence = {row.to_status: row.evidence for row in rows}
    assert evidence[S.VALIDATED_OUTPUTS]["validated"] == evidence[S.VALIDATED_OUTPUTS]["blocks"] == 2
    assert {row["in_dbs"] for row in evidence[S.REMOVING_FILES]["datasets"]} == {200}
    assert all(evidence[status]["at"] for status in (S.VALIDATED_OUTPUTS, S.REMOVING_FILES, S.COMPLETED))


def test_datasets_become_valid_only_when_their_blocks_are_validated(world: World) -> None:
    request = validated(world)
    assert not Effect.objects.filter(request=request, kind=EffectKind.DBS_VALID).exists()
    until(world, request, S.REMOVING_FILES)
    world.evaluate(request)
    assert fresh(request).status == S.REMOVING_FILES
    assert "registrations" in request.waiting_for
    until(world, request, S.COMPLETED)
    assert set(world.dbs.access.values()) == {"VALID"}


def test_a_short_generation_is_extended_by_what_makes_up_for_it_and_once(world: World) -> None:
    request = validated(world)
    in_dbs(request, 150)
    world.evaluate(request, steps=1)
    assert (fresh(request).status, request.workflow.requested_events) == (S.QUEUED, 267)
    event = Event.objects.get(request=request, kind="request.extended")
    assert (event.data["events"], event.data["before"], event.data["after"]) == (67, 200, 267)
    assert run_on(world, request) == S.COMPLETED
    assert Event.objects.filter(request=request, kind="request.extended").count() == 1


def test_an_extension_that_breaks_off_has_extended_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request = validated(world)
    in_dbs(request, 150)

    def breaks(*_: Any, **__: Any) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(validating, "emit_event", breaks)
        world.evaluate(request, steps=1)
    world.errors.clear()
    assert (fresh(request).status, fresh(request).workflow.requested_events) == (S.VALIDATED_OUTPUTS, 200)
    world.evaluate(request, steps=1)
    assert Request.objects.get(pk=request.pk).workflow.requested_events == 267


def test_while_most_work_fails_it_waits_and_completes_early_if_somebody_says_so(world: World) -> None:
    request = validated(world)
    in_dbs(request, 150)
    dag = DAG.objects.get(workflow__request=request)
    for index in range(3):
        unit_row(dag, 10 + index, state=WorkUnitState.FAILED)
    world.evaluate(request)
    assert (fresh(request).status, request.alert_code) == (S.VALIDATED_OUTPUTS, "extension_waits"), request.waiting_for
    request_complete(request=request, **BY)
    until(world, request, S.COMPLETED)


def test_while_many_requests_are_queued_it_waits_and_then_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request = validated(world)
    in_dbs(request, 150)
    request_row(S.QUEUED, overrides={"pools": ["nowhere"]})
    with monkeypatch.context() as patch:
        patch.setattr(validating, "_EXTEND_MOST_QUEUED", 0)
        world.evaluate(request)
        assert (fresh(request).status, request.alert_code) == (S.VALIDATED_OUTPUTS, "extension_waits")
        assert "1 requests are queued" in request.waiting_for
    world.evaluate(request, steps=1)
    assert (fresh(request).status, request.alert_code) == (S.QUEUED, "")


@pytest.mark.parametrize(("events", "words"), [(90, "at most 400 may be"), (0, "nothing says how many")])
def test_what_cannot_be_extended_is_held_and_released_with_another_fraction(world: World, events: int, words: str) -> None:
    request = validated(world)
    in_dbs(request, events)
    world.evaluate(request, steps=1)
    assert (fresh(request).status, request.hold_code) == (S.HELD, HoldCode.SHORT)
    assert words in request.hold_reason
    request_release(request=request, changes=Changes(Overrides(pass_fraction=events / 200)), **BY)
    assert fresh(request).status == S.VALIDATING_OUTPUTS
    until(world, request, S.COMPLETED)


def test_an_input_request_that_is_short_is_held_and_never_extended(world: World) -> None:
    request = world.request(documents.reprocessing(world.source("Source0", 90, 90), files_per_job=1))
    world.cycle()
    world.schedd.end(world.job_of(request), End.FINISHED)
    until(world, request, S.VALIDATED_OUTPUTS)
    in_dbs(request, 10)
    world.evaluate(request, steps=1)
    assert (fresh(request).status, request.hold_code) == (S.HELD, HoldCode.SHORT)
    assert "all its input is done" in request.hold_reason


def test_no_file_is_let_in_again_once_its_leftovers_are_removed(world: World) -> None:
    request = validated(world)
    until(world, request, S.REMOVING_FILES)
    with pytest.raises(InvalidTransition):
        input_files_restore(request=request, lfns=["/store/a.root"], **BY)


@pytest.mark.parametrize("status", [S.VALIDATING_OUTPUTS, S.VALIDATED_OUTPUTS, S.REMOVING_FILES])
def test_what_was_held_comes_back_without_a_slot(world: World, status: RequestStatus) -> None:
    request = validated(world) if status != S.VALIDATING_OUTPUTS else world.request(documents.generation(100))
    if status == S.VALIDATING_OUTPUTS:
        world.cycle()
        world.schedd.end(world.job_of(request), End.FINISHED)
    until(world, request, status)
    request_hold(request=request, **BY)
    dags = DAGHistory.objects.count()
    request_release(request=fresh(request), **BY)
    assert fresh(request).status == S.VALIDATING_OUTPUTS
    until(world, request, S.COMPLETED)
    assert DAGHistory.objects.count() == dags, "nothing was planned"


@pytest.mark.parametrize(("spec", "end"), [(input_spec(), S.COMPLETED), (generation_spec(), S.HELD)])
def test_without_any_block_nothing_is_compared_and_only_what_is_enough_completes(world: World, spec: Any, end: S) -> None:
    request = request_row(S.VALIDATING_OUTPUTS)
    workflow_row(request, spec, requested_events=0)
    world.evaluate(request)
    assert fresh(request).status == end, (request.status, request.waiting_for, world.errors)


# --- what units left


def removing(world: World, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Request, Leftover]:
    """Its round is written down; one unit has left something at a site."""
    request = validated(world)
    until(world, request, S.REMOVING_FILES)
    unit = WorkUnit.objects.filter(workflow__request=request)[0]
    later = timezone.now() + timedelta(days=1)
    row = Leftover.objects.create(unit=unit, site="T2_CH_CERN", next_try_at=later)
    DAG.objects.update(leftovers_at=timezone.now())
    changed = conf().model_copy(update={"cleaner_enabled": True, **settings})
    monkeypatch.setattr(validating, "conf", lambda: changed)
    for _ in range(3):
        world.evaluate(request)
        world.effects()
    return fresh(request), row


def test_it_waits_for_the_removal_which_is_due_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, row = removing(world, monkeypatch)
    assert (request.status, "1 work unit left" in request.waiting_for) == (S.REMOVING_FILES, True)
    row.refresh_from_db()
    assert row.next_try_at <= world.clock.now()
    Leftover.objects.update(settled_at=timezone.now(), removed_files=3)
    world.evaluate(request)
    assert fresh(request).status == S.COMPLETED
    assert request.workflow.__class__.objects.get(request=request).inputs_removed_at is not None
    assert RequestTransition.objects.filter(request=request).latest("id").evidence["removed_files"] == 3


def test_what_cannot_be_removed_is_told_and_does_not_keep_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = removing(world, monkeypatch)
    Leftover.objects.update(tries=conf().limits.removal_tries, problem="permission denied")
    world.evaluate(request)
    assert (fresh(request).status, request.alert_code) == (S.COMPLETED, "leftovers_stay")
    assert "permission denied" in RequestTransition.objects.filter(request=request).latest("id").reason
    assert request.workflow.inputs_removed_at is None


def test_a_site_at_which_nothing_is_removed_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = removing(world, monkeypatch, cleaner_off_sites=("T2_CH_CERN",))
    assert request.status == S.COMPLETED
    assert "nothing is removed there" in RequestTransition.objects.filter(request=request).latest("id").reason


@pytest.mark.parametrize("status", [S.VALIDATING_OUTPUTS, S.VALIDATED_OUTPUTS, S.REMOVING_FILES])
def test_what_stays_too_long_in_a_status_is_told_and_goes_on(world: World, status: RequestStatus) -> None:
    request = world.request(documents.generation(200))
    world.cycle()
    world.schedd.end(world.job_of(request), End.FINISHED)
    until(world, request, status)
    if status == S.VALIDATED_OUTPUTS:  # else its effects are not carried out
        in_dbs(request, 150)
        dag = DAG.objects.get(workflow__request=request)
        for index in range(3):
            unit_row(dag, 10 + index, state=WorkUnitState.FAILED)
    limit = ALERT_AFTER_SECONDS[status]
    world.clock.advance(limit - 60)
    world.evaluate(request)
    assert (fresh(request).status, "slow" in request.alert_code) == (status, False)
    world.clock.advance(120)
    world.evaluate(request)
    assert (fresh(request).status, request.alert_code) == (status, f"slow_{status.value}")
    BlockValidation.objects.filter(block__workflow__request=request).update(events=200)
    until(world, request, S.COMPLETED)
    assert fresh(request).alert_code == ""


# --- archived


def complete(days: float = 8.0) -> DAG:
    """The DAG of a request that has been complete for so long."""
    request = request_row(S.COMPLETED, status_since=timezone.now() - timedelta(days=days))
    dag = dag_row(workflow_row(request), status="completed")
    directory = conf().submit_root / request.request_name / str(dag.pk)
    directory.mkdir(parents=True)
    (directory / "workflow.dag").write_text("JOB a b\n")
    dag.submit_dir = str(directory)
    dag.save()
    unit_row(dag, 0, state=WorkUnitState.FAILED)
    return dag


def archived(dag: DAG) -> bool:
    """Whether it is, with its pack there and read from there."""
    dag.refresh_from_db()
    request = Request.objects.get(workflow__dags=dag)
    if request.status == S.COMPLETED:
        return False
    assert request.status == S.ARCHIVED
    assert pack_path(Path(dag.submit_dir)).parent == archive_root() / request.request_name
    assert [Path(file.path).name for file in files_like(dag.submit_dir, "workflow.*")] == ["workflow.dag"]
    return True


def test_its_packs_are_moved_and_read_from_the_archive(world: World) -> None:
    dag = complete()
    former = Path(dag.submit_dir)
    assert requests_archive() == 0, "its directory is not packed"
    assert dags_pack() == 1
    assert requests_archive() == 1
    assert archived(dag)
    assert not former.parent.exists()
    assert requests_archive() == 0


@pytest.mark.parametrize("linked", [False, True])
def test_an_archive_that_is_a_submit_root_keeps_its_packs(
    linked: bool, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag, root = complete(), conf().submit_root
    if linked:
        root = tmp_path / "link"
        root.symlink_to(conf().submit_root)
    monkeypatch.setenv("WMS2_ARCHIVE_ROOT", str(root))
    conf.cache_clear()
    assert (dags_pack(), requests_archive()) == (1, 1)
    assert archived(dag)


@pytest.mark.parametrize("why", ["young", "owes", "case", "never"])
def test_it_is_not_archived_before_its_time_or_while_something_is_owed(
    world: World, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    dag = complete(days=6.0 if why == "young" else 8.0)
    packs.pack(Path(dag.submit_dir))
    DAG.objects.update(packed_at=timezone.now())
    if why == "owes":
        new_effect(EffectState.DEAD, request=dag.workflow.request, epoch=1)
    if why == "case":
        workflow = dag.workflow
        block = ProcessingBlock.objects.create(
            workflow=workflow, dataset=workflow.output_datasets.get(), block_index=0, dbs_block_name="/a/b/c#d",
            total_work_units=1, status=BlockStatus.ARCHIVED, no_tape="test",
        )  # fmt: skip
        said = {"prognosis": FindingKind.SIZE_MISMATCH, "state": CaseState.IN_PROGRESS, "action": CaseAction.RECOVERED}
        IntegrityCase.objects.create(request=workflow.request, block=block, name="/store/a.root", **said)
    if why == "never":
        never = conf().model_copy(update={"archive_after_days": 0.0})
        monkeypatch.setattr(packing, "conf", lambda: never)
    assert requests_archive() == 0
    assert not archived(dag)


class Killed(BaseException):
    """As kill -9 does, nothing after it runs."""


@fault(
    "killed while packs move to the archive",
    done="whoever moves a request's packs is killed after the copy, or after the row and before the old pack is removed",
    spec="ADR 0020",
    afterwards="its files can be read all the time; the next pass archives it and leaves one pack",
)
@pytest.mark.parametrize("point", ["archive.called", "archive.recorded"])
def test_a_kill_between_copy_row_and_removal_is_repaired_by_the_next_pass(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    dag = complete()
    former = pack_path(Path(dag.submit_dir))
    dags_pack()

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(packing, "crash_point", kill)
        requests_archive()
    dag.refresh_from_db()
    assert files_like(dag.submit_dir, "workflow.*"), "it can be read all the time"
    assert requests_archive() == 1
    assert archived(dag)
    assert not former.exists()
    evaluate_one(Request.objects.get(workflow__dags=dag).pk)
