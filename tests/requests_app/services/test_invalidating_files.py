"""Single files and blocks are taken back, the others stay; a whole request's outputs are, in portions that are told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from outputs_app.actions import _discard
from outputs_app.effects import executor, handler, taking_back, time_slices
from outputs_app.effects.executor import effects_run_due
from outputs_app.effects.invalidation import (
    TAKING_BACK,
    invalidation_ask,
    invalidation_progress,
    manifest_ask,
    outputs_counted,
    parts_ask,
    parts_of,
)
from outputs_app.models import (
    BlockStatus,
    DatasetState,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from outputs_app.services import effect_discard
from requests_app.models import Request, RequestStatus
from requests_app.services import request_invalidate, request_invalidate_files
from requests_app.services.invalidation import epoch_raise, files_refused
from tests.support.html import text
from tests.support.rest_clients import reader
from tests.support.rows import new_effect, request_row
from tests.support.scripted.faults import Mode
from tests.support.scripted.progress import completed, fresh, started
from tests.support.scripted.world import World
from tests.support.web_clients import reader as page_reader
from wms2.errors import FieldRefused, InvalidTransition
from wms2.runtime import clock

__all__ = ["page_reader", "reader"]
pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "wrong bytes"}


@pytest.fixture(name="completed")
def _completed(world: World) -> Request:
    return completed(world)


def files_of(request: Request) -> list[OutputFile]:
    """Of the dataset that nothing was made of first."""
    return list(OutputFile.objects.filter(block__workflow__request=request).order_by("-dataset__name", "lfn"))


def cycles(world: World, count: int = 4) -> None:
    for _ in range(count):
        world.clock.advance(60)
        world.cycle()


def test_a_file_is_taken_back_and_the_others_of_its_block_stay(world: World, completed: Request) -> None:
    file, other = files_of(completed)[0], files_of(completed)[-1]
    rules, kept = dict(world.rucio.rules), world.rucio.kept_at(file.rse)
    for _ in range(2):  # asked twice it is done once
        request_invalidate_files(request=completed, files=[file.lfn], accept_children=True, **BY)
    cycles(world)
    file.refresh_from_db()
    other.refresh_from_db()
    assert (file.validity, file.rule_id, other.validity) == (Validity.INVALID, "", Validity.VALID)
    assert world.dbs.invalid == {file.lfn}
    assert (kept - world.rucio.kept_at(file.rse), world.rucio.rules) == ({file.lfn}, rules), "its block's rule stays"
    assert ProcessingBlock.objects.get(pk=file.block_id).status == BlockStatus.ARCHIVED
    effect = Effect.objects.get(kind=EffectKind.FILES_INVALIDATE)
    assert (effect.state, effect.result) == (EffectState.DONE, {"done": 1, "of": 1, "deleted": 0})


def test_a_file_with_a_rule_of_its_own_loses_it(world: World, completed: Request) -> None:
    """Of a block whose rule was never made in place of its files'."""
    block, files = files_of(completed)[0].block, files_of(completed)[0].block.files.all()
    del world.rucio.rules[block.dbs_block_name, block.origin_rse]
    for file in files:
        world.rucio.rules[file.lfn, file.rse] = [file.lfn]
        OutputFile.objects.filter(pk=file.pk).update(rule_id=file.lfn)
    ProcessingBlock.objects.filter(pk=block.pk).update(source_rule_id="")
    rules, file = set(world.rucio.rules), files[0]
    request_invalidate_files(request=completed, files=[file.lfn], accept_children=True, **BY)
    cycles(world)
    assert rules - world.rucio.rules.keys() == {(file.lfn, file.rse)}
    assert Effect.objects.get(kind=EffectKind.FILES_INVALIDATE).result == {"done": 1, "of": 1, "deleted": 1}


