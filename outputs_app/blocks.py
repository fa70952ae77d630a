"""Processing blocks: which units are in them, when they take no more, when they are whole (docs/design/model.md, Blocks).

Only writes rows, inside its caller's transaction, which holds the request's row: one evaluation at a time moves units of a
workflow. DBS hears of a block once, when it is sealed and every member is done (ADR 0036); a unit that is not done and keeps a
sealed block waiting moves on to another one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import structlog
from django.db.models import Count, Max, Min, QuerySet, Sum

from outputs_app.asking import block_asker
from outputs_app.models import BlockStatus, BlockWorkUnit, Effect, EffectKind, OutputDataset, OutputFile, ProcessingBlock
from outputs_app.states import blocks_become
from outputs_app.values import BlockLimits, Membership, OpenBlock
from wms2 import clock

log = structlog.get_logger(__name__)


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


def units_join_blocks(*, workflow_id: uuid.UUID, memberships: Sequence[Membership]) -> None:
    """Put planned units into their blocks, creating blocks and sealing those that later ones of the dataset follow."""
    datasets = {d.name: d for d in OutputDataset.objects.filter(workflow_id=workflow_id)}
    blocks: dict[tuple[str, int], ProcessingBlock] = {}
    for name, index in sorted({(m.dataset, m.block_index) for m in memberships}):
        ProcessingBlock.objects.filter(dataset=datasets[name], block_index__lt=index, sealed_at__isnull=True).update(
            sealed_at=clock.now()
        )
        blocks[name, index] = _block(datasets[name], index)
    members = [
        BlockWorkUnit(
            block=blocks[m.dataset, m.block_index], unit_id=m.unit_id, dataset=datasets[m.dataset], size_bytes=m.estimated_bytes
        )
        for m in memberships
    ]
    BlockWorkUnit.objects.bulk_create(members, batch_size=2000)
    for block in blocks.values():
        block_recount(block=block)


def units_leave_blocks(*, unit_ids: Sequence[int]) -> None:
    """Units that will not be done leave their blocks; ``blocks_seal`` removes a block that is left without any."""
    members = BlockWorkUnit.objects.filter(unit_id__in=unit_ids, done=False)
    blocks = list(ProcessingBlock.objects.filter(members__in=members).distinct())
    members.delete()
    for block in blocks:
        if not block.members.exists() and not block.files.exists():
            block.delete()  # nothing of it is known outside; kept, it would be closed there once it is sealed
        else:
            block_recount(block=block)


def blocks_seal(*, workflow_id: uuid.UUID) -> int:
    """Seal every open block: nothing is left to plan."""
    return ProcessingBlock.objects.filter(workflow_id=workflow_id, sealed_at__isnull=True).update(sealed_at=clock.now())


def blocks_tend(*, workflow_id: uuid.UUID, limits: BlockLimits) -> int:
    """Seal blocks that have enough files or events, or had their first file long ago; units that are not done leave them, and
    those that have kept any sealed block waiting for too long. Returns how many units moved.
    """
    moved = 0
    now = clock.now()
    for block in _filled(workflow_id).select_for_update(of=("self",)):
        held = block.files.aggregate(files=Count("pk"), events=Sum("events"), first=Min("created_at"))
        full = held["files"] >= limits.max_files or held["events"] >= limits.max_events
        # most blocks are sealed when they are planned: files wait from when they are there, not from then
        waited = max(block.sealed_at or held["first"], held["first"]) <= now - timedelta(
            seconds=limits.unit_patience_seconds if block.sealed_at else limits.max_wait_seconds
        )
        if not (full or waited):
            continue
        if block.sealed_at is None:
            block.sealed_at = now
            block.save(update_fields=["sealed_at", "updated_at"])
            log.info("block sealed", block=block.dbs_block_name, why="full" if full else "old", files=held["files"])
        moved += _move_on(block, limits)
    return moved


def blocks_due(*, workflow_id: uuid.UUID, limits: BlockLimits) -> bool:
    """Whether ``blocks_tend`` or ``blocks_advance`` may find something to do because time has passed; only looks."""
    now = clock.now()
    patient = now - timedelta(seconds=limits.unit_patience_seconds)
    waited = now - timedelta(seconds=limits.max_wait_seconds)
    rows = _filled(workflow_id)
    whole = rows.filter(sealed_at__isnull=False).exclude(members__done=False)
    late = rows.filter(sealed_at__lte=patient, files__created_at__lte=patient)
    old = rows.filter(sealed_at__isnull=True, files__created_at__lte=waited)
    return whole.exists() or late.exists() or old.exists()


def blocks_next_due(*, workflow_id: uuid.UUID, limits: BlockLimits) -> datetime | None:
    """When time alone gives ``blocks_tend`` something to do next; None when no block waits for that."""
    now, moments = clock.now(), []
    for sealed_at, first in _filled(workflow_id).values_list("sealed_at").annotate(first=Min("files__created_at")):
        if sealed_at is None:
            moments.append(first + timedelta(seconds=limits.max_wait_seconds))
        else:
            moments.append(max(sealed_at, first) + timedelta(seconds=limits.unit_patience_seconds))
    return min((moment for moment in moments if moment > now), default=None)


def blocks_let_go(*, workflow_id: uuid.UUID, limits: BlockLimits) -> int:
    """Nothing runs: units that are not done leave the sealed blocks that hold files of others. Returns how many moved."""
    sealed = _filled(workflow_id).filter(sealed_at__isnull=False)
    return sum(_move_on(block, limits) for block in sealed.select_for_update(of=("self",)))


def _filled(workflow_id: uuid.UUID) -> QuerySet[ProcessingBlock]:
    """OPEN blocks with files."""
    rows = ProcessingBlock.objects.filter(workflow_id=workflow_id, status=BlockStatus.OPEN)
    filled = rows.filter(pk__in=OutputFile.objects.filter(block__workflow_id=workflow_id).values("block"))
    return filled.select_related("dataset").order_by("dataset_id", "block_index")


def _move_on(block: ProcessingBlock, limits: BlockLimits) -> int:
    """The block's units that are not done go to a block of the dataset that still takes units."""
    members = list(block.members.filter(done=False).order_by("unit_id"))
    for member in members:
        target = _taking(block.dataset, member.size_bytes, limits)
        BlockWorkUnit.objects.filter(pk=member.pk).update(block=target)
        block_recount(block=target)
    if members:
        block_recount(block=block)
        first = [member.unit_id for member in members[:20]]
        log.info("units left a sealed block", block=block.dbs_block_name, units=first, count=len(members))
    return len(members)


