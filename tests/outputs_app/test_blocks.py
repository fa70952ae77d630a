"""Processing blocks: which units they hold, when they end, and what is never asked of DBS and Rucio."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from dags_app.models import WorkUnit
from outputs_app.blocks import (
    block_give_up,
    blocks_advance,
    blocks_let_go,
    blocks_look,
    blocks_open,
    blocks_seal,
    blocks_tend,
    units_join_blocks,
    units_leave_blocks,
)
from outputs_app.models import (
    BlockStatus,
    BlockWorkUnit,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from outputs_app.services import effect_retry
from outputs_app.values import BlockLimits, Membership, MergedFile, UnitOutputs
from requests_app.models import Workflow
from tests.support.rows import dag_row, unit_register, unit_row, workflow_row
from tests.support.scripted.later_keys import KEY, VALUE
from wms2.errors import LedgerViolation

pytestmark = pytest.mark.django_db


@pytest.fixture(name="workflow")
def _workflow() -> Workflow:
    return workflow_row()


def join(workflow: Workflow, *block_indexes: int) -> list[WorkUnit]:
    """New units, each in the block with that index of the workflow's only dataset."""
    dag = workflow.dags.first() or dag_row(workflow)
    dataset = workflow.output_datasets.order_by("pk")[0].name
    units = [unit_row(dag, WorkUnit.objects.filter(dag=dag).count()) for _ in block_indexes]
    members = [Membership(unit.pk, dataset, index, 10) for unit, index in zip(units, block_indexes, strict=True)]
    units_join_blocks(workflow_id=workflow.pk, memberships=members)
    return units


def done(workflow: Workflow, unit: WorkUnit, *lfns: str) -> None:
    """The unit brought these files."""
    dataset = workflow.output_datasets.order_by("pk")[0].name
    files = tuple(MergedFile(dataset, lfn, "T2_CH_CERN", 100, "0000000a", 10, {"1": ((1, 10),)}) for lfn in lfns)
    outputs = UnitOutputs(unit.pk, unit.name, files)
    unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=outputs)


def advance(workflow: Workflow) -> None:
    blocks_advance(workflow_id=workflow.pk, request_id=workflow.request.pk, request_epoch=1)


def indexes(workflow: Workflow, status: BlockStatus) -> Sequence[int]:
    return sorted(ProcessingBlock.objects.filter(workflow=workflow, status=status).values_list("block_index", flat=True))


def test_a_sealed_block_whose_units_are_all_done_is_closed_and_archived(workflow: Workflow) -> None:
    first, second = join(workflow, 0, 1)
    done(workflow, first, "/store/a.root")
    done(workflow, second, "/store/b.root")
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0], "the second is not sealed yet"
    assert Effect.objects.filter(kind=EffectKind.DBS_BLOCK).count() == 1
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0, 1]


def test_a_sealed_block_that_all_units_left_disappears_and_is_not_closed_anywhere(workflow: Workflow) -> None:
    lost, kept = join(workflow, 0, 1)
    units_leave_blocks(unit_ids=[lost.pk])
    done(workflow, kept, "/store/b.root")
    advance(workflow)
    assert not ProcessingBlock.objects.filter(workflow=workflow, block_index=0).exists()
    assert not Effect.objects.filter(kind=EffectKind.DBS_BLOCK).exists()


def test_a_block_that_loses_a_unit_keeps_the_others(workflow: Workflow) -> None:
    kept, lost = join(workflow, 0, 0)
    done(workflow, kept, "/store/a.root")
    units_leave_blocks(unit_ids=[kept.pk, lost.pk])
    (block,) = ProcessingBlock.objects.filter(workflow=workflow)
    assert (block.total_work_units, block.planned_bytes) == (1, 100), "a unit that is done does not leave"


def test_a_block_whose_units_brought_no_file_disappears(workflow: Workflow) -> None:
    (unit,) = join(workflow, 0)
    done(workflow, unit)
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)
    assert not ProcessingBlock.objects.exists()
    assert not BlockWorkUnit.objects.exists()
    assert not Effect.objects.exists()


