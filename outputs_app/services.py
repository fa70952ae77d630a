"""Writes of outputs_app: datasets, blocks, files, and the effects they call for (spec 4.7; ``model.md`` section 3).

Every function here only writes rows, inside its caller's transaction; what must happen outside becomes Effect rows, which
``outputs_app.executor`` runs. Each may be repeated: effect keys and unique constraints make twice the same as once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from graphlib import CycleError, TopologicalSorter
from typing import Any

import structlog
from django.db.models import Max, Sum

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
from outputs_app.owning import lumis_refuse_twice
from outputs_app.values import DatasetRecord, Membership, OpenBlock, UnitOutputs
from wms2 import clock
from wms2.errors import LedgerViolation

log = structlog.get_logger(__name__)


def datasets_ensure(*, workflow_id: uuid.UUID, records: Iterable[DatasetRecord]) -> None:
    """One OutputDataset row per kept output."""
    for record in records:
        OutputDataset.objects.get_or_create(
            workflow_id=workflow_id,
            name=record.name,
            defaults={"step": record.step, "module": record.module, "tier": record.tier, "registration": asdict(record)},
        )


def blocks_open(*, workflow_id: uuid.UUID) -> dict[str, OpenBlock]:
    """Per output dataset: how many blocks it has had, and its unsealed one with the bytes planned into it, if there is one."""
    found: dict[str, OpenBlock] = {}
    for dataset in OutputDataset.objects.filter(workflow_id=workflow_id).annotate(last=Max("blocks__block_index")):
        block = ProcessingBlock.objects.filter(dataset=dataset, sealed_at__isnull=True).first()
        found[dataset.name] = OpenBlock(
            blocks=0 if dataset.last is None else dataset.last + 1,
            open_index=block.block_index if block else None,
            planned_bytes=block.planned_bytes if block else 0,
        )
    return found


def units_join_blocks(*, request_id: uuid.UUID, workflow_id: uuid.UUID, memberships: Sequence[Membership]) -> None:
    """Put planned units into their blocks, creating blocks and sealing those that later ones of the dataset follow."""
    datasets = {d.name: d for d in OutputDataset.objects.filter(workflow_id=workflow_id)}
    blocks: dict[tuple[str, int], ProcessingBlock] = {}
    for name, index in sorted({(m.dataset, m.block_index) for m in memberships}):
        ProcessingBlock.objects.filter(dataset=datasets[name], block_index__lt=index, sealed_at__isnull=True).update(
            sealed_at=clock.now()
        )
        blocks[name, index], _ = ProcessingBlock.objects.get_or_create(
            dataset=datasets[name],
            block_index=index,
            defaults={"workflow_id": workflow_id, "dataset_name": name, "dbs_block_name": f"{name}#{uuid.uuid4()}"},
        )
    BlockWorkUnit.objects.bulk_create(
        [
            BlockWorkUnit(
                block=blocks[m.dataset, m.block_index],
                unit_id=m.unit_id,
                dataset=datasets[m.dataset],
                size_bytes=m.estimated_bytes,
            )
            for m in memberships
        ],
        batch_size=2000,
    )
    for block in blocks.values():
        _recount(block)


def unit_register(*, request_id: uuid.UUID, request_epoch: int, outputs: UnitOutputs) -> int:
    """Store a completed unit's files and ask for their registration and protection; returns the number of files.

    Raises:
        LedgerViolation: a file for a dataset the unit does not belong to, a known LFN with other content, files that are
            parents of each other, or lumis that another request's valid file has in the dataset.
    """
    memberships = {
        m.dataset.name: m for m in BlockWorkUnit.objects.select_related("block", "dataset").filter(unit_id=outputs.unit_id)
    }
    strangers = {f.dataset for f in outputs.files} - memberships.keys()
    if strangers:
        raise LedgerViolation(f"{outputs.unit_name}: files for datasets it does not belong to: {sorted(strangers)}")
    _refuse_changed_files(outputs)
    for name, member in sorted(memberships.items()):
        lumis_refuse_twice(dataset=member.dataset, lumis=[f.lumis for f in outputs.files if f.dataset == name])
    OutputFile.objects.bulk_create(
        [
            OutputFile(
                lfn=f.lfn,
                dataset=memberships[f.dataset].dataset,
                block=memberships[f.dataset].block,
                unit_id=outputs.unit_id,
                rse=outputs.rse,
                size_bytes=f.size_bytes,
                adler32=f.adler32,
                events=f.events,
                lumis={run: [list(pair) for pair in pairs] for run, pairs in f.lumis.items()},
                parents=list(f.parents),
            )
            for f in outputs.files
        ],
        ignore_conflicts=True,
    )
    for name, member in memberships.items():
        size = sum(f.size_bytes for f in outputs.files if f.dataset == name)
        BlockWorkUnit.objects.filter(pk=member.pk).update(done=True, size_bytes=size)
        _recount(member.block)
    asked: dict[str, Effect] = {}
    for name, parents in _parents_first(outputs):
        after = [asked[parent] for parent in parents]
        asked[name] = _ask_unit_effects(request_id, request_epoch, memberships[name], outputs, after)
    return len(outputs.files)


def _parents_first(outputs: UnitOutputs) -> list[tuple[str, list[str]]]:
    """Datasets of a unit's files with those of its other datasets that hold parents of them, which come before them: DBS
    takes no file whose parent it does not know.
    """
    dataset_of = {file.lfn: file.dataset for file in outputs.files}
    parents: dict[str, set[str]] = {file.dataset: set() for file in outputs.files}
    for file in outputs.files:
        parents[file.dataset] |= {dataset_of[parent] for parent in file.parents if parent in dataset_of} - {file.dataset}
    try:
        order = list(TopologicalSorter(parents).static_order())
    except CycleError as error:
        raise LedgerViolation(f"{outputs.unit_name}: files of {sorted(set(error.args[1]))} are parents of each other") from error
    return [(name, sorted(parents[name])) for name in order]


def units_leave_blocks(*, unit_ids: Sequence[int]) -> None:
    """Units that will not be done leave their blocks; ``blocks_seal`` removes a block that is left without any."""
    members = BlockWorkUnit.objects.filter(unit_id__in=unit_ids, done=False)
    blocks = list(ProcessingBlock.objects.filter(members__in=members).distinct())
    members.delete()
    for block in blocks:
        if not block.members.exists() and not block.files.exists():
            block.delete()  # nothing of it is known outside; kept, it would be closed there once it is sealed
        else:
            _recount(block)


def blocks_seal(*, workflow_id: uuid.UUID) -> int:
    """Seal every open block: nothing is left to plan."""
    return ProcessingBlock.objects.filter(workflow_id=workflow_id, sealed_at__isnull=True).update(sealed_at=clock.now())


def blocks_advance(*, workflow_id: uuid.UUID, request_id: uuid.UUID, request_epoch: int) -> None:
    """Sealed blocks whose members are all done become COMPLETE and are asked to be closed and archived.

    One whose members brought no file disappears: it was never opened outside.
    """
    sealed = ProcessingBlock.objects.filter(workflow_id=workflow_id, status=BlockStatus.OPEN, sealed_at__isnull=False)
    for block in sealed.exclude(members__done=False):
        if not block.files.exists():
            block.delete()
            continue
        origin = block.files.values("rse").annotate(total=Sum("size_bytes")).order_by("-total", "rse").first()
        ProcessingBlock.objects.filter(pk=block.pk, status=BlockStatus.OPEN).update(
            status=BlockStatus.COMPLETE, origin_rse=origin["rse"] if origin else "", updated_at=clock.now()
        )
        ask = _Asker(request_id, request_epoch, block)
        ask(EffectKind.DBS_BLOCK_CLOSE, after=block.effects.filter(kind=EffectKind.DBS_FILES))
        closed = ask(EffectKind.RUCIO_BLOCK_CLOSE, after=block.effects.filter(kind=EffectKind.RUCIO_FILES))
        ask(EffectKind.RUCIO_TAPE, after=[closed])
        log.info("block complete", block=block.dbs_block_name, work_units=block.total_work_units)


def effect_retry(*, effect: Effect, reopen: bool = True) -> None:
    """An operator's "retry now" for a refused or dead effect; its block leaves FAILED.

    ARCHIVED if its tape rule is there, which nothing would make it a second time; else OPEN, whatever it was: ``blocks_advance``
    makes it COMPLETE and asks for what a FAILED block was never asked.

    Args:
        reopen: false when the request itself has failed: nothing would ever advance the block again, so it stays FAILED.
    """
    Effect.objects.filter(pk=effect.pk, state__in=(EffectState.REFUSED, EffectState.DEAD, EffectState.PENDING)).update(
        state=EffectState.PENDING, next_attempt_at=clock.now(), first_failed_at=None
    )
    if effect.block_id and reopen:
        failed = ProcessingBlock.objects.filter(pk=effect.block_id, status=BlockStatus.FAILED)
        now = clock.now()
        failed.exclude(tape_rule_id="").update(status=BlockStatus.ARCHIVED, updated_at=now)
        failed.update(status=BlockStatus.OPEN, updated_at=now)


def effect_ask(
    kind: EffectKind, *, key: object, request_id: uuid.UUID, request_epoch: int, after: Iterable[Effect] = (), **fields: Any
) -> Effect:
    """The effect of this kind and key, made with what it waits for unless it is there already."""
    values = {"kind": kind, "request_id": request_id, "epoch": request_epoch, "next_attempt_at": clock.now(), **fields}
    effect, created = Effect.objects.get_or_create(key=f"{kind}:{key}", defaults=values)
    if created:
        effect.depends_on.set(after)
    return effect


class _Asker:
    """Creates the effects of one block, once each."""

    def __init__(self, request_id: uuid.UUID, request_epoch: int, block: ProcessingBlock) -> None:
        self.request_id, self.request_epoch, self.block = request_id, request_epoch, block

    def __call__(
        self, kind: EffectKind, *, key: str = "", after: Iterable[Effect] = (), unit_id: int | None = None, **payload: Any
    ) -> Effect:
        return effect_ask(
            kind, key=key or self.block.pk, request_id=self.request_id, request_epoch=self.request_epoch, after=after,
            block=self.block, unit_id=unit_id, payload=payload,
        )  # fmt: skip


def _ask_unit_effects(
    request_id: uuid.UUID, request_epoch: int, member: BlockWorkUnit, outputs: UnitOutputs, after: Sequence[Effect]
) -> Effect:
    """Ask for all that a unit's files of one dataset need; their registration in DBS, which follows ``after``."""
    block, dataset = member.block, member.dataset
    ask = _Asker(request_id, request_epoch, block)
    known = ask(EffectKind.DBS_DATASET, key=str(dataset.pk), dataset_id=dataset.pk)
    opened = ask(EffectKind.DBS_BLOCK_OPEN, after=[known], rse=outputs.rse)
    per_unit = f"{block.pk}:{outputs.unit_id}"
    registered = ask(EffectKind.DBS_FILES, key=per_unit, after=[opened, *after], unit_id=outputs.unit_id)
    there = ask(EffectKind.RUCIO_BLOCK)
    attached = ask(EffectKind.RUCIO_FILES, key=per_unit, after=[there], unit_id=outputs.unit_id)
    ask(EffectKind.RUCIO_PROTECT, key=per_unit, after=[attached], unit_id=outputs.unit_id)
    return registered


def _refuse_changed_files(outputs: UnitOutputs) -> None:
    new = {f.lfn: f for f in outputs.files}
    for row in OutputFile.objects.filter(lfn__in=new):
        file = new[row.lfn]
        if (row.unit_id, row.size_bytes, row.adler32, row.events) != (
            outputs.unit_id,
            file.size_bytes,
            file.adler32,
            file.events,
        ):
            raise LedgerViolation(f"{outputs.unit_name}: {row.lfn} is already known with other content")


def _recount(block: ProcessingBlock) -> None:
    sums = block.members.aggregate(total=Sum("size_bytes"))
    ProcessingBlock.objects.filter(pk=block.pk).update(
        total_work_units=block.members.count(), planned_bytes=sums["total"] or 0, updated_at=clock.now()
    )
