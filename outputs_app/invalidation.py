"""What becomes of outputs that are no longer wanted: superseded, listed for invalidation, invalidated (error-handling 4.2, 4.3).

Only writes rows, inside its caller's transaction; ``outputs_app.effects`` acts outside. Undoing by block state: an
OPEN or COMPLETE block loses its source rules, an ARCHIVED one its tape rule too; DBS knows no invalid block, so the files and
the dataset become invalid (spec 6.3).
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import structlog
from django.db.models import Case, Count, F, Q, Sum, When

from outputs_app.asking import Wish, effect_ask, effects_ask
from outputs_app.models import (
    REPORTS,
    BlockStatus,
    DatasetState,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from outputs_app.states import blocks_become
from wms2 import clock

log = structlog.get_logger(__name__)
SCHEMA = "wms2.invalidation/1"
#: Writing a manifest takes less.
WRITING_SECONDS = 30
TAKING_BACK = (EffectKind.INVALIDATION_MANIFEST, EffectKind.RUCIO_RELEASE, EffectKind.DBS_INVALIDATE)


def blocks_fail(*, workflow_id: uuid.UUID, reason: str) -> int:
    """OPEN blocks of a request that failed become FAILED; returns how many."""
    rows = ProcessingBlock.objects.filter(workflow_id=workflow_id, status=BlockStatus.OPEN)
    return blocks_become(rows, BlockStatus.FAILED, failure_context={"request": reason})


def datasets_supersede(*, workflow_id: uuid.UUID) -> int:
    """ACTIVE outputs have replacements now."""
    rows = OutputDataset.objects.filter(workflow_id=workflow_id, state=DatasetState.ACTIVE)
    return rows.update(state=DatasetState.SUPERSEDED)


def manifest_ask(*, request_id: uuid.UUID, request_epoch: int) -> None:
    """Ask for the file that lists what has to be invalidated; asked twice it is written once."""
    effect_ask(Wish(EffectKind.INVALIDATION_MANIFEST, request_id), request_id=request_id, request_epoch=request_epoch)


def manifest_renew(*, request_id: uuid.UUID) -> None:
    """Something was registered or protected after the manifest was asked for: have it written again.

    In the transaction that records it. A writing that is under way has not seen it: its result does not count, and the next one
    comes when it is over.
    """
    now, held = clock.in_sql(), Q(state=EffectState.CLAIMED)
    rows = Effect.objects.filter(key=Wish(EffectKind.INVALIDATION_MANIFEST, request_id).key)
    rows.filter(held | Q(state=EffectState.DONE)).update(
        state=EffectState.PENDING,
        next_attempt_at=Case(When(held, then=now + timedelta(seconds=WRITING_SECONDS)), default=now),
        claim_epoch=F("claim_epoch") + 1,
        claimed_by="",
        claim_expires_at=None,
    )


def invalidation_asked(*, request_id: uuid.UUID, request_epoch: int) -> bool:
    """Whether the outputs are being taken back already, in this epoch."""
    return Effect.objects.filter(request_id=request_id, epoch=request_epoch, kind=EffectKind.RUCIO_RELEASE).exists()


def invalidation_ask(*, request_id: uuid.UUID, request_epoch: int, workflow_id: uuid.UUID) -> int:
    """Ask for the invalidation of every output; returns the number of datasets. ``request_epoch`` must be a new one.

    The caller has raised the request's epoch, so nothing registers or protects these outputs any more. What was asked for before
    to take them back goes on under the new epoch: asked twice it is done once. The manifest comes first, while there are rules.
    """
    asked = Effect.objects.filter(request_id=request_id, kind__in=TAKING_BACK)
    asked.exclude(state=EffectState.DONE).update(epoch=request_epoch)
    # what ReqMgr2 is still to be told stays true
    Effect.objects.filter(request_id=request_id, kind__in=REPORTS).exclude(state=EffectState.DONE).update(epoch=request_epoch)
    manifest = list(asked.filter(kind=EffectKind.INVALIDATION_MANIFEST).values_list("key", flat=True))
    datasets = OutputDataset.objects.filter(workflow_id=workflow_id).exclude(state=DatasetState.INVALIDATED)
    wishes = []
    for dataset in datasets:
        rules = Wish(EffectKind.RUCIO_RELEASE, dataset.pk, manifest, payload={"dataset_id": dataset.pk})
        # the files stay valid as long as a rule keeps them
        wishes += [rules, Wish(EffectKind.DBS_INVALIDATE, dataset.pk, [rules.key], payload=rules.payload)]
    effects_ask(wishes=wishes, request_id=request_id, request_epoch=request_epoch)
    return len(datasets)


def invalidation_manifest(*, request_name: str, workflow_id: uuid.UUID) -> dict[str, Any]:
    """Everything of a request that is registered or protected outside, as one document."""
    datasets = [_dataset(row) for row in OutputDataset.objects.filter(workflow_id=workflow_id).order_by("name")]
    return {
        "schema": SCHEMA,
        "request_name": request_name,
        "written_at": clock.now().isoformat(),
        "datasets": datasets,
        "totals": {
            "datasets": len(datasets),
            "blocks": sum(len(dataset["blocks"]) for dataset in datasets),
            "rules": sum(len(block["rules"]) for dataset in datasets for block in dataset["blocks"]),
        },
    }


def _dataset(dataset: OutputDataset) -> dict[str, Any]:
    blocks = ProcessingBlock.objects.filter(dataset=dataset).order_by("block_index")
    counted = blocks.annotate(number=Count("files"), size=Sum("files__size_bytes"))
    return {"name": dataset.name, "state": dataset.state, "blocks": [_block(block) for block in counted]}


def _block(block: Any) -> dict[str, Any]:
    files = OutputFile.objects.filter(block=block).exclude(rule_id="").order_by("lfn")
    rules = [
        {"id": rule, "kind": "source", "did": lfn, "rse": rse} for rule, lfn, rse in files.values_list("rule_id", "lfn", "rse")
    ]
    if block.tape_rule_id:
        rules.append({"id": block.tape_rule_id, "kind": "tape", "did": block.dbs_block_name, "rse": block.dataset.tape_rse})
    return {
        "name": block.dbs_block_name,
        "status": block.status,
        "open_in_dbs": block.dbs_block_open and not block.dbs_block_closed,
        "files": block.number,
        "bytes": block.size or 0,
        "rules": rules,
    }