def test_a_block_that_failed_before_it_was_complete_is_closed_and_archived_once_its_effect_is_retried(workflow: Workflow) -> None:
    first, second = join(workflow, 0, 0)
    done(workflow, first, "/store/a.root")
    dead = Effect.objects.get(kind=EffectKind.RUCIO_FILES)
    Effect.objects.filter(pk=dead.pk).update(state=EffectState.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED)
    done(workflow, second, "/store/b.root")
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)

    effect_retry(effect=dead)
    advance(workflow)

    assert indexes(workflow, BlockStatus.COMPLETE) == [0]
    closing = (EffectKind.DBS_BLOCK, EffectKind.RUCIO_BLOCK_CLOSE, EffectKind.RUCIO_TAPE)
    assert Effect.objects.filter(kind__in=closing, state=EffectState.PENDING).count() == 3


def two_datasets(workflow: Workflow, **registration: object) -> tuple[OutputDataset, OutputDataset]:
    """The workflow's dataset and another one."""
    child = OutputDataset.objects.create(
        workflow=workflow, name="/A/B-v1/AODSIM", step="Reco", module="AOD", tier="AODSIM", registration=registration
    )
    return workflow.output_datasets.exclude(pk=child.pk).get(), child


CONTENT = (100, "0000000a", 10, {"1": ((1, 10),)})


def registrations() -> dict[str, Effect]:
    return {e.block.dataset_name: e for e in Effect.objects.filter(kind=EffectKind.DBS_BLOCK) if e.block}


def test_a_block_waits_for_the_blocks_that_hold_its_files_parents(workflow: Workflow) -> None:
    (unit,) = join(workflow, 0)
    parent, child = two_datasets(workflow)
    other = unit_row(workflow.dags.get(), 7)
    members = [Membership(unit.pk, child.name, 0, 10), Membership(other.pk, parent.name, 0, 10)]
    units_join_blocks(workflow_id=workflow.pk, memberships=members)
    files = (
        MergedFile(child.name, "/store/mc/child.root", "T2_CH_CERN", *CONTENT, parents=("/store/mc/parent.root",)),
        MergedFile(parent.name, "/store/mc/parent.root", "T2_CH_CERN", *CONTENT, parents=("/store/data/input.root",)),
    )
    register = partial(unit_register, request_id=workflow.request.pk, request_epoch=1)
    register(outputs=UnitOutputs(unit.pk, unit.name, files))
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)
    assert registrations() == {}, "the child's block is whole, its parents' is not"

    done(workflow, other)
    advance(workflow)
    asked = registrations()
    assert asked[parent.name] in asked[child.name].depends_on.all()
    assert asked[child.name] not in asked[parent.name].depends_on.all()


def test_files_that_are_parents_of_each_other_are_refused(workflow: Workflow) -> None:
    (unit,) = join(workflow, 0)
    parent, child = two_datasets(workflow)
    members = [Membership(unit.pk, child.name, 0, 10)]
    units_join_blocks(workflow_id=workflow.pk, memberships=members)
    files = (
        MergedFile(child.name, "/store/mc/child.root", "T2_CH_CERN", *CONTENT, parents=("/store/mc/parent.root",)),
        MergedFile(parent.name, "/store/mc/parent.root", "T2_CH_CERN", *CONTENT, parents=("/store/mc/child.root",)),
    )
    with pytest.raises(LedgerViolation, match="parents of each other"):
        unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=UnitOutputs(unit.pk, unit.name, files))


def test_a_dataset_that_names_its_parents_waits_for_the_first_block_of_each(workflow: Workflow) -> None:
    (unit,) = join(workflow, 0)
    parent, child = two_datasets(workflow, parents=[workflow.output_datasets.get().name, "/In/Put-v1/RAW"])
    late = unit_row(workflow.dags.get(), 7)
    members = [Membership(late.pk, child.name, 0, 10)]
    units_join_blocks(workflow_id=workflow.pk, memberships=members)
    outputs = (MergedFile(child.name, "/store/mc/child.root", "T2_CH_CERN", *CONTENT),)
    unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=UnitOutputs(late.pk, late.name, outputs))
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)
    assert registrations() == {}
    done(workflow, unit, "/store/mc/parent.root")
    advance(workflow)
    asked = registrations()
    assert list(asked[child.name].depends_on.filter(kind=EffectKind.DBS_BLOCK)) == [asked[parent.name]]
    registered = ProcessingBlock.objects.filter(dataset=parent)
    Effect.objects.filter(block__dataset=child).delete()
    ProcessingBlock.objects.filter(dataset=child).update(status=BlockStatus.OPEN)
    registered.update(dbs_block_closed=True, status=BlockStatus.ARCHIVED, no_tape="test")
    Effect.objects.filter(pk=asked[parent.name].pk).update(state=EffectState.DISCARDED)  # its repair
    advance(workflow)
    assert child.name in registrations(), "DBS has the parent"