def _taking(dataset: OutputDataset, size_bytes: int, limits: BlockLimits) -> ProcessingBlock:
    """The dataset's block that takes a unit of this size: its unsealed one unless that would grow too large, else a new one."""
    block = ProcessingBlock.objects.filter(dataset=dataset, sealed_at__isnull=True).first()
    if block is not None and (not block.planned_bytes or block.planned_bytes + size_bytes <= limits.max_bytes):
        return block
    if block is not None:
        ProcessingBlock.objects.filter(pk=block.pk).update(sealed_at=clock.now())
    last = ProcessingBlock.objects.filter(dataset=dataset).aggregate(last=Max("block_index"))["last"]
    return _block(dataset, 0 if last is None else last + 1)


def _block(dataset: OutputDataset, index: int) -> ProcessingBlock:
    """The dataset's block of this index, made if it is not there."""
    name = f"{dataset.name}#{uuid.uuid4()}"
    given = {"workflow_id": dataset.workflow_id, "dataset_name": dataset.name, "dbs_block_name": name}
    return ProcessingBlock.objects.get_or_create(dataset=dataset, block_index=index, defaults=given)[0]


def blocks_advance(*, workflow_id: uuid.UUID, request_id: uuid.UUID, request_epoch: int) -> None:
    """Sealed blocks whose members are all done become COMPLETE, and are asked to be registered, parents' first, and archived.

    One whose members brought no file disappears: nobody outside has heard of it.
    """
    sealed = ProcessingBlock.objects.filter(workflow_id=workflow_id, status=BlockStatus.OPEN, sealed_at__isnull=False)
    waiting = list(sealed.exclude(members__done=False).select_related("dataset"))
    progress = True
    while waiting and progress:
        progress = False
        for block in tuple(waiting):
            if not block.files.exists():
                block.delete()
            else:
                parents = _parents_asked(block)
                if parents is None:
                    continue
                _complete(block, block_asker(request_id=request_id, request_epoch=request_epoch, block=block), parents)
            waiting.remove(block)
            progress = True


def _complete(block: ProcessingBlock, ask: Callable[..., Effect], parents: Iterable[Effect]) -> None:
    """DBS hears of the block when all its files are in Rucio; it goes to tape when both know it."""
    origin = block.files.values("rse").annotate(total=Sum("size_bytes")).order_by("-total", "rse").first()
    still_open = ProcessingBlock.objects.filter(pk=block.pk, status=BlockStatus.OPEN)
    blocks_become(still_open, BlockStatus.COMPLETE, origin_rse=origin["rse"] if origin else "")
    attached = list(block.effects.filter(kind=EffectKind.RUCIO_FILES))
    closed = ask(EffectKind.RUCIO_BLOCK_CLOSE, after=attached)
    registered = ask(EffectKind.DBS_BLOCK, after=[*attached, *parents])
    ask(EffectKind.RUCIO_TAPE, after=[closed, registered])
    log.info("block complete", block=block.dbs_block_name, work_units=block.total_work_units)


def _parents_asked(block: ProcessingBlock) -> list[Effect] | None:
    """The registrations that the block's waits for; None while one of them is not even asked for.

    Of the blocks with its files' parents; or, of a dataset that names its parents, the first block of each. Parents that are not
    of this workflow are in DBS: the input was read there.
    """
    registrations = Effect.objects.filter(kind=EffectKind.DBS_BLOCK)
    found: list[Effect] = []
    names = block.dataset.registration.get("parents", [])
    if names:
        for dataset in OutputDataset.objects.filter(workflow_id=block.workflow_id, name__in=names):
            first = registrations.filter(block__dataset=dataset).order_by("id").first()
            if first is not None:
                found.append(first)
            elif dataset.blocks.exists():
                return None
        return found
    lfns = {parent for parents in block.files.values_list("parents", flat=True) for parent in parents}
    ours = OutputFile.objects.filter(lfn__in=lfns, block__workflow_id=block.workflow_id).exclude(block=block)
    blocks = set(ours.values_list("block_id", flat=True))
    found = list(registrations.filter(block_id__in=blocks))
    return found if len(found) == len(blocks) else None


def block_recount(*, block: ProcessingBlock) -> None:
    """Count the block's members and their bytes anew."""
    sums = block.members.aggregate(total=Sum("size_bytes"))
    ProcessingBlock.objects.filter(pk=block.pk).update(
        total_work_units=block.members.count(), planned_bytes=sums["total"] or 0, updated_at=clock.now()
    )
