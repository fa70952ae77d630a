"""Registration in the real Rucio where a storage element is blocked for writing or wants approval: it is not refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rucio.common.exception import RequestNotFound

from outputs_app.blocks.placements import placement_set
from outputs_app.effects import HANDLERS, taking_back, time_slices
from outputs_app.effects.executor import effects_claim, effects_run_due
from outputs_app.effects.handler import comment_of
from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, OutputDataset, Placement, ProcessingBlock
from tests.support.adapters import adapters_forget
from tests.support.calls import overdue
from tests.support.faults import fault
from tests.support.owed_to_rucio import DISK, RUCIO, TAPE, complete, rules, run
from tests.support.rucio import APPROVED_TAPE, SCOPE, did, settle
from wms2.adapters import factory
from wms2.adapters.rucio import RucioAdapter
from wms2.conf import conf
from wms2.errors import ServiceUnavailable

# They use the same storage elements: in one process, one after the other.
pytestmark = [pytest.mark.django_db, pytest.mark.rucio, pytest.mark.xdist_group("storage elements in Rucio")]


@pytest.fixture(name="blocked")
def _blocked(admin: Any) -> Iterator[Callable[..., None]]:
    """Blocks storage elements for writing, or opens them again; all are open at the end."""

    def block(*rses: str, blocked: bool = True) -> None:
        for rse in rses:
            admin.update_rse(rse, {"availability_write": not blocked})

    yield block
    block(DISK, TAPE, blocked=False)


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    """A complete block with one file at the disk, of which only what is owed to Rucio is left."""
    adapters_forget()
    return complete(DISK)


def died(effect: Effect, *, called: bool) -> None:
    """A worker claims it, makes the call or not, and is never heard of again."""
    claimed = effects_claim(owner="dead", most=5)
    assert effect in claimed
    if called:
        HANDLERS[effect.kind].call(next(row for row in claimed if row == effect))
    Effect.objects.filter(state=EffectState.CLAIMED).update(claim_expires_at=overdue())


def tape_at(rse: str) -> None:
    OutputDataset.objects.update(tape_rse=rse)


@pytest.mark.alone
@fault(
    "RSE write-blocked",
    done="the disk where a unit's files lie, and the tape chosen for them, are blocked for writing in Rucio",
    spec="docs/design/services.md, Rules",
    afterwards="the files get their source rules at once; the tape rule is made when the tape is open again, not refused",
)
def test_source_rules_are_made_where_writing_is_blocked_and_tape_rules_wait(admin: Any, block: ProcessingBlock, blocked) -> None:
    tape_at(TAPE)
    blocked(DISK, TAPE)
    states = run()
    assert states == dict.fromkeys([*RUCIO[:4], "rucio_source_block"], "done") | {"rucio_tape": "pending"}
    rule = admin.get_replication_rule(ProcessingBlock.objects.get().source_rule_id)
    assert (rule["state"], rule["rse_expression"]) == ("OK", DISK)
    assert "RSEWriteBlocked" in Effect.objects.get(kind=EffectKind.RUCIO_TAPE).last_error
    blocked(TAPE, blocked=False)
    assert run()["rucio_tape"] == "done"
    block.refresh_from_db()
    assert block.status == BlockStatus.ARCHIVED


def test_a_tape_rule_that_waits_for_approval_is_shown_and_no_failure(admin: Any, block: ProcessingBlock, monkeypatch) -> None:
    monkeypatch.setenv("WMS2_TAPE_RSE_EXPRESSION", "rse_type=TAPE")
    conf.cache_clear()
    tape_at(APPROVED_TAPE)
    for _ in range(2):
        assert run()["rucio_tape"] == "pending"
        block.refresh_from_db()
        effect = Effect.objects.get(kind=EffectKind.RUCIO_TAPE)
        assert f"waits for approval at {APPROVED_TAPE}" in effect.last_error
        assert (effect.first_failed_at, block.status, block.rucio_attempt_count) == (None, BlockStatus.COMPLETE, 0)
    (rule,) = admin.list_replication_rules({"scope": SCOPE, "name": block.dbs_block_name, "rse_expression": APPROVED_TAPE})
    admin.approve_replication_rule(rule["id"])
    assert run()["rucio_tape"] == "done"
    block.refresh_from_db()
    assert (block.status, block.tape_rule_id) == (BlockStatus.ARCHIVED, rule["id"])


def test_rules_that_take_several_turns_to_release_are_released_once_each(
    admin: Any, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rucio keeps a deleted rule for an hour, from its last deletion on: who began with those again would never end."""
    tape_at(TAPE)
    assert set(run().values()) == {"done"}
    request = block.workflow.request
    release = Effect.objects.create(
        request=request, kind=EffectKind.RUCIO_RELEASE, key="release", payload={"dataset_id": block.dataset_id}
    )
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(taking_back, "_PORTION", 1)
    run()
    release.refresh_from_db()
    assert (release.state, release.result, release.attempts) == ("done", {"done": 2, "of": 2, "deleted": 2}, 1)
    rules = admin.list_replication_rules({"scope": SCOPE, "name": block.dbs_block_name})
    assert all(rule["expires_at"] for rule in rules)


