"""Stop, drain, fail, release in its two modes and with changes, restart, invalidation: in the scripted world, to the end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from dags_app.models import DAG, DAGKind, FailureGroup, WorkUnit
from dags_app.services.stop import halt_file
from outputs_app.effects import HANDLERS, taking_back
from outputs_app.models import (
    RULED,
    BlockStatus,
    DatasetState,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from requests_app.models import CleanupPolicy, HoldCode, InputFile, Request, RequestStatus, StopIntent
from requests_app.services import (
    StopMode,
    request_abort,
    request_fail,
    request_hold,
    request_invalidate,
    request_release,
    request_restart,
    request_stop,
    restart,
)
from requests_app.services.dags import dag_remove, dag_rescue
from requests_app.services.invalidation import superseded_take_back
from requests_app.services.release import Changes, ReleaseMode, release_plan
from requests_app.services.stopping import left_blocks_end
from requests_app.work.overrides import Overrides
from sites_app.bans import bans_active
from sites_app.models import Schedd, ScheddState
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.progress import DAY_SECONDS, cycles, fresh, held, run_on, started, work_done
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.errors import InvalidTransition
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "because"}


def to_the_queue(world: World, request: Request) -> None:
    """It stays there: no schedd takes DAGs."""
    Schedd.objects.update(state=ScheddState.DRAINING)
    world.evaluate(request)
    assert fresh(request).status == S.QUEUED


# --- stop


def test_a_stopped_request_queues_again_and_goes_on_from_its_rescue_which_does_not_count(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    request_stop(request=request, **BY)
    cycles(world, 3)
    assert fresh(request).status == S.ACTIVE
    assert sorted(world.job_of(request).open_nodes) == ["mg_000001", "mg_000002"]
    kinds = list(DAG.objects.filter(workflow__request=request).order_by("fence").values_list("kind", flat=True))
    assert kinds == [DAGKind.FRESH, DAGKind.STOP_RESCUE]


def test_a_drain_halts_the_outer_dagman_removes_nothing_and_counts_what_finishes(world: World) -> None:
    request, job = started(world)
    request_stop(request=request, mode=StopMode.DRAIN, **BY)
    world.cycle()
    dag = DAG.objects.get(workflow__request=request)
    assert halt_file(dag).exists()
    assert job.live
    assert "to finish; DAGMan job" in fresh(request).waiting_for
    world.schedd.unit_done(job, "mg_000000")
    world.cycle()
    assert WorkUnit.objects.get(dag=dag, name="mg_000000").state == "done"
    world.schedd.end(job, End.DRAINED)
    cycles(world, 2)
    assert fresh(request).status == S.ACTIVE
    assert not halt_file(dag).exists()
    rescue = world.job_of(request)
    request_stop(request=request, mode=StopMode.DRAIN, **BY)
    world.cycle()
    world.schedd.end(rescue, End.FINISHED)
    assert work_done(world, request), "a DAG that completes while it drains completes the request"
    assert world.schedd.jobs == [job, rescue]


def test_a_drain_becomes_a_removal_when_somebody_is_in_a_hurry(world: World) -> None:
    request, job = started(world)
    request_stop(request=request, mode=StopMode.DRAIN, **BY)
    world.cycle()
    assert job.live
    request_stop(request=request, mode=StopMode.NOW, **BY)
    world.cycle()
    assert not job.live


def test_an_abort_does_not_wait_for_a_drain(world: World) -> None:
    request, job = started(world)
    request_stop(request=request, mode=StopMode.DRAIN, **BY)
    world.cycle()
    request_abort(request=request, **BY)
    world.cycle()
    assert not job.live
    assert run_on(world, request) is S.ABORTED


def test_between_dags_a_stop_changes_nothing_and_an_ended_request_refuses_it(world: World) -> None:
    request = world.request(documents.generation(100))
    with pytest.raises(InvalidTransition, match="no DAG of it runs"):
        request_stop(request=request, **BY)
    to_the_queue(world, request)
    request_stop(request=request, **BY)
    assert fresh(request).status == S.QUEUED
    assert AuditEntry.objects.filter(action="request_stop").count() == 2


# --- release


def test_a_plain_release_runs_only_what_failed_again_and_used_up_rescues_go_on_with_the_next_round(world: World) -> None:
    request = held(world)
    plan = release_plan(request)
    assert (plan.mode, plan.units_done, plan.units_again) == (ReleaseMode.RESCUE, 1, 2)
    request_release(request=request, **BY)
    cycles(world, 2)
    job = world.job_of(request)
    assert sorted(job.open_nodes) == ["mg_000001", "mg_000002"]
    assert DAG.objects.filter(workflow__request=request, kind=DAGKind.FAILURE_RESCUE).count() == 1
    world.schedd.unit_failed(job, "mg_000002")
    world.schedd.end(job, End.FINISHED)
    cycles(world)
    assert (fresh(request).status, request.hold_code) == (S.HELD, HoldCode.RESCUES)
    assert release_plan(request).mode is ReleaseMode.NEXT_ROUND
    request_release(request=request, **BY)
    assert work_done(world, request)
    assert request.workflow.rounds.count() == 2
    assert DAG.objects.filter(workflow__request=request, kind=DAGKind.FAILURE_RESCUE).count() == 1


def test_a_release_for_the_next_round_counts_what_is_done_and_plans_the_rest_anew(world: World) -> None:
    request = held(world)
    request_release(request=request, mode=ReleaseMode.NEXT_ROUND, **BY)
    assert work_done(world, request)
    workflow = request.workflow
    assert workflow.rounds.count() == 2
    done = WorkUnit.objects.filter(workflow=workflow, state="done").values_list("round__index", "events").order_by("pk")
    assert sum(events for _, events in done) == 300
    assert [index for index, _ in done] == [0, 1, 1]


def test_memory_and_retries_are_rendered_into_the_next_round(world: World) -> None:
    request = held(world)
    changes = Changes(overrides=Overrides(memory_mb=2900, retry_processing=7))
    with pytest.raises(InvalidTransition, match="do not reach a rescue"):
        request_release(request=request, mode=ReleaseMode.RESCUE, changes=changes, **BY)
    assert fresh(request).overrides == {}
    request_release(request=request, changes=changes, **BY)
    for _ in range(3):
        world.cycle()
    directory = Path(DAG.objects.filter(workflow__request=request).order_by("-fence")[0].submit_dir)
    assert (directory / "sizes.inc").read_text() == "TASK_1_MEMORY_MB = 2900\n"
    assert "RETRY proc_000000 7 " in (directory / "mg_000000" / "group.dag").read_text()


def test_more_memory_than_the_window_is_refused_and_nothing_is_changed(world: World) -> None:
    request = held(world)
    changes = Changes(overrides=Overrides(memory_mb=64_000), site_bans=("T2_CH_CERN",))
    with pytest.raises(InvalidTransition, match="at most 3000"):
        request_release(request=request, changes=changes, **BY)
    assert (fresh(request).status, request.overrides, bans_active().count()) == (S.HELD, {}, 0)


def test_a_higher_threshold_holds_for_this_request_alone(world: World) -> None:
    request = held(world)
    request_release(request=request, changes=Changes(overrides=Overrides(error_hold_threshold=1.0)), **BY)
    for _ in range(2):
        world.cycle()
    job = world.job_of(request)
    for unit in ("mg_000001", "mg_000002"):
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    for _ in range(3):
        world.cycle()
    assert fresh(request).hold_code != HoldCode.THRESHOLD


def test_a_site_that_the_release_bans_is_avoided_by_the_rescue(world: World) -> None:
    request = held(world)
    request_release(request=request, changes=Changes(site_bans=("T2_CH_CERN",)), **BY)
    for _ in range(2):
        world.cycle()
    directory = Path(DAG.objects.filter(workflow__request=request)[0].submit_dir)
    assert (directory / "avoid.inc").read_text() == "DAG_AVOID = T2_CH_CERN\n"


def test_files_that_the_release_excludes_are_not_read(world: World) -> None:
    dataset = world.source("Excl", 100, 100, 100)
    request = world.request(documents.reprocessing(dataset, files_per_job=1))
    world.cycle()
    job = world.job_of(request)
    for unit in job.open_nodes[1:]:
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    for _ in range(4):
        world.cycle()
    assert fresh(request).status == S.HELD
    bad = InputFile.objects.filter(workflow__request=request).exclude(claims__live=True, claims__unit__state="done").first()
    assert bad is not None
    with pytest.raises(InvalidTransition, match="not among its input files"):
        request_release(request=request, changes=Changes(excluded_files=("/store/none.root",)), **BY)
    request_release(request=request, changes=Changes(excluded_files=(bad.lfn,)), **BY)
    assert work_done(world, request)
    bad.refresh_from_db()
    assert "excluded by olga: because" in bad.excluded_reason
    assert OutputFile.objects.filter(dataset__workflow=request.workflow).count() == 2


# --- fail


def test_a_writer_of_the_list_that_was_paused_and_replaced_leaves_it_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request = held(world)
    request_fail(request=request, **BY)
    effect = Effect.objects.get(request=request, kind=EffectKind.INVALIDATION_MANIFEST)
    path = conf().state_dir / "invalidations" / f"{request.request_name}.json"
    real = os.fsync

    def paused(descriptor: int) -> None:
        monkeypatch.setattr(taking_back.os, "fsync", real)
        HANDLERS[EffectKind.INVALIDATION_MANIFEST].call(effect)
        json.loads(path.read_text())
        real(descriptor)

    monkeypatch.setattr(taking_back.os, "fsync", paused)
    HANDLERS[EffectKind.INVALIDATION_MANIFEST].call(effect)
    assert json.loads(path.read_text())["request_name"] == request.request_name


def test_a_failed_request_has_its_done_units_registered_and_lists_what_is(world: World) -> None:
    request = held(world)
    request_fail(request=request, **BY)
    request_fail(request=request, **BY)
    assert fresh(request).status == S.FAILED
    for _ in range(4):
        world.clock.advance(2 * conf().effect_gather_seconds)  # what is registered meanwhile has it written again
        world.cycle()
    path = conf().state_dir / "invalidations" / f"{request.request_name}.json"
    assert list(path.parent.iterdir()) == [path]
    manifest = json.loads(path.read_text())
    rules = {rule["id"] for dataset in manifest["datasets"] for block in dataset["blocks"] for rule in block["rules"]}
    assert rules == {rule for ids in world.rucio.rules.values() for rule in ids}
    assert rules
    for block in ProcessingBlock.objects.filter(workflow=request.workflow):
        assert (block.status, block.total_work_units) == (BlockStatus.ARCHIVED, block.members.filter(done=True).count())
        assert set(world.dbs.registered[block.dbs_block_name].files) == set(block.files.values_list("lfn", flat=True))


def test_an_aborted_request_leaves_no_block_open(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.observe()
    world.evaluate(request)
    request_abort(request=request, **BY)
    for _ in range(5):
        world.cycle()
    assert fresh(request).status == S.ABORTED
    blocks = ProcessingBlock.objects.filter(workflow=request.workflow)
    assert {(block.status, block.total_work_units) for block in blocks} == {(BlockStatus.ARCHIVED, 1)}
    assert world.dbs.registered.keys() == {block.dbs_block_name for block in blocks}
    assert "VALID" not in world.dbs.access.values(), "its datasets are not whole"


def test_blocks_that_a_former_release_left_open_for_an_ended_request_are_registered_with_what_is_done(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.observe()
    world.evaluate(request)
    Request.objects.filter(pk=request.pk).update(status=S.ABORTED)  # without what every way to that status does now
    left_blocks_end(transaction.atomic)
    for _ in range(5):
        world.cycle()
    blocks = ProcessingBlock.objects.filter(workflow=request.workflow)
    assert {(block.status, block.total_work_units) for block in blocks} == {(BlockStatus.ARCHIVED, 1)}
    ProcessingBlock.objects.update(status=BlockStatus.OPEN)
    Effect.objects.create(request=request, kind=EffectKind.RUCIO_RELEASE, key="taken back", epoch=request.epoch)
    left_blocks_end(transaction.atomic)
    assert set(blocks.values_list("status", flat=True)) == {BlockStatus.OPEN}, "nothing of it is wanted any more"


def test_failing_a_running_request_stops_its_dag_first(world: World) -> None:
    request, job = started(world)
    request_fail(request=request, **BY)
    assert (fresh(request).status, request.stop_intent) == (S.STOPPING, StopIntent.FAIL)
    for _ in range(3):
        world.cycle()
    assert (fresh(request).status, job.live) == (S.FAILED, False)


def test_a_queued_request_is_aborted_not_failed(world: World) -> None:
    request = world.request(documents.generation(100))
    to_the_queue(world, request)
    with pytest.raises(InvalidTransition, match="aborted"):
        request_fail(request=request, **BY)


# --- restart


@once
def replaced(world: World) -> tuple[Request, Request]:
    """Held with a unit done, restarted, its next version complete."""
    request = held(world)
    new = request_restart(request=request, **BY)
    assert request_restart(request=fresh(request), **BY) == new
    assert (fresh(request).status, fresh(new).status) == (S.FAILED, S.SUBMITTED)
    assert run_on(world, new) is S.COMPLETED
    return request, new


def test_a_restart_fails_the_request_and_begins_the_next_version_of_every_output(world: World) -> None:
    request, new = replaced(world)
    assert (new.request_name, new.previous_version_request) == (f"{request.request_name}_v2", request)
    names = sorted(OutputDataset.objects.filter(workflow__request=new).values_list("name", flat=True))
    assert all("-v2/" in name for name in names)
    assert set(_states(request)) == {DatasetState.SUPERSEDED}
    assert set(_states(new)) == {DatasetState.ACTIVE}


def test_a_restart_of_a_running_request_waits_for_its_dag_and_a_stronger_abort_takes_the_successor_along(world: World) -> None:
    request, _ = started(world)
    world.schedd.removes_late = True
    new = request_restart(request=request, **BY)
    world.cycle()
    assert (fresh(request).status, fresh(new).status) == (S.STOPPING, S.NEW)
    request_abort(request=request, **BY)
    world.schedd.work()
    for _ in range(3):
        world.cycle()
    assert (fresh(request).status, fresh(new).status, request.superseded_by_request) == (S.ABORTED, S.ABORTED, "")


def test_with_immediate_cleanup_the_old_outputs_are_invalidated_when_the_new_version_is_complete(world: World) -> None:
    request = held(world)
    assert world.dbs.registered == {}, "its blocks are not whole"
    world.clock.advance(DAY_SECONDS)
    for _ in range(3):
        world.cycle()
    known = {lfn for block in world.dbs.registered.values() for lfn in block.files}
    assert known == set(OutputFile.objects.values_list("lfn", flat=True)) != set(), "units that wait hide no block for ever"
    new = request_restart(request=request, cleanup_policy=CleanupPolicy.IMMEDIATE_CLEANUP, **BY)
    old_rules = {rule for ids in world.rucio.rules.values() for rule in ids}
    assert run_on(world, new) is S.COMPLETED
    for _ in range(4):
        world.clock.advance(60)
        world.cycle()
    assert set(_states(request)) == {DatasetState.INVALIDATED}
    left = {rule for ids in world.rucio.rules.values() for rule in ids}
    assert not old_rules & left
    assert OutputFile.objects.filter(RULED, dataset__workflow__request=new).exists()
    assert set(ProcessingBlock.objects.filter(workflow__request=request).values_list("status", flat=True)) == {"invalidated"}
    assert known <= world.dbs.invalid
    names = OutputDataset.objects.values_list("name", flat=True)
    assert world.dbs.access == {
        **dict.fromkeys(names.filter(workflow__request=request), "INVALID"),
        **dict.fromkeys(names.filter(workflow__request=new), "VALID"),
    }


def test_replaced_outputs_are_kept_for_the_grace_and_then_taken_back_by_the_life_cycle(world: World) -> None:
    request, new = replaced(world)
    world.clock.advance(29 * DAY_SECONDS)
    assert superseded_take_back(transaction.atomic) == 0
    assert set(_states(request)) == {DatasetState.SUPERSEDED}
    world.clock.advance(DAY_SECONDS)
    assert superseded_take_back(transaction.atomic) == 1
    assert superseded_take_back(transaction.atomic) == 0, "asked for once"
    for _ in range(4):
        world.clock.advance(60)
        world.cycle()
    assert set(_states(request)) == {DatasetState.INVALIDATED}
    assert set(_states(fresh(new))) == {DatasetState.ACTIVE}
    entry = AuditEntry.objects.get(target=request.request_name, action="request_invalidate")
    assert (entry.actor, entry.reason) == ("lifecycle", "its outputs were replaced 30 days ago")


def test_without_a_grace_replaced_outputs_are_taken_back_by_hand_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = replaced(world)
    monkeypatch.setenv("WMS2_SUPERSEDED_GRACE_DAYS", "0")
    conf.cache_clear()
    world.clock.advance(400 * DAY_SECONDS)
    assert superseded_take_back(transaction.atomic) == 0
    assert set(_states(request)) == {DatasetState.SUPERSEDED}


def test_there_are_not_more_versions_than_allowed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    new = request_restart(request=held(world), **BY)
    world.cycle()
    monkeypatch.setattr(restart, "MAX_VERSIONS", 2)
    with pytest.raises(InvalidTransition, match="max_versions is 2"):
        request_restart(request=fresh(new), **BY)
    assert not fresh(new).superseded_by_request


# --- invalidation


def test_only_outputs_without_use_are_invalidated_and_what_is_pending_is_registered_no_more(world: World) -> None:
    request, job = started(world)
    with pytest.raises(InvalidTransition, match="nothing has replaced"):
        request_invalidate(request=request, **BY)
    world.schedd.unit_done(job, "mg_000000")
    world.observe()
    world.evaluate(request)
    pending = Effect.objects.filter(request=request, state=EffectState.PENDING).count()
    assert pending
    request_abort(request=fresh(request), **BY)
    world.observe()
    world.evaluate(request)
    world.observe()
    world.evaluate(request)
    assert fresh(request).status == S.ABORTED
    assert request_invalidate(request=request, **BY) == len(_states(request))
    for _ in range(4):
        world.cycle()
    assert set(_states(request)) == {DatasetState.INVALIDATED}
    assert not world.rucio.rules


def test_an_invalidation_that_is_asked_for_twice_is_done_once_and_after_its_manifest(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.cycle()
    world.clock.advance(conf().effect_gather_seconds)
    for _ in range(3):
        world.cycle()
    assert world.rucio.rules
    request_fail(request=fresh(request), **BY)
    while fresh(request).status != S.FAILED:
        world.observe()
        world.evaluate(request)
    for _ in range(2):  # before anything of it is written
        request_invalidate(request=fresh(request), **BY)
    for _ in range(4):
        world.cycle()
    assert set(_states(request)) == {DatasetState.INVALIDATED}
    assert not world.rucio.rules
    document = json.loads((conf().state_dir / "invalidations" / f"{request.request_name}.json").read_text())
    assert document["totals"]["rules"] > 0, "written while there were rules"
    assert not Effect.objects.filter(request=request, epoch=fresh(request).epoch).exclude(state=EffectState.DONE).exists()
    assert request_invalidate(request=fresh(request), **BY) == 0


def test_a_held_request_is_still_held_by_the_same_verb_twice(world: World) -> None:
    request = held(world)
    request_hold(request=request, **BY)
    assert fresh(request).hold_code == HoldCode.THRESHOLD


def _states(request: Request) -> list[str]:
    return list(OutputDataset.objects.filter(workflow__request=request).values_list("state", flat=True))


# --- after a round


def failures(request: Request, site: str, attempts: int, category: str = "infrastructure", code: int = 60311) -> None:
    """What a sweep of the failure log leaves."""
    now = timezone.now()
    FailureGroup.objects.update_or_create(
        workflow=request.workflow, category=category, code=code, site=site, step="stageOut", rule="test",
        defaults={"attempts": attempts, "given_up": attempts, "reason": "storage refuses", "first_at": now, "last_at": now},
    )  # fmt: skip


def test_a_hold_says_what_failed_most(world: World) -> None:
    request, job = started(world)
    failures(request, "T2_CH_CERN", 2)
    for unit in ("mg_000001", "mg_000002"):
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    for _ in range(4):
        world.cycle()
    assert "most often 60311 (infrastructure) in stageOut at T2_CH_CERN, 2 times" in fresh(request).hold_reason


# --- operations on a DAG


def test_a_removed_dag_holds_its_request_and_its_rescue_releases_it(world: World) -> None:
    request, job = started(world)
    dag = DAG.objects.get(workflow__request=request)
    dag_remove(dag=dag, **BY)
    for _ in range(3):
        world.cycle()
    assert (fresh(request).status, request.hold_code, job.live) == (S.HELD, HoldCode.OPERATOR, False)
    dag.refresh_from_db()
    dag_remove(dag=dag, **BY)
    assert fresh(request).status == S.HELD, "done twice it is done once"
    dag_rescue(dag=dag, **BY)
    with pytest.raises(InvalidTransition, match="not in the queue"):
        dag_remove(dag=dag, **BY)
    cycles(world, 2)
    assert fresh(request).status == S.ACTIVE
    assert len(world.job_of(request).open_nodes) == 3


def test_a_request_whose_dag_ended_nobody_knows_how_is_settled_by_a_hold_and_goes_on(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.schedd.end(job, End.VANISHED)
    world.cycle()
    assert (fresh(request).status, request.alert_code) == (S.ACTIVE, "outcome_unknown")
    request_hold(request=request, **BY)
    for _ in range(3):
        world.cycle()
        world.clock.advance(conf().submit_timeout_seconds + conf().submit_unknown_grace_seconds)
    assert fresh(request).status == S.HELD
    assert WorkUnit.objects.get(name="mg_000000").state == "done", "its manifest proves it"
    request_release(request=request, **BY)
    world.cycle()
    again = world.job_of(request)
    assert len(again.open_nodes) == 2, "what is left, and nothing that is done"
    assert work_done(world, request)
