"""Processing blocks: which units they hold, when they end, and what is never asked of DBS and Rucio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from dags_app.models import WorkUnit
from outputs_app.models import BlockStatus, BlockWorkUnit, Effect, EffectKind, EffectState, OutputDataset, ProcessingBlock
from outputs_app.services import (
    blocks_advance,
    blocks_seal,
    effect_retry,
    unit_register,
    units_join_blocks,
    units_leave_blocks,
)
from outputs_app.values import Membership, MergedFile, UnitOutputs
from requests_app.models import Workflow
from tests.support.rows import dag_row, unit_row, workflow_row
from wms2.errors import LedgerViolation

pytestmark = pytest.mark.django_db


@pytest.fixture(name="workflow")
def _workflow() -> Workflow:
    return workflow_row()


def join(workflow: Workflow, *block_indexes: int) -> list[WorkUnit]:
    """New units, each in the block with that index of the workflow's only dataset."""
    dag = workflow.dags.first() or dag_row(workflow)
    dataset = workflow.output_datasets.get().name
    units = [unit_row(dag, WorkUnit.objects.filter(dag=dag).count()) for _ in block_indexes]
    members = [Membership(unit.pk, dataset, index, 10) for unit, index in zip(units, block_indexes, strict=True)]
    units_join_blocks(request_id=workflow.request.pk, workflow_id=workflow.pk, memberships=members)
    return units


def done(workflow: Workflow, unit: WorkUnit, *lfns: str) -> None:
    """The unit brought these files."""
    dataset = workflow.output_datasets.get().name
    files = tuple(MergedFile(dataset, lfn, 100, "0000000a", 10, {"1": ((1, 10),)}) for lfn in lfns)
    outputs = UnitOutputs(unit.pk, unit.name, "T2_CH_CERN", files)
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
    assert Effect.objects.filter(kind=EffectKind.DBS_BLOCK_CLOSE).count() == 1
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0, 1]


def test_a_sealed_block_that_all_units_left_disappears_and_is_not_closed_anywhere(workflow: Workflow) -> None:
    lost, kept = join(workflow, 0, 1)
    units_leave_blocks(unit_ids=[lost.pk])
    done(workflow, kept, "/store/b.root")
    advance(workflow)
    assert not ProcessingBlock.objects.filter(workflow=workflow, block_index=0).exists()
    assert not Effect.objects.filter(kind=EffectKind.DBS_BLOCK_CLOSE).exists()


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
    dead = Effect.objects.get(kind=EffectKind.DBS_FILES)
    Effect.objects.filter(pk=dead.pk).update(state=EffectState.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED)
    done(workflow, second, "/store/b.root")
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)

    effect_retry(effect=dead)
    advance(workflow)

    assert indexes(workflow, BlockStatus.COMPLETE) == [0]
    closing = (EffectKind.DBS_BLOCK_CLOSE, EffectKind.RUCIO_BLOCK_CLOSE, EffectKind.RUCIO_TAPE)
    assert Effect.objects.filter(kind__in=closing, state=EffectState.PENDING).count() == 3


def test_files_wait_for_the_registration_of_their_parents_from_the_same_unit(workflow: Workflow) -> None:
    (unit,) = join(workflow, 0)
    parent = workflow.output_datasets.get()
    child = OutputDataset.objects.create(workflow=workflow, name="/A/B-v1/AODSIM", step="Reco", module="AOD", tier="AODSIM")
    members = [Membership(unit.pk, child.name, 0, 10)]
    units_join_blocks(request_id=workflow.request.pk, workflow_id=workflow.pk, memberships=members)
    content = (100, "0000000a", 10, {"1": ((1, 10),)})
    files = (
        MergedFile(child.name, "/store/mc/child.root", *content, parents=("/store/mc/parent.root",)),
        MergedFile(parent.name, "/store/mc/parent.root", *content, parents=("/store/data/input.root",)),
    )
    register = partial(unit_register, request_id=workflow.request.pk, request_epoch=1)

    register(outputs=UnitOutputs(unit.pk, unit.name, "T2_CH_CERN", files))

    registered = {e.block.dataset_name: e for e in Effect.objects.filter(kind=EffectKind.DBS_FILES) if e.block}
    assert registered[parent.name] in registered[child.name].depends_on.all()
    assert registered[child.name] not in registered[parent.name].depends_on.all()

    each_other = (files[0], replace(files[1], parents=("/store/mc/child.root",)))
    with pytest.raises(LedgerViolation, match="parents of each other"):
        register(outputs=UnitOutputs(unit.pk, unit.name, "T2_CH_CERN", each_other))


def test_an_archived_block_that_failed_afterwards_is_archived_again_once_its_effect_is_retried(workflow: Workflow) -> None:
    (unit,) = join(workflow, 0)
    done(workflow, unit, "/store/a.root")
    blocks_seal(workflow_id=workflow.pk)
    advance(workflow)
    dead = Effect.objects.get(kind=EffectKind.DBS_BLOCK_CLOSE)
    Effect.objects.exclude(pk=dead.pk).update(state=EffectState.DONE)
    Effect.objects.filter(pk=dead.pk).update(state=EffectState.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED, tape_rule_id="rule-tape")

    effect_retry(effect=dead)
    advance(workflow)

    assert indexes(workflow, BlockStatus.ARCHIVED) == [0], "nothing would make it archived a second time"