def test_a_block_goes_with_all_its_files_and_its_tape_rule(world: World, completed: Request) -> None:
    block = files_of(completed)[0].block
    request_invalidate_files(request=completed, blocks=[block.dbs_block_name], accept_children=True, **BY)
    cycles(world)
    block.refresh_from_db()
    lfns = set(block.files.values_list("lfn", flat=True))
    assert (block.status, block.tape_rule_id) == (BlockStatus.INVALIDATED, "")
    assert world.dbs.invalid == lfns
    assert not {name for name, _ in world.rucio.rules} & {*lfns, block.dbs_block_name}
    left = OutputFile.objects.filter(block__workflow__request=completed).exclude(block=block)
    assert left.exists() and set(left.values_list("validity", flat=True)) == {Validity.VALID}


@pytest.mark.parametrize("kind", [EffectKind.RUCIO_UNPROTECT, EffectKind.BLOCK_VALIDATE])
def test_what_was_owed_for_a_block_that_is_taken_back_ends(world: World, completed: Request, kind: EffectKind) -> None:
    """Its source rules would wait for ever for a rule that keeps its files elsewhere, its comparison for the block."""
    block = files_of(completed)[0].block
    owed = new_effect(request=completed, block=block, kind=kind, epoch=completed.epoch, payload={"generation": 1})
    Effect.objects.filter(pk=owed.pk).update(next_attempt_at=clock.now() + timedelta(seconds=600))  # waits for tape, or DBS
    request_invalidate_files(request=completed, blocks=[block.dbs_block_name], accept_children=True, **BY)
    cycles(world)
    block.refresh_from_db()
    assert block.status == BlockStatus.INVALIDATED
    cycles(world, 12)
    owed.refresh_from_db()
    assert (owed.state, owed.last_error) == (EffectState.DONE, "")


def test_a_rule_that_protects_other_files_as_well_stays(world: World, completed: Request) -> None:
    file, other = files_of(completed)[:2]  # where the jobs ran, and so which files are in one block, differs from world to world
    assert file.dataset_id == other.dataset_id
    world.rucio.rules[file.lfn, file.rse] = ["shared"]
    OutputFile.objects.filter(pk__in=[file.pk, other.pk]).update(block=file.block, rse=file.rse, rule_id="shared")
    request_invalidate_files(request=completed, files=[file.lfn], accept_children=True, **BY)
    cycles(world)
    assert (file.lfn, file.rse) in world.rucio.rules


def test_what_has_children_is_refused_unless_that_is_accepted(completed: Request) -> None:
    parent, child = files_of(completed)[0], files_of(completed)[1]
    OutputFile.objects.filter(pk=child.pk).update(parents=[parent.lfn])
    with pytest.raises(FieldRefused, match="rest on these"):
        request_invalidate_files(request=completed, files=[parent.lfn], **BY)
    both = [parent.lfn, child.lfn]
    OutputFile.objects.exclude(lfn__in=both).update(validity=Validity.INVALID)
    assert request_invalidate_files(request=completed, files=both, **BY) == 2, "with its children it goes"


def test_what_is_not_its_own_not_registered_or_still_wanted_is_refused(world: World, completed: Request) -> None:
    file = files_of(completed)[0]
    with pytest.raises(FieldRefused, match="no such output: /store/other"):
        request_invalidate_files(request=completed, files=["/store/other.root"], **BY)
    with pytest.raises(FieldRefused, match="at least one"):
        request_invalidate_files(request=completed, **BY)
    ProcessingBlock.objects.filter(pk=file.block_id).update(dbs_block_closed=False)
    with pytest.raises(FieldRefused, match="not registered as a whole"):
        request_invalidate_files(request=completed, files=[file.lfn], accept_children=True, **BY)
    ProcessingBlock.objects.filter(pk=file.block_id).update(dbs_block_closed=True)
    dead = new_effect(
        EffectState.DEAD, request=completed, block=file.block, kind=EffectKind.RUCIO_SOURCE_BLOCK, epoch=completed.epoch
    )
    with pytest.raises(FieldRefused, match=r"is still owed: .*\(dead\); wait for it, or discard it"):
        request_invalidate_files(request=completed, files=[file.lfn], accept_children=True, **BY)
    effect_discard(effect=dead, **BY)
    request_invalidate_files(request=completed, files=[file.lfn], accept_children=True, **BY)
    Request.objects.filter(pk=completed.pk).update(status=S.ACTIVE)
    with pytest.raises(InvalidTransition, match="It is Recovering"):
        request_invalidate_files(request=fresh(completed), files=[file.lfn], **BY)