def test_a_block_is_registered_once_after_its_files_are_in_rucio_and_goes_to_tape_last(workflow: Workflow) -> None:
    first, second = join(workflow, 0, 0)
    done(workflow, first, "/store/a.root")
    done(workflow, second, "/store/b.root")
    assert not Effect.objects.filter(kind__startswith="dbs").exists(), "nothing is told to DBS before the block is whole"
    blocks_seal(workflow_id=workflow.pk)
    for _ in range(2):
        advance(workflow)
    (registered,) = Effect.objects.filter(kind=EffectKind.DBS_BLOCK)
    (attached,) = registered.depends_on.all()
    assert attached.payload["units"] == [first.pk, second.pk]
    tape = Effect.objects.get(kind=EffectKind.RUCIO_TAPE)
    assert set(tape.depends_on.values_list("kind", flat=True)) == {EffectKind.DBS_BLOCK, EffectKind.RUCIO_BLOCK_CLOSE}


def limits(**changes: float) -> BlockLimits:
    values = {"max_bytes": 1000, "max_files": 500, "max_events": 10**9, "max_wait_seconds": 3600, "unit_patience_seconds": 86400}
    return BlockLimits(**(values | changes))  # type: ignore[arg-type]


def age(**hours: float) -> None:
    """Let the first block's files and seal be so old."""
    block = ProcessingBlock.objects.get(block_index=0)
    if "files" in hours:
        ProcessingBlock.objects.filter(pk=block.pk).update(first_file_at=timezone.now() - timedelta(hours=hours["files"]))
    if "seal" in hours:
        ProcessingBlock.objects.filter(pk=block.pk).update(sealed_at=timezone.now() - timedelta(hours=hours["seal"]))


def tend(workflow: Workflow, **changes: float) -> int:
    due = blocks_look(workflow_id=workflow.pk, limits=limits(**changes)).by(timezone.now())
    moved = blocks_tend(workflow_id=workflow.pk, limits=limits(**changes))
    assert due or not moved or changes.keys() & {"max_files", "max_events", "max_lumis"}, (
        "time alone must be seen without an account"
    )
    return moved


@pytest.mark.parametrize("limit", [{"max_files": 2}, {"max_events": 20}, {"max_lumis": 2}])
def test_a_block_with_enough_files_or_events_is_sealed_and_registered_without_the_units_that_are_not_done(
    workflow: Workflow, limit: dict[str, float]
) -> None:
    done_unit, open_unit = join(workflow, 0, 0)
    done(workflow, done_unit, "/store/a.root")
    assert tend(workflow, **limit) == 0
    more = join(workflow, 0)[0]
    done(workflow, more, "/store/b.root")
    for file in OutputFile.objects.all():
        OutputFile.objects.filter(pk=file.pk).update(lumis=file.lumis | {KEY: VALUE})
    assert tend(workflow, **limit) == 1
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0]
    assert BlockWorkUnit.objects.get(unit=open_unit).block.block_index == 1
    assert blocks_open(workflow_id=workflow.pk)[workflow.output_datasets.get().name].open_index == 1


def test_a_block_whose_first_file_is_old_is_sealed(workflow: Workflow) -> None:
    done_unit, _ = join(workflow, 0, 0)
    done(workflow, done_unit, "/store/a.root")
    assert tend(workflow) == 0
    age(files=1.1)
    assert tend(workflow) == 1
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0]


def test_a_unit_that_keeps_a_sealed_block_waiting_for_a_day_leaves_it_and_comes_with_a_later_one(workflow: Workflow) -> None:
    done_unit, stuck, later = join(workflow, 0, 0, 1)
    done(workflow, done_unit, "/store/a.root")
    age(seal=23, files=23)
    assert tend(workflow) == 0
    age(seal=25, files=23)
    assert tend(workflow) == 0, "sealed when it was planned, but its first file came later: nothing has waited for a day"
    age(seal=25, files=25)
    assert tend(workflow) == 1
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0]
    done(workflow, stuck, "/store/b.root")
    done(workflow, later, "/store/c.root")
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0, 1]
    assert set(OutputFile.objects.filter(block__block_index=1).values_list("lfn", flat=True)) == {
        "/store/b.root",
        "/store/c.root",
    }


