"""A block's status moves along its edges and no others."""

from __future__ import annotations

import itertools

import pytest

from outputs_app.models import BlockStatus, ProcessingBlock
from outputs_app.states import TRANSITIONS, blocks_become
from tests.support.cases import in_one_test
from tests.support.rows import workflow_row

pytestmark = pytest.mark.django_db


def test_every_status_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(BlockStatus)


@in_one_test("old, new", list(itertools.product(BlockStatus, BlockStatus)), rows=True)
def test_a_block_moves_along_an_edge_or_stays_as_it_is(old: BlockStatus, new: BlockStatus) -> None:
    workflow = workflow_row()
    dataset = workflow.output_datasets.order_by("pk")[0]
    block = ProcessingBlock.objects.create(
        workflow=workflow, dataset=dataset, block_index=0, dataset_name=dataset.name, dbs_block_name=f"{dataset.name}#1",
        status=old, tape_rule_id="rule",
    )  # fmt: skip
    moved = blocks_become(ProcessingBlock.objects.filter(pk=block.pk), new, rucio_last_error="written")
    block.refresh_from_db()
    allowed = new is old or new in TRANSITIONS[old]
    assert (moved, block.status, block.rucio_last_error) == ((1, new, "written") if allowed else (0, old, ""))
