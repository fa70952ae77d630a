"""Complete blocks with files in the stack's Rucio, of which what is owed to Rucio is left to be done."""

from __future__ import annotations

import uuid
from typing import Any

from outputs_app.blocks.filling import blocks_register_sealed, blocks_seal_all
from outputs_app.effects.executor import effects_run_due
from outputs_app.models import Effect, EffectKind, EffectState, OutputDataset, ProcessingBlock
from outputs_app.values import MergedFile, UnitOutputs
from requests_app.models import RequestStatus
from tests.support.calls import overdue
from tests.support.rows import dag_row, request_row, unit_register, unit_row, workflow_row
from tests.support.rucio import SCOPE

DISK, TAPE = "T2_US_Purdue", "T1_DE_KIT_Tape"
RUCIO = [kind.value for kind in EffectKind if kind.value.startswith("rucio_")]


def complete(*rses: str) -> ProcessingBlock:
    """The complete block at the first of them, with a file of a unit for each time that it is named, of a dataset of its own;
    those at the others are complete too, and one unit more was given up."""
    workflow, run = workflow_row(request_row(RequestStatus.ACTIVE)), uuid.uuid4().hex[:8]
    dag, dataset, request = dag_row(workflow), workflow.output_datasets.get(), workflow.request
    OutputDataset.objects.update(name=f"/Primary{run}/Era-Proc-v1/GEN-SIM")
    dataset.refresh_from_db()
    units = [unit_row(dag, index) for index in range(len(rses) + 1)]
    for number, (unit, rse) in enumerate(zip(units, rses, strict=False)):
        lfn = f"/store/mc/Era/Primary{run}/GEN-SIM/Proc-v1/00000/{uuid.uuid4()}.root"
        file = MergedFile(dataset.name, lfn, rse, 100, "0000000a", 10, {"1": ((number + 1, 10),)})
        unit_register(request_id=request.pk, request_epoch=1, outputs=UnitOutputs(unit.pk, unit.name, (file,)))
    blocks_seal_all(workflow_id=workflow.pk)
    blocks_register_sealed(workflow_id=workflow.pk, request_id=request.pk, request_epoch=1)
    Effect.objects.exclude(kind__in=RUCIO).update(state=EffectState.DONE)
    return ProcessingBlock.objects.get(origin_rse=rses[0])


def rules(admin: Any, name: str) -> list[Any]:
    """The rules on a file, block or container that stay."""
    return [rule for rule in admin.list_replication_rules({"scope": SCOPE, "name": name}) if rule["expires_at"] is None]


def run() -> dict[str, str]:
    """What is owed to Rucio, tried once more; kind -> state."""
    Effect.objects.filter(state=EffectState.PENDING).update(next_attempt_at=overdue())
    effects_run_due(owner="test", limit=20)
    return dict(Effect.objects.filter(kind__in=RUCIO).values_list("kind", "state"))
