"""Processing blocks: which files they hold, where, when they end, and what is never asked of DBS and Rucio."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.db.migrations import RunSQL
from django.db.migrations.loader import MigrationLoader
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.models import WorkUnit
from outputs_app.blocks.filling import blocks_check, blocks_register_sealed, blocks_seal_all, blocks_seal_due
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
from outputs_app.services import effect_retry_now, units_register
from outputs_app.values import BlockLimits, MergedFile, UnitOutputs
from requests_app.models import Workflow
from tests.support.rows import dag_row, unit_register, unit_row, workflow_row
from tests.support.scripted.later_keys import KEY, VALUE
from wms2.errors import LedgerViolation

pytestmark = pytest.mark.django_db


@pytest.fixture(name="workflow")
def _workflow() -> Workflow:
    return workflow_row()


CERN, DESY = "T2_CH_CERN", "T2_DE_DESY"


def new_units(workflow: Workflow, number: int) -> list[WorkUnit]:
    dag = workflow.dags.first() or dag_row(workflow)
    first = WorkUnit.objects.filter(dag=dag).count()
    return [unit_row(dag, first + index) for index in range(number)]


def file_at(workflow: Workflow, rse: str, lfn: str, dataset: str = "") -> MergedFile:
    name = dataset or workflow.output_datasets.order_by("pk")[0].name
    return MergedFile(name, lfn, rse, 100, "0000000a", 10, {"1": ((1, 10),)})


def limits(**changes: float) -> BlockLimits:
    values = {"max_bytes": 1000, "max_files": 500, "max_events": 10**9, "max_wait_seconds": 3600}
    return BlockLimits(**(values | changes))  # type: ignore[arg-type]


def brought(workflow: Workflow, unit: WorkUnit, *files: MergedFile, **most: float) -> None:
    outputs = UnitOutputs(unit.pk, unit.name, files)
    unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=outputs, limits=limits(**most))


def done(workflow: Workflow, unit: WorkUnit, *lfns: str, rse: str = CERN, **most: float) -> None:
    """The unit brought these files."""
    brought(workflow, unit, *(file_at(workflow, rse, lfn) for lfn in lfns), **most)


def advance(workflow: Workflow) -> None:
    blocks_register_sealed(workflow_id=workflow.pk, request_id=workflow.request.pk, request_epoch=1)


def indexes(workflow: Workflow, status: BlockStatus) -> Sequence[int]:
    return sorted(ProcessingBlock.objects.filter(workflow=workflow, status=status).values_list("block_index", flat=True))


def held() -> list[tuple[int, str, set[str]]]:
    """The blocks in their order: index, RSE and files."""
    rows = ProcessingBlock.objects.order_by("dataset_name", "block_index")
    return [(row.block_index, row.origin_rse, set(row.files.values_list("lfn", flat=True))) for row in rows]


def test_a_sealed_block_is_closed_and_archived(workflow: Workflow) -> None:
    first, second, third = new_units(workflow, 3)
    done(workflow, first, "/store/a.root")
    done(workflow, second, "/store/b.root")
    done(workflow, third, "/store/c.root", max_bytes=250)
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0], "the second is not sealed yet"
    assert Effect.objects.filter(kind=EffectKind.DBS_BLOCK).count() == 1
    blocks_seal_all(workflow_id=workflow.pk)
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0, 1]


def test_a_block_lies_where_its_units_have_brought_it_and_nowhere_else(workflow: Workflow) -> None:
    at_cern, at_desy, again, moved = new_units(workflow, 4)
    done(workflow, at_cern, "/store/a.root")
    done(workflow, at_desy, "/store/b.root", rse=DESY)
    done(workflow, again, "/store/c.root")
    done(workflow, moved, "/store/d.root", rse=DESY)
    assert held() == [(0, CERN, {"/store/a.root", "/store/c.root"}), (1, DESY, {"/store/b.root", "/store/d.root"})]
    assert set(ProcessingBlock.objects.values_list("total_work_units", "planned_bytes")) == {(2, 200)}
    blocks_seal_all(workflow_id=workflow.pk)
    advance(workflow)
    assert [(index, rse) for index, rse, _ in held()] == [(0, CERN), (1, DESY)]
    assert indexes(workflow, BlockStatus.COMPLETE) == [0, 1]


def test_a_unit_whose_files_lie_at_two_places_is_in_a_block_of_each(workflow: Workflow) -> None:
    (unit,) = new_units(workflow, 1)
    brought(workflow, unit, file_at(workflow, CERN, "/store/a.root"), file_at(workflow, DESY, "/store/b.root"))
    assert held() == [(0, CERN, {"/store/a.root"}), (1, DESY, {"/store/b.root"})]
    assert set(BlockWorkUnit.objects.values_list("unit_id", "done")) == {(unit.pk, True)}
    reported = Effect.objects.filter(kind=EffectKind.RUCIO_FILES).values_list("block__origin_rse", "payload")
    assert sorted(reported) == [(CERN, {"units": [unit.pk]}), (DESY, {"units": [unit.pk]})]


def test_a_unit_that_brought_no_file_is_in_no_block(workflow: Workflow) -> None:
    (unit,) = new_units(workflow, 1)
    done(workflow, unit)
    blocks_seal_all(workflow_id=workflow.pk)
    advance(workflow)
    assert not (ProcessingBlock.objects.exists() or BlockWorkUnit.objects.exists() or Effect.objects.exists())


def test_what_is_told_twice_is_registered_once_and_no_file_comes_later(workflow: Workflow) -> None:
    (unit,) = new_units(workflow, 1)
    done(workflow, unit, "/store/a.root")
    blocks_seal_all(workflow_id=workflow.pk)
    done(workflow, unit, "/store/a.root")
    with pytest.raises(LedgerViolation, match=r"registered already, without /store/b\.root"):
        done(workflow, unit, "/store/a.root", "/store/b.root")
    assert held() == [(0, CERN, {"/store/a.root"})]
    assert ProcessingBlock.objects.get().total_work_units == 1


@pytest.mark.parametrize("most", [{"max_bytes": 250}, {"max_files": 2}, {"max_events": 25}, {"max_lumis": 2}])
def test_only_a_single_unit_passes_a_limit_also_when_many_are_done_at_once(workflow: Workflow, most: dict[str, float]) -> None:
    units = new_units(workflow, 5)
    files = [[file_at(workflow, CERN, f"/store/{n}.root")] for n in range(4)]
    files.append([file_at(workflow, CERN, f"/store/large{n}.root") for n in range(3)])
    outputs = [UnitOutputs(unit.pk, unit.name, tuple(each)) for unit, each in zip(units, files, strict=True)]
    reported = {"request_id": workflow.request.pk, "request_epoch": 1}
    assert not units_register(**reported, outputs=outputs, limits=limits(**most)).refused
    assert [len(lfns) for _, _, lfns in held()] == [2, 2, 3]
    assert blocks_check(workflow_id=workflow.pk, limits=limits(**most)).changed, "what is sealed is registered now"


def test_how_many_statements_it_takes_does_not_depend_on_the_number_of_units(workflow: Workflow) -> None:
    reported = {"request_id": workflow.request.pk, "request_epoch": 1, "limits": limits(max_bytes=10**9)}
    took = list[int]()
    for number in (1, 1, 30):
        outputs = [
            UnitOutputs(unit.pk, unit.name, (file_at(workflow, CERN, f"/store/{unit.pk}.root"),))
            for unit in new_units(workflow, number)
        ]
        with CaptureQueriesContext(connection) as made:
            units_register(**reported, outputs=outputs)
        took.append(sum("clock_timestamp" not in each["sql"] for each in made))  # which is asked now and then
    assert took[1] == took[2] <= 6


def test_an_upgrade_takes_planned_places_away_and_seals_what_is_at_any_rse(workflow: Workflow) -> None:
    (migration,) = (
        each for (_, name), each in MigrationLoader(None).disk_migrations.items() if name.endswith("blocks_at_one_rse")
    )
    (forward,) = (each.sql for each in migration.operations if isinstance(each, RunSQL))
    first, planned, alone = new_units(workflow, 3)
    done(workflow, first, "/store/a.root")
    block = ProcessingBlock.objects.get()
    ProcessingBlock.objects.update(origin_rse="", total_work_units=2, planned_bytes=107)
    empty = ProcessingBlock.objects.create(
        workflow=workflow, dataset=block.dataset, dataset_name=block.dataset_name, dbs_block_name="/a/b/c#1", block_index=1,
        sealed_at=timezone.now(),
    )  # fmt: skip
    for place, unit in ((block, planned), (empty, alone)):
        BlockWorkUnit.objects.create(block=place, unit=unit, dataset=place.dataset, size_bytes=7)
    with connection.cursor() as cursor:
        cursor.execute(forward)
    assert list(BlockWorkUnit.objects.values_list("unit", "block")) == [(first.pk, block.pk)]
    (block,) = ProcessingBlock.objects.all()
    assert (block.total_work_units, block.planned_bytes, block.sealed_at is None) == (1, 100, False)
    advance(workflow)
    assert held() == [(0, CERN, {"/store/a.root"})]


def test_places_that_a_former_release_planned_hold_nothing_up(workflow: Workflow) -> None:
    """Its processes run beside this one's for a while, and plan rounds."""
    unit, other = new_units(workflow, 2)
    dataset = workflow.output_datasets.get()
    values = {"workflow": workflow, "dataset": dataset, "dataset_name": dataset.name, "total_work_units": 1}
    for index, each in enumerate((unit, other)):
        block = ProcessingBlock.objects.create(
            block_index=index, dbs_block_name=f"{dataset.name}#{index}", sealed_at=None if index else timezone.now(), **values
        )
        BlockWorkUnit.objects.create(block=block, unit=each, dataset=dataset, size_bytes=7)
    done(workflow, unit, "/store/a.root")
    assert list(BlockWorkUnit.objects.filter(unit=unit).values_list("done", "size_bytes")) == [(True, 100)]
    blocks_seal_all(workflow_id=workflow.pk)
    advance(workflow)
    assert held() == [(2, CERN, {"/store/a.root"})]
    assert indexes(workflow, BlockStatus.COMPLETE) == [2]