def test_a_source_rule_that_is_not_deleted_yet_stays_known_when_the_tape_rule_is_gone(
    admin: Any, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is how a repeat finds it."""
    tape, source = "0" * 32, "f" * 32  # in the order in which they are deleted
    ProcessingBlock.objects.update(status=BlockStatus.INVALIDATED, tape_rule_id=tape, source_rule_id=source)
    Effect.objects.update(state=EffectState.DONE)
    Effect.objects.create(
        request=block.workflow.request, kind=EffectKind.RUCIO_RELEASE, key="release", payload={"dataset_id": block.dataset_id}
    )
    monkeypatch.setattr(taking_back, "_PORTION", 1)
    delete = RucioAdapter.delete_rule

    def silent_for_source(self: RucioAdapter, rule_id: str, purge: bool = False) -> bool:
        if rule_id == source:
            raise ServiceUnavailable("rucio", "delete_rule", "no answer")
        return delete(self, rule_id, purge)

    with pytest.MonkeyPatch.context() as silent:
        silent.setattr(RucioAdapter, "delete_rule", silent_for_source)
        assert run()["rucio_release"] == "pending"
    block.refresh_from_db()
    assert (block.tape_rule_id, block.source_rule_id) == ("", source)
    assert run()["rucio_release"] == "done"
    block.refresh_from_db()
    assert block.source_rule_id == ""


@pytest.mark.parametrize(
    ("environment", "setting", "document", "project"),
    [
        ("production", "", {}, "Production"),
        ("production", "", {"SubRequestType": "RelVal"}, "RelVal"),
        ("test", "", {"SubRequestType": "RelVal"}, "Test"),
        ("production", "Test", {"SubRequestType": "RelVal"}, "Test"),
    ],
)
def test_containers_and_blocks_say_which_project_they_are_of(
    admin: Any, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch, environment: str, setting: str, document, project: str
) -> None:
    monkeypatch.setenv("WMS2_ENVIRONMENT", environment)
    for name in ("URL", "ALLOWED_URLS"):  # production asks no other way
        monkeypatch.setenv(f"WMS2_CONFIGCACHE_{name}", "https://cms.example/couchdb")
    monkeypatch.setenv("WMS2_RUCIO_PROJECT", setting)
    adapters_forget()
    request = block.workflow.request
    request.request_data = document
    request.save()
    dataset = f"/Primary{uuid.uuid4().hex[:8]}/Era-Proc-v1/GEN-SIM"
    ProcessingBlock.objects.update(dataset_name=dataset, dbs_block_name=f"{dataset}#{uuid.uuid4()}")
    block.refresh_from_db()
    run()
    adapters_forget()
    for name in (dataset, block.dbs_block_name):
        assert admin.get_metadata(SCOPE, name)["project"] == project
    assert did(block.dbs_block_name) in [{k: row[k] for k in ("scope", "name")} for row in admin.list_content(SCOPE, dataset)]


def test_files_at_two_storage_elements_are_in_a_block_at_each_and_nothing_is_transferred(admin: Any) -> None:
    """One unit was given up, and a repeated registration changes nothing."""
    adapters_forget()
    complete(DISK, "T2_CH_CERN")
    tape_at(TAPE)
    for kind in (EffectKind.RUCIO_FILES, EffectKind.RUCIO_PROTECT, EffectKind.RUCIO_SOURCE_BLOCK):
        done = run()
        Effect.objects.filter(kind=kind).update(state=EffectState.PENDING)
    assert set((done | run()).values()) == {"done"}
    blocks = {block.origin_rse: block for block in ProcessingBlock.objects.all()}
    assert blocks.keys() == {DISK, "T2_CH_CERN"}
    for rse, block in blocks.items():
        (file,) = block.files.all()
        assert [row["name"] for row in admin.list_content(SCOPE, block.dbs_block_name)] == [file.lfn]
        assert factory.rucio().block_locations([block.dbs_block_name]) == {block.dbs_block_name: {rse: True}}, (
            "whole, and there alone"
        )
        assert (rules(admin, file.lfn), file.rule_id) == ([], "")
        for other in blocks:
            with pytest.raises(RequestNotFound):
                admin.list_request_by_did(file.lfn, other, SCOPE)
        source, tape = sorted(rules(admin, block.dbs_block_name), key=lambda rule: rule["rse_expression"] == TAPE)
        assert (source["id"], source["state"], source["rse_expression"]) == (block.source_rule_id, "OK", rse)
        assert tape["rse_expression"] == TAPE


@pytest.mark.parametrize("called", [False, True])
def test_a_container_is_placed_on_disk_by_one_rule_also_when_its_worker_dies(admin: Any, called: bool) -> None:
    adapters_forget()
    decided = {"disk_expression": "T1_US_FNAL_Disk", "disk_days": 30, "actor": "olga", "reason": "users want it"}
    placement_set(row=Placement(), tier="GEN-SIM", **decided)
    block = complete(DISK)
    tape_at(TAPE)
    effect = Effect.objects.get(kind=EffectKind.RUCIO_DISK)
    Effect.objects.filter(pk=effect.pk).update(next_attempt_at=timezone.now() + timedelta(days=1))
    effects_run_due(owner="test", limit=20)
    Effect.objects.filter(pk=effect.pk).update(next_attempt_at=overdue())
    died(effect, called=called)
    assert set(run().values()) == {"done"}
    (rule,) = admin.list_replication_rules({"scope": SCOPE, "name": block.dataset.name})
    dataset = OutputDataset.objects.get()
    assert (rule["id"], rule["copies"], rule["rse_expression"]) == (dataset.disk_rule_id, 1, "T1_US_FNAL_Disk")
    assert timedelta(days=29) < rule["expires_at"] - rule["created_at"] <= timedelta(days=30, minutes=5)


@pytest.mark.parametrize("called", [False, True])
def test_source_rules_end_only_while_the_tape_rule_is_ok(admin: Any, block: ProcessingBlock, called: bool) -> None:
    tape_at(TAPE)
    assert set(run().values()) == {"done"}
    block.refresh_from_db()
    effect = Effect.objects.create(request=block.workflow.request, block=block, kind=EffectKind.RUCIO_UNPROTECT, key="end")
    assert run()["rucio_unprotect"] == "pending"
    effect.refresh_from_db()
    assert "REPLICATING, so the source rules stay" in effect.last_error
    comment = comment_of(block.workflow.request_id)
    assert factory.rucio().block_rules_ok(comment) == {block.source_rule_id}
    settle(admin, [block.tape_rule_id])
    assert factory.rucio().block_rules_ok(comment) == {block.source_rule_id, block.tape_rule_id}
    Effect.objects.filter(pk=effect.pk).update(next_attempt_at=overdue())
    died(effect, called=called)
    assert set(run().values()) == {"done"}
    block.refresh_from_db()
    assert ([rule["id"] for rule in rules(admin, block.dbs_block_name)], block.source_rule_id) == ([block.tape_rule_id], "")
