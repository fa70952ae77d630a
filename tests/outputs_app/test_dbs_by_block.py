"""What the change to registration by block makes of blocks that were begun file by file (migration 0005)."""

from __future__ import annotations

import importlib

import pytest
from django.apps import apps
from django.db import connection

from dags_app.models import WorkUnit
from outputs_app.blocks import blocks_advance, blocks_seal, units_join_blocks
from outputs_app.models import BlockStatus, BlockWorkUnit, Effect, EffectKind, EffectState, OutputFile, ProcessingBlock
from outputs_app.values import Membership, MergedFile, UnitOutputs
from requests_app.models import Workflow
from tests.support.rows import dag_row, unit_register, unit_row, workflow_row

pytestmark = pytest.mark.django_db
MIGRATION = importlib.import_module("outputs_app.migrations.0005_dbs_by_block")


@pytest.fixture(name="workflow")
def _workflow() -> Workflow:
    """A workflow whose effects may be of the old kinds."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE effects DROP CONSTRAINT effect_kind_known")
    return workflow_row()


def migrate() -> None:
    class Now:
        """Constraints are checked at the end of the test."""

        @staticmethod
        def execute(statement: str) -> None:
            assert statement.startswith("SET CONSTRAINTS")

    MIGRATION.end_progressive_blocks(apps, Now())


def units(workflow: Workflow, count: int) -> list[WorkUnit]:
    dag = dag_row(workflow)
    found = [unit_row(dag, index) for index in range(count)]
    members = [Membership(unit.pk, workflow.output_datasets.get().name, 0, 10) for unit in found]
    units_join_blocks(workflow_id=workflow.pk, memberships=members)
    return found


def done(workflow: Workflow, unit: WorkUnit, *, told: EffectState) -> None:
    """The unit's file and replicas are there; DBS was told of it, or is to be."""
    name = workflow.output_datasets.get().name
    files = (MergedFile(name, f"/store/mc/{unit.pk}.root", "T2_CH_CERN", 100, "0000000a", 10, {"1": ((1, 10),)}),)
    unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=UnitOutputs(unit.pk, unit.name, files))
    block = ProcessingBlock.objects.get(block_index=0)
    Effect.objects.create(
        request=workflow.request, block=block, unit=unit, kind="dbs_files", key=f"dbs_files:{block.pk}:{unit.pk}", state=told
    )
    Effect.objects.filter(unit=unit, kind__startswith="rucio").update(state=EffectState.DONE)


def test_a_block_begun_in_dbs_ends_with_what_dbs_has_and_the_rest_goes_to_a_new_one(workflow: Workflow) -> None:
    first, second, third = units(workflow, 3)
    done(workflow, first, told=EffectState.DONE)
    done(workflow, second, told=EffectState.PENDING)
    ProcessingBlock.objects.update(dbs_block_open=True)
    OutputFile.objects.update(rule_id="rule")

    migrate()

    begun, new = ProcessingBlock.objects.order_by("block_index")
    assert begun.sealed_at is not None
    assert not new.dbs_block_open
    held = {unit: block for block, unit in BlockWorkUnit.objects.values_list("block__block_index", "unit")}
    assert held == {first.pk: 0, second.pk: 1, third.pk: 1}
    assert OutputFile.objects.get(unit=second).block == new
    assert not Effect.objects.filter(kind__in=MIGRATION.OLD).exists()
    attached = Effect.objects.get(block=new, kind=EffectKind.RUCIO_FILES)
    assert (attached.unit, attached.state) == (second, EffectState.PENDING), "its files are attached to the new block too"
    assert not Effect.objects.filter(block=new, kind=EffectKind.RUCIO_PROTECT).exists(), "they have their rules"

    done(workflow, third, told=EffectState.DONE)
    blocks_seal(workflow_id=workflow.pk)
    blocks_advance(workflow_id=workflow.pk, request_id=workflow.request.pk, request_epoch=1)
    assert Effect.objects.filter(kind=EffectKind.DBS_BLOCK).count() == 2
    assert set(ProcessingBlock.objects.values_list("status", flat=True)) == {BlockStatus.COMPLETE}


def test_a_block_that_was_only_to_be_closed_is_registered_the_new_way(workflow: Workflow) -> None:
    (unit,) = units(workflow, 1)
    done(workflow, unit, told=EffectState.DONE)
    ProcessingBlock.objects.update(dbs_block_open=True, status=BlockStatus.COMPLETE)
    migrate()
    blocks_seal(workflow_id=workflow.pk)
    blocks_advance(workflow_id=workflow.pk, request_id=workflow.request.pk, request_epoch=1)
    assert Effect.objects.get(kind=EffectKind.DBS_BLOCK).state == EffectState.PENDING


def test_a_block_that_dbs_knows_without_a_file_is_given_up_for_a_new_one(workflow: Workflow) -> None:
    (unit,) = units(workflow, 1)
    name = ProcessingBlock.objects.get().dbs_block_name
    done(workflow, unit, told=EffectState.REFUSED)
    ProcessingBlock.objects.update(dbs_block_open=True)
    migrate()
    (block,) = ProcessingBlock.objects.all()
    assert block.dbs_block_name != name
    assert OutputFile.objects.get().block == block
    kinds = set(Effect.objects.values_list("kind", flat=True))
    assert kinds == {EffectKind.RUCIO_BLOCK, EffectKind.RUCIO_FILES, EffectKind.RUCIO_PROTECT}