def test_all_outputs_are_taken_back_in_portions_side_by_side_and_each_is_told(
    world: World, reader: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = failed(completed(world))
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(taking_back, "_PORTION", 2)
    monkeypatch.setattr(handler, "LEAST_SHARE", 1)
    request_invalidate(request=fresh(request), **BY)
    path = f"/api/v1/requests/{request.request_name}/invalidation/progress"
    seen = set()
    for _ in range(60):
        effects_run_due(owner="test", limit=1)
        steps = reader.get(path).json()
        seen |= {(step["step"], step["done"], step["of"]) for step in steps}
        if all(step["state"] == "done" for step in steps):
            break
    else:
        raise AssertionError(steps)
    lfns = {file.lfn for file in files_of(request)}
    assert world.dbs.invalid == lfns and not world.rucio.rules
    assert {step["done"] == step["of"] for step in steps} == {True}
    assert any(0 < done < of for _, done, of in seen), seen
    assert set(OutputFile.objects.values_list("validity", flat=True)) == {Validity.INVALID}
    assert "All its outputs" in files_refused(fresh(request))


@pytest.mark.parametrize("known", [True, False], ids=["recorded", "answer lost"])
def test_rules_on_whole_blocks_and_containers_are_listed_and_deleted_too(world: World, reader: APIClient, known: bool) -> None:
    request = failed(completed(world))
    block = ProcessingBlock.objects.filter(workflow__request=request)[0]
    world.rucio.rules[block.dbs_block_name, block.origin_rse] = ["source"]
    world.rucio.rules |= {(block.dataset_name, "rse_type=DISK"): ["disk"]}
    ProcessingBlock.objects.filter(pk=block.pk).update(source_rule_id="source" if known else "")
    if known:
        OutputDataset.objects.filter(pk=block.dataset_id).update(disk_rule_id="disk")
        document = reader.get(f"/api/v1/requests/{request.request_name}/invalidation").json()
        listed = [rule for each in document["datasets"] for part in (each, *each["blocks"]) for rule in part["rules"]]
        assert {rule["id"] for rule in listed} == {rule for ids in world.rucio.rules.values() for rule in ids}
        counts = outputs_counted(fresh(request).workflow.pk)
        assert counts["rules"] == document["totals"]["rules"] == len(listed)
    request_invalidate(request=fresh(request), **BY)
    cycles(world)
    assert not world.rucio.rules
    assert outputs_counted(fresh(request).workflow.pk)["rules"] == 0


def test_the_page_of_a_request_says_how_far_it_is(page_reader: Client) -> None:
    request = request_row(S.FAILED)
    new_effect(request=request, kind=EffectKind.DBS_INVALIDATE, result={"done": 4000, "of": 100_000, "up_to_block": 7})
    shown = text(page_reader.get(reverse("request-page", args=[request.request_name])).content.decode())
    assert "4000 of 100000" in shown


def test_what_was_discarded_is_done_when_it_is_asked_for_again(world: World, completed: Request) -> None:
    file = files_of(completed)[0]
    for _ in range(2):
        request_invalidate_files(request=completed, files=[file.lfn], accept_children=True, **BY)
        effect = Effect.objects.get(kind=EffectKind.FILES_INVALIDATE)
        if effect.state == EffectState.PENDING and not effect.last_error:
            effect_discard(effect=effect, **BY)
    cycles(world)
    file.refresh_from_db()
    assert (file.validity, world.dbs.invalid) == (Validity.INVALID, {file.lfn})


def test_what_is_protected_again_leaves_out_files_that_were_taken_back(world: World, completed: Request) -> None:
    file = files_of(completed)[0]
    request_invalidate_files(request=completed, files=[file.lfn], accept_children=True, **BY)
    cycles(world)
    protect = Effect.objects.filter(block=file.block, kind=EffectKind.RUCIO_PROTECT)
    assert protect.update(state=EffectState.PENDING) == 1
    cycles(world)
    file.refresh_from_db()
    assert (set(protect.values_list("state", flat=True)), file.rule_id) == ({EffectState.DONE}, "")


# --- DBS first, then rules


@pytest.fixture(name="bare")
def _bare(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that were VALID in DBS and had no rule, of their own or on their block, right after one was deleted or detached."""
    found: list[str] = []

    def watched(name: str) -> None:
        call = getattr(world.rucio, name)

        def called(*args: Any) -> Any:
            reported, ruled = call(*args), {each for each, _ in world.rucio.rules}
            kept = {lfn for block, held in world.rucio.held.items() if block in ruled for lfn in held.files} | ruled
            valid = {lfn for block in world.dbs.registered.values() for lfn in block.files} - world.dbs.invalid
            found.extend(sorted(valid - kept))
            return reported

        monkeypatch.setattr(world.rucio, name, called)

    for name in ("delete_rule", "detach_files"):
        watched(name)
    return found


def failed(request: Request) -> Request:
    Request.objects.filter(pk=request.pk).update(status=S.FAILED)
    return fresh(request)


@pytest.mark.parametrize("purge", [False, True])
def test_no_file_loses_its_protection_while_it_is_valid(world: World, completed: Request, bare: list[str], purge: bool) -> None:
    epoch_raise(completed)
    of = {"request_id": completed.pk, "request_epoch": completed.epoch}
    assert invalidation_ask(**of, workflow_id=completed.workflow.pk, purge=purge)
    cycles(world)
    assert world.dbs.invalid == {file.lfn for file in files_of(completed)} and not world.rucio.rules
    assert not bare
    steps = [step.step for step in invalidation_progress(completed.pk)]
    assert steps == [EffectKind.DBS_INVALIDATE, EffectKind.RUCIO_RELEASE] * (len(steps) // 2)


@pytest.mark.parametrize("purge", [False, True])
def test_replicas_that_never_had_a_rule_get_one_that_ends(world: World, purge: bool) -> None:
    """Rucio removes a replica after the end of its last rule: without any, nothing ever removes it."""
    world.sweep_every = 1000  # its epoch is raised by hand
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.rucio.script.refuses = frozenset({"protect_files"})
    world.rucio.script.arm(Mode.REFUSED, 10)
    cycles(world)
    world.rucio.script.heal()
    assert world.rucio.replicas and not world.rucio.rules
    epoch_raise(fresh(request))
    invalidation_ask(request_id=request.pk, request_epoch=request.epoch, workflow_id=request.workflow.pk, purge=purge)
    cycles(world)
    ruled = {lfn for operation, lfns in world.rucio.script.answered if operation == "protect_files" for lfn in lfns.split(",")}
    assert set(world.rucio.replicas) == ruled
    assert not world.rucio.rules


@pytest.mark.parametrize("way", ["file", "block"])
def test_no_part_loses_its_protection_while_it_is_valid(world: World, completed: Request, bare: list[str], way: str) -> None:
    file = files_of(completed)[0]
    wanted = {"lfns": [file.lfn], "blocks": []} if "file" in way else {"lfns": [], "blocks": [file.block.dbs_block_name]}
    parts = parts_of(workflow_id=completed.workflow.pk, **wanted)
    parts_ask(parts=parts, request_id=completed.pk, request_epoch=completed.epoch)
    cycles(world)
    lfns = {file.lfn for file in parts.files}
    assert not lfns & {lfn for held in world.rucio.held.values() for lfn in held.files}, "Rucio's blocks go on without them"
    assert world.dbs.invalid == lfns and not lfns & {name for name, _ in world.rucio.rules}
    assert not bare


def test_what_dbs_refuses_keeps_its_rules_until_somebody_gives_that_up(world: World, completed: Request) -> None:
    rules = dict(world.rucio.rules)
    request_invalidate(request=failed(completed), **BY)
    script = world.dbs.script
    script.refuses = {"invalidate_files"}
    script.arm(Mode.REFUSED, 10)
    cycles(world)
    script.heal()
    in_dbs = Effect.objects.filter(kind=EffectKind.DBS_INVALIDATE)
    assert {effect.state for effect in in_dbs} == {EffectState.REFUSED}
    assert world.rucio.rules == rules
    for effect in in_dbs:
        assert any("rules that keep it are deleted all the same" in reported for reported in _discard(effect))
        effect_discard(effect=effect, **BY)
    cycles(world)
    assert not world.rucio.rules and not world.dbs.invalid
    request_invalidate(request=fresh(completed), **BY)  # now DBS takes it
    cycles(world)
    assert world.dbs.invalid == {file.lfn for file in files_of(completed)}
    assert set(OutputDataset.objects.values_list("state", flat=True)) == {DatasetState.INVALIDATED}


def test_rules_of_an_invalidated_dataset_go_when_it_is_asked_for_again(world: World, completed: Request) -> None:
    request_invalidate(request=failed(completed), **BY)
    Effect.objects.filter(kind=EffectKind.RUCIO_RELEASE).update(state=EffectState.DISCARDED, done_at=clock.now())
    cycles(world)
    assert set(OutputDataset.objects.values_list("state", flat=True)) == {DatasetState.INVALIDATED} and world.rucio.rules
    assert request_invalidate(request=fresh(completed), **BY) == 0
    cycles(world)
    assert not world.rucio.rules
    assert set(ProcessingBlock.objects.values_list("status", "tape_rule_id")) == {(BlockStatus.INVALIDATED, "")}


def test_a_registration_that_ends_after_outputs_are_asked_back_has_their_list_written_again(
    world: World, completed: Request
) -> None:
    """The list was written under the former epoch, when the request failed; what takes outputs back waits for it."""
    request = failed(completed)
    manifest_ask(request_id=request.pk, request_epoch=request.epoch)
    cycles(world)
    late = new_effect(EffectState.CLAIMED, request=request, kind=EffectKind.RUCIO_BLOCK_CLOSE, epoch=request.epoch)
    Effect.objects.filter(pk=late.pk).update(claim_expires_at=clock.now() + timedelta(seconds=60))
    request_invalidate(request=fresh(request), **BY)
    executor._record_success(late, {})
    late.refresh_from_db()
    written = Effect.objects.get(kind=EffectKind.INVALIDATION_MANIFEST)
    assert (late.state, written.state) == (EffectState.DONE, EffectState.PENDING)
    cycles(world)
    assert not Effect.objects.filter(kind__in=TAKING_BACK).exclude(state=EffectState.DONE).exists()
    assert world.dbs.invalid == {file.lfn for file in files_of(request)} and not world.rucio.rules


@pytest.mark.parametrize("done", [0, 1, 2], ids=["nothing", "rules of one dataset", "all rules"])
def test_one_that_was_asked_for_in_the_former_order_ends_in_it(world: World, completed: Request, done: int) -> None:
    request_invalidate(request=failed(completed), **BY)
    effects = {(row.kind, row.payload.get("dataset_id")): row for row in Effect.objects.filter(kind__in=TAKING_BACK[1:3])}
    releases = [row for (kind, _), row in effects.items() if kind == EffectKind.RUCIO_RELEASE]
    for release in releases:
        release.depends_on.clear()
        effects[EffectKind.DBS_INVALIDATE, release.payload["dataset_id"]].depends_on.set([release])
    Effect.objects.filter(kind=EffectKind.DBS_INVALIDATE).update(next_attempt_at=clock.now() + timedelta(hours=1))
    effects_run_due(owner="test", limit=done)
    assert Effect.objects.filter(kind=EffectKind.RUCIO_RELEASE, state=EffectState.DONE).count() == done
    request_invalidate(request=fresh(completed), **BY)  # and once more, after an upgrade
    world.clock.advance(3600)
    cycles(world)
    assert not world.rucio.rules and world.dbs.invalid == {file.lfn for file in files_of(completed)}
    assert set(OutputDataset.objects.values_list("state", flat=True)) == {DatasetState.INVALIDATED}
    assert set(ProcessingBlock.objects.values_list("status", "tape_rule_id")) == {(BlockStatus.INVALIDATED, "")}
