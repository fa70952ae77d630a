"""One source rule for a closed block in place of its files', in the real Rucio: at no moment is a valid file without a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from outputs_app.blocks.filling import blocks_register_sealed
from outputs_app.effects import rucio as rucio_effects
from outputs_app.effects.executor import effects_run_due
from outputs_app.effects.invalidation import Parts, parts_ask
from outputs_app.effects.source_rules import source_rules_check
from outputs_app.models import (
    BlockStatus,
    BlockValidation,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from tests.support.adapters import adapters_forget
from tests.support.calls import overdue
from tests.support.owed_to_rucio import DISK, TAPE, complete, rules, run
from tests.support.rucio import SCOPE, evaluate, settle
from tests.support.scripted.faults import PowerCut
from wms2.adapters import factory
from wms2.adapters.rucio import RucioAdapter
from wms2.conf import conf

pytestmark = [pytest.mark.django_db, pytest.mark.rucio, pytest.mark.xdist_group("storage elements in Rucio")]
E = EffectKind


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    """Complete, with two files at the disk, of which only what is owed to Rucio is left."""
    adapters_forget()
    block = complete(DISK, DISK)
    OutputDataset.objects.update(tape_rse=TAPE)
    return block


def files_protected(block: ProcessingBlock) -> dict[str, str]:
    """All but the block's rule is done; LFN -> rule of the file."""
    Effect.objects.filter(kind=E.RUCIO_SOURCE_BLOCK).update(next_attempt_at=timezone.now() + timedelta(days=1))
    effects_run_due(owner="test", limit=20)
    return dict(block.files.values_list("lfn", "rule_id"))


def protected(admin: Any, block: ProcessingBlock) -> set[str]:
    """Files that a rule at the disk keeps, their own or the block's: by Rucio's locks."""
    lfns = set(block.files.values_list("lfn", flat=True))
    standing = [rule for name in (*lfns, block.dbs_block_name) for rule in rules(admin, name) if rule["rse_expression"] == DISK]
    return lfns & {lock["name"] for rule in standing for lock in admin.list_replica_locks(rule["id"]) if lock["state"] == "OK"}


@contextmanager
def death(at: int, *, called: bool) -> Iterator[list[str]]:
    """The worker dies in this call, before or after Rucio has carried it out. The names of the calls."""
    calls: list[str] = []

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            if len(calls) == at and not called:
                raise PowerCut
            answer = call(*args, **kwargs)
            if len(calls) == at:
                raise PowerCut
            return answer

        return made

    with pytest.MonkeyPatch.context() as patch:
        for name in ("block_locations", "block_rule", "rule", "files_kept", "delete_rule"):
            patch.setattr(RucioAdapter, name, dying(name, getattr(RucioAdapter, name)))
        yield calls


CALLS = ["block_locations", "block_rule", "rule", "files_kept", "delete_rule", "delete_rule"]


@pytest.mark.parametrize(("at", "called"), [*((at, True) for at in range(1, len(CALLS) + 1)), (3, False), (6, False)])
def test_killed_between_any_two_calls_each_file_stays_under_a_rule_and_one_rule_is_left(
    admin: Any, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch, at: int, called: bool
) -> None:
    """Before a call only where a row is written after the one before it."""
    monkeypatch.setattr(rucio_effects, "_PORTION", 1)
    before = files_protected(block)
    assert all(before.values()) and protected(admin, block) == before.keys()
    Effect.objects.filter(kind=E.RUCIO_SOURCE_BLOCK).update(next_attempt_at=overdue())
    with death(at, called=called) as calls, pytest.raises(PowerCut):
        effects_run_due(owner="dead", limit=5)
    assert calls == CALLS[:at]
    assert protected(admin, block) == before.keys()
    Effect.objects.filter(state=EffectState.CLAIMED).update(claim_expires_at=overdue())
    assert set(run().values()) == {"done"}
    block.refresh_from_db()
    by_rse = {rule["rse_expression"]: rule for rule in rules(admin, block.dbs_block_name)}
    assert by_rse.keys() == {DISK, TAPE}
    assert (by_rse[DISK]["id"], by_rse[DISK]["state"], by_rse[DISK]["locks_ok_cnt"]) == (block.source_rule_id, "OK", 2)
    assert [rules(admin, lfn) for lfn in before] == [[], []]
    assert set(block.files.values_list("rule_id", flat=True)) == {""}