def test_units_that_move_respect_the_target_size_of_the_next_block(workflow: Workflow) -> None:
    done_unit, *stuck = join(workflow, 0, 0, 0, 0)
    done(workflow, done_unit, "/store/a.root")
    age(files=2)
    assert tend(workflow, max_bytes=20) == 3
    assert [BlockWorkUnit.objects.get(unit=unit).block.block_index for unit in stuck] == [1, 1, 2]


def test_a_sealed_block_without_any_file_keeps_its_units(workflow: Workflow) -> None:
    join(workflow, 0, 1)
    age(seal=48)
    assert tend(workflow) == 0
    assert blocks_let_go(workflow_id=workflow.pk, limits=limits()) == 0


def test_when_nothing_runs_units_that_are_not_done_leave_at_once(workflow: Workflow) -> None:
    done_unit, _, _ = join(workflow, 0, 0, 1)
    done(workflow, done_unit, "/store/a.root")
    assert blocks_let_go(workflow_id=workflow.pk, limits=limits()) == 1
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0]


def test_no_unit_brings_files_to_a_block_that_is_registered(workflow: Workflow) -> None:
    (unit,) = join(workflow, 0)
    ProcessingBlock.objects.update(dbs_block_open=True, dbs_block_closed=True)
    with pytest.raises(LedgerViolation, match="is registered already"):
        done(workflow, unit, "/store/a.root")
    assert not OutputFile.objects.exists()


def test_an_archived_block_that_failed_afterwards_is_archived_again_once_its_effect_is_retried(workflow: Workflow) -> None:
    (unit,) = join(workflow, 0)
    done(workflow, unit, "/store/a.root")
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)
    dead = Effect.objects.get(kind=EffectKind.DBS_BLOCK)
    Effect.objects.exclude(pk=dead.pk).update(state=EffectState.DONE)
    Effect.objects.filter(pk=dead.pk).update(state=EffectState.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED, tape_rule_id="rule-tape")

    effect_retry(effect=dead)
    advance(workflow)

    assert indexes(workflow, BlockStatus.ARCHIVED) == [0], "nothing would make it archived a second time"


def test_when_time_next_changes_a_block_is_known_beforehand(workflow: Workflow, django_assert_num_queries: Any) -> None:
    def due_in() -> float | None:
        moment = blocks_look(workflow_id=workflow.pk, limits=limits()).first
        return None if moment is None else round((moment - timezone.now()).total_seconds() / 3600, 2)

    done_unit, _ = join(workflow, 0, 0)
    assert due_in() is None, "a block without files has time"
    done(workflow, done_unit, "/store/a.root")
    assert due_in() == 1, "an unsealed one takes units for so long after its first file"
    age(files=2)
    assert due_in() == -1
    blocks_seal(workflow_id=workflow.pk)
    age(seal=3)
    assert due_in() == 22, "a sealed one waits for units for a day"
    BlockWorkUnit.objects.update(done=True)
    assert due_in() is None, "one that is whole waits for nothing that time brings"
    with django_assert_num_queries(1):
        assert blocks_look(workflow_id=workflow.pk, limits=limits()).changed, "but it can be registered"


@pytest.mark.parametrize("given_up", [0, 1], ids=["an older one", "the open one"])
def test_a_block_that_is_given_up_while_a_round_is_planned_gets_none_of_its_units(workflow: Workflow, given_up: int) -> None:
    first, second = join(workflow, 0, 1)
    planned = blocks_open(workflow_id=workflow.pk)[workflow.output_datasets.get().name]
    assert (planned.open_index, planned.blocks) == (1, 2), "what the plan rests on: its units go to 1, then to 2"
    block_give_up(block=ProcessingBlock.objects.get(block_index=given_up), context={})
    moved = BlockWorkUnit.objects.get(unit=(first, second)[given_up]).block
    assert (moved.block_index, moved.sealed_at is None) == (2, False)
    for unit in join(workflow, 1, 2, 3):
        block = BlockWorkUnit.objects.get(unit=unit).block
        assert block.pk != moved.pk and block.status == BlockStatus.OPEN
    assert [block.sealed_at is None for block in ProcessingBlock.objects.order_by("block_index")].count(True) == 1
