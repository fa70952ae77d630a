"""Blocks that are registered and protected for real: in the stack's Rucio and its simulated DBS."""

from __future__ import annotations

import uuid

from outputs_app.blocks.filling import blocks_register_sealed, blocks_seal_all
from outputs_app.effects.executor import effects_run_due
from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, ProcessingBlock
from outputs_app.values import MergedFile, UnitOutputs
from requests_app.models import RequestStatus
from tests.support.calls import overdue
from tests.support.rows import dag_row, generation_spec, output_spec, request_row, unit_register, unit_row, workflow_row

DISK = "T2_CH_CERN"


def made_block(name: str = "", *, one_rule: bool = False) -> ProcessingBlock:
    """Archived; of its two units the first has two files. ``name``: of its dataset, another each time by default; ``one_rule``:
    of the block in place of its files'."""
    spec = output_spec(name or uuid.uuid4().hex[:8])
    workflow = workflow_row(request_row(RequestStatus.ACTIVE), generation_spec(outputs=(spec,)))
    dataset, dag = workflow.output_datasets.get(), dag_row(workflow)
    rows = [unit_row(dag, index) for index in range(2)]
    for unit in rows:
        files = tuple(
            MergedFile(
                dataset.name, f"{spec.merged_lfn_base}/00000/{uuid.uuid4()}.root", DISK, 100, "0000000a", 10,
                {"1": ((10 * unit.index + number + 1, 10),)},
            )
            for number in range(2 - unit.index)
        )  # fmt: skip
        outputs = UnitOutputs(unit.pk, unit.name, files)
        unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=outputs)
    blocks_seal_all(workflow_id=workflow.pk)
    blocks_register_sealed(workflow_id=workflow.pk, request_id=workflow.request.pk, request_epoch=1)
    if not one_rule:
        Effect.objects.filter(kind=EffectKind.RUCIO_SOURCE_BLOCK).update(state=EffectState.DISCARDED)
    run_effects()
    block = ProcessingBlock.objects.get(dataset=dataset)
    assert block.status == BlockStatus.ARCHIVED, list(Effect.objects.values_list("kind", "state", "last_error"))
    return block


def run_effects() -> None:
    """All that is owed, due or not."""
    for _ in range(8):
        Effect.objects.filter(state=EffectState.PENDING).update(next_attempt_at=overdue())
        effects_run_due(owner="test", limit=20)