def test_a_block_that_failed_before_it_was_complete_is_closed_and_archived_once_its_effect_is_retried(workflow: Workflow) -> None:
    first, second = new_units(workflow, 2)
    done(workflow, first, "/store/a.root")
    dead = Effect.objects.get(kind=EffectKind.RUCIO_FILES)
    Effect.objects.filter(pk=dead.pk).update(state=EffectState.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED)
    done(workflow, second, "/store/b.root")
    blocks_seal_all(workflow_id=workflow.pk)
    advance(workflow)

    effect_retry_now(effect=dead, actor="olga", reason="it works again")
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
    (unit,) = new_units(workflow, 1)
    parent, child = two_datasets(workflow)
    files = (
        MergedFile(child.name, "/store/mc/child.root", "T2_CH_CERN", *CONTENT, parents=("/store/mc/parent.root",)),
        MergedFile(parent.name, "/store/mc/parent.root", "T2_CH_CERN", *CONTENT, parents=("/store/data/input.root",)),
    )
    register = partial(unit_register, request_id=workflow.request.pk, request_epoch=1)
    register(outputs=UnitOutputs(unit.pk, unit.name, files))
    ProcessingBlock.objects.filter(dataset=child).update(sealed_at=timezone.now())
    advance(workflow)
    assert registrations() == {}, "the child's block is whole, its parents' is not"

    blocks_seal_all(workflow_id=workflow.pk)
    advance(workflow)
    asked = registrations()
    assert asked[parent.name] in asked[child.name].depends_on.all()
    assert asked[child.name] not in asked[parent.name].depends_on.all()