def test_files_at_two_storage_elements_have_one_rule_at_each(admin: Any) -> None:
    adapters_forget()
    complete(DISK, "T2_CH_CERN")
    OutputDataset.objects.update(tape_rse=TAPE)
    assert set(run().values()) == {"done"}
    for block in ProcessingBlock.objects.all():
        assert {rule["rse_expression"] for rule in rules(admin, block.dbs_block_name)} == {block.origin_rse, TAPE}
        assert [rules(admin, file.lfn) for file in block.files.all()] == [[]]


def test_files_of_one_block_at_two_storage_elements_keep_their_rules(block: ProcessingBlock) -> None:
    """As a former release has registered them."""
    Effect.objects.all().delete()
    OutputFile.objects.filter(pk=block.files.order_by("pk")[0].pk).update(rse="T2_CH_CERN", size_bytes=7)
    ProcessingBlock.objects.update(status=BlockStatus.OPEN, origin_rse="")
    blocks_register_sealed(workflow_id=block.workflow_id, request_id=block.workflow.request.pk, request_epoch=1)
    block.refresh_from_db()
    assert (block.status, block.origin_rse) == (BlockStatus.COMPLETE, DISK), "where most of it lies"
    assert not Effect.objects.filter(kind=E.RUCIO_SOURCE_BLOCK).exists()


def test_where_a_copy_cannot_be_read_nothing_is_copied_and_the_files_keep_their_rules(admin: Any, block: ProcessingBlock) -> None:
    before = files_protected(block)
    lost = min(before)
    admin.update_replicas_states(DISK, [{"scope": SCOPE, "name": lost, "state": "U"}])
    assert set(run().values()) == {"done"}
    effect = Effect.objects.get(kind=E.RUCIO_SOURCE_BLOCK)
    assert effect.result == {"kept": f"not every file is available at {DISK}"}
    assert {rule["rse_expression"] for rule in rules(admin, block.dbs_block_name)} == {TAPE}
    assert dict(block.files.values_list("lfn", "rule_id")) == before and all(len(rules(admin, lfn)) == 1 for lfn in before)


def test_a_file_that_is_taken_back_loses_its_protection_and_the_others_keep_theirs(
    admin: Any, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not in the block any more; the block's rule stays, and lets go of it as soon as Rucio has evaluated that."""
    assert set(run().values()) == {"done"}
    taken, other = block.files.order_by("lfn")
    monkeypatch.setattr(factory, "dbs", _NoDbs)
    parts_ask(parts=Parts([taken], frozenset()), request_id=block.workflow.request.pk, request_epoch=1)
    run()
    taken.refresh_from_db()
    assert taken.validity == Validity.INVALID
    evaluate(block.dbs_block_name)
    assert protected(admin, block) == {other.lfn}
    block.refresh_from_db()
    rule = factory.rucio().rule(block.source_rule_id)
    assert (rule.state, rule.locks_ok, rule.expires_at) == ("OK", 1, None)


class _NoDbs:
    """A DBS that has none of it as valid."""

    def block_files(self, _: str) -> list[Any]:
        return []


@pytest.mark.parametrize("on_tape", [False, True])
def test_the_block_rule_ends_only_when_every_file_is_on_tape(
    admin: Any, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch, on_tape: bool
) -> None:
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS", "0")
    conf.cache_clear()
    assert set(run().values()) == {"done"}
    block.refresh_from_db()
    source = block.source_rule_id
    settle(admin, [block.tape_rule_id])
    if not on_tape:  # Rucio's block has lost one; the rule was OK all the same
        admin.detach_dids(SCOPE, block.dbs_block_name, [{"scope": SCOPE, "name": block.files.order_by("lfn")[0].lfn}])
        evaluate(block.dbs_block_name)
    BlockValidation.objects.create(block=block, asked_at=timezone.now(), validated_at=timezone.now() - timedelta(days=1))
    assert source_rules_check() == 1
    assert run()["rucio_unprotect"] == ("done" if on_tape else "pending")
    block.refresh_from_db()
    assert block.source_rule_id == ("" if on_tape else source)
    assert (factory.rucio().rule(source).expires_at is None) is not on_tape