def test_files_that_are_parents_of_each_other_are_refused(workflow: Workflow) -> None:
    (unit,) = new_units(workflow, 1)
    parent, child = two_datasets(workflow)
    files = (
        MergedFile(child.name, "/store/mc/child.root", "T2_CH_CERN", *CONTENT, parents=("/store/mc/parent.root",)),
        MergedFile(parent.name, "/store/mc/parent.root", "T2_CH_CERN", *CONTENT, parents=("/store/mc/child.root",)),
    )
    with pytest.raises(LedgerViolation, match="parents of each other"):
        unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=UnitOutputs(unit.pk, unit.name, files))


def test_a_dataset_that_names_its_parents_waits_for_the_first_block_of_each(workflow: Workflow) -> None:
    (unit,) = new_units(workflow, 1)
    parent, child = two_datasets(workflow, parents=[workflow.output_datasets.get().name, "/In/Put-v1/RAW"])
    names = {parent.name: "/store/mc/parent.root", child.name: "/store/mc/child.root"}
    brought(workflow, unit, *(file_at(workflow, CERN, lfn, dataset) for dataset, lfn in names.items()))
    ProcessingBlock.objects.filter(dataset=child).update(sealed_at=timezone.now())
    advance(workflow)
    assert registrations() == {}
    blocks_seal_all(workflow_id=workflow.pk)
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
    first, second = new_units(workflow, 2)
    done(workflow, first, "/store/a.root")
    done(workflow, second, "/store/b.root")
    assert not Effect.objects.filter(kind__startswith="dbs").exists(), "nothing is told to DBS before the block is whole"
    blocks_seal_all(workflow_id=workflow.pk)
    for _ in range(2):
        advance(workflow)
    (registered,) = Effect.objects.filter(kind=EffectKind.DBS_BLOCK)
    (attached,) = registered.depends_on.all()
    assert attached.payload["units"] == [first.pk, second.pk]
    tape = Effect.objects.get(kind=EffectKind.RUCIO_TAPE)
    assert set(tape.depends_on.values_list("kind", flat=True)) == {EffectKind.DBS_BLOCK, EffectKind.RUCIO_BLOCK_CLOSE}


def age(**hours: float) -> None:
    """Let the first block's first file be so old."""
    ProcessingBlock.objects.filter(block_index=0).update(first_file_at=timezone.now() - timedelta(**hours))


def tend(workflow: Workflow, **changes: float) -> int:
    """How many are sealed by that."""
    due = blocks_check(workflow_id=workflow.pk, limits=limits(**changes)).by(timezone.now())
    taking = ProcessingBlock.objects.filter(sealed_at=None)
    before = taking.count()
    blocks_seal_due(workflow_id=workflow.pk, limits=limits(**changes))
    assert due or before == taking.count() or changes, "time alone must be seen without an account"
    return before - taking.count()


@pytest.mark.parametrize("limit", [{"max_bytes": 200}, {"max_files": 2}, {"max_events": 20}, {"max_lumis": 2}])
def test_a_block_with_enough_files_or_events_is_sealed_and_registered(workflow: Workflow, limit: dict[str, float]) -> None:
    first, second, third = new_units(workflow, 3)
    done(workflow, first, "/store/a.root")
    assert tend(workflow, **limit) == 0
    done(workflow, second, "/store/b.root")
    for file in OutputFile.objects.all():
        OutputFile.objects.filter(pk=file.pk).update(lumis=file.lumis | {KEY: VALUE})
    assert tend(workflow, **limit) == 1
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0]
    done(workflow, third, "/store/c.root")
    assert held()[1] == (1, CERN, {"/store/c.root"})


def test_a_block_whose_first_file_is_old_is_sealed(workflow: Workflow) -> None:
    at_cern, at_desy = new_units(workflow, 2)
    done(workflow, at_cern, "/store/a.root")
    done(workflow, at_desy, "/store/b.root", rse=DESY)
    assert tend(workflow) == 0
    age(hours=1.1)
    assert tend(workflow) == 1
    advance(workflow)
    assert indexes(workflow, BlockStatus.COMPLETE) == [0]


def test_an_archived_block_that_failed_afterwards_is_archived_again_once_its_effect_is_retried(workflow: Workflow) -> None:
    (unit,) = new_units(workflow, 1)
    done(workflow, unit, "/store/a.root")
    blocks_seal_all(workflow_id=workflow.pk)
    advance(workflow)
    dead = Effect.objects.get(kind=EffectKind.DBS_BLOCK)
    Effect.objects.exclude(pk=dead.pk).update(state=EffectState.DONE)
    Effect.objects.filter(pk=dead.pk).update(state=EffectState.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED, tape_rule_id="rule-tape")

    effect_retry_now(effect=dead, actor="olga", reason="it works again")
    advance(workflow)

    assert indexes(workflow, BlockStatus.ARCHIVED) == [0], "nothing would make it archived a second time"


def test_when_time_next_changes_a_block_is_known_beforehand(workflow: Workflow, django_assert_num_queries: Any) -> None:
    def due_in() -> float | None:
        moment = blocks_check(workflow_id=workflow.pk, limits=limits()).first
        return None if moment is None else round((moment - timezone.now()).total_seconds() / 3600, 2)

    assert due_in() is None
    done(workflow, new_units(workflow, 1)[0], "/store/a.root")
    assert due_in() == 1, "it takes units for so long after its first file"
    age(hours=2)
    assert due_in() == -1
    blocks_seal_all(workflow_id=workflow.pk)
    assert due_in() is None, "one that is whole waits for nothing that time brings"
    with django_assert_num_queries(1):
        assert blocks_check(workflow_id=workflow.pk, limits=limits()).changed, "but it can be registered"
