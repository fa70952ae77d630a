"""Processing blocks: which units are in them, when they take no more, when they are whole (docs/design/model.md, Blocks).

Only writes rows, inside its caller's transaction, which holds the request's row: one evaluation at a time moves units of a
workflow. DBS hears of a block once, when it is sealed and every member is done (ADR 0036); a unit that is not done and keeps a
sealed block waiting moves on to another one.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from django.db import connection
from django.db.models import F, Max, Q, QuerySet, Sum

from outputs_app.asking import Wish, effects_ask, effects_gathered
from outputs_app.models import (
    BlockStatus,
    BlockWorkUnit,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from outputs_app.placements import placement_of
from outputs_app.states import blocks_become
from outputs_app.values import BlockLimits, BlocksDue, Membership, MergedFile, OpenBlock
from wms2 import clock
from wms2.conf import conf
from wms2.copying import copy_rows

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
            lumis=_lumis(block) if block else 0,
        )
    return found


def _lumis(block: ProcessingBlock) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COALESCE(sum(jsonb_array_length(run.value)), 0) FROM output_files file, jsonb_each(file.lumis) run"
            " WHERE file.block_id = %s AND run.key ~ '^[0-9]+$'",
            [block.pk],
        )
        return int(cursor.fetchone()[0])


def units_join_blocks(*, workflow_id: uuid.UUID, memberships: Sequence[Membership]) -> None:
    """Put planned units into their blocks, creating blocks and sealing those that later ones of the dataset follow."""
    datasets = {d.name: d for d in OutputDataset.objects.filter(workflow_id=workflow_id)}
    blocks: dict[tuple[str, int], ProcessingBlock] = {}
    later: dict[str, int] = {}
    for name, planned in sorted({(m.dataset, m.block_index) for m in memberships}):
        dataset, index = datasets[name], planned + later.get(name, 0)
        ProcessingBlock.objects.filter(dataset=dataset, block_index__lt=index, sealed_at__isnull=True).update(
            sealed_at=clock.now()
        )
        block = _block(dataset, index)
        if block.sealed_at is not None:  # since the plan looked, an operator gave it up, or another whose units went to this one
            later[name] = _next_index(dataset) - planned
            block = _block(dataset, _next_index(dataset))
        blocks[name, planned] = block
    copy_rows(
        BlockWorkUnit,
        ("block", "unit", "dataset", "size_bytes", "done"),
        ((blocks[m.dataset, m.block_index].pk, m.unit_id, datasets[m.dataset].pk, m.estimated_bytes, False) for m in memberships),
    )
    _recount([block.pk for block in blocks.values()])


def units_leave_blocks(*, unit_ids: Sequence[int]) -> None:
    """Units that will not be done leave their blocks; ``blocks_seal`` removes a block that is left without any."""
    members = BlockWorkUnit.objects.filter(unit_id__in=unit_ids, done=False)
    blocks = list(ProcessingBlock.objects.filter(members__in=members).distinct())
    members.delete()
    for block in blocks:
        if not block.members.exists() and not block.files.exists():
            block.delete()  # nothing of it is known outside; kept, it would be closed there once it is sealed
        else:
            _recount([block.pk])


class Member(NamedTuple):
    """A unit's place in a block. ``told``: DBS is told of the block, or will be; ``shared``: others write into the dataset."""

    pk: int
    unit_id: int
    block_id: uuid.UUID
    dataset_id: int
    done: bool
    size_bytes: int
    dataset: str
    block: str
    told: bool
    shared: bool


_MEMBERS = """
SELECT member.id, member.unit_id, block.id, dataset.id, member.done, member.size_bytes, dataset.name, block.dbs_block_name,
  block.dbs_block_closed OR EXISTS (SELECT FROM effects WHERE block_id = block.id AND kind = %(registration)s),
  EXISTS (SELECT FROM output_datasets other WHERE other.name = dataset.name AND other.id <> dataset.id)
FROM block_work_units member JOIN processing_blocks block ON block.id = member.block_id
JOIN output_datasets dataset ON dataset.id = member.dataset_id
WHERE member.unit_id = ANY(%(units)s) ORDER BY dataset.name, member.id
"""


def members_of(unit_ids: Iterable[int]) -> list[Member]:
    """By the names of their datasets."""
    with connection.cursor() as cursor:
        cursor.execute(_MEMBERS, {"units": list(unit_ids), "registration": EffectKind.DBS_BLOCK})
        return [Member(*row) for row in cursor.fetchall()]


#: One statement; none of its parts reads what another writes.
_DONE = """
WITH files AS (
  INSERT INTO output_files (
    lfn, dataset_id, block_id, unit_id, rse, size_bytes, adler32, events, lumis, parents, rule_id, validity, created_at)
  SELECT file.*, '', %(valid)s, %(now)s FROM unnest(
    %(lfn)s::text[], %(dataset_id)s::bigint[], %(block_id)s::uuid[], %(unit_id)s::bigint[], %(rse)s::text[],
    %(size_bytes)s::bigint[], %(adler32)s::text[], %(events)s::bigint[], %(lumis)s::jsonb[], %(parents)s::jsonb[]) file
  ON CONFLICT DO NOTHING),
members AS (
  UPDATE block_work_units m SET done = true, size_bytes = v.size_bytes
  FROM unnest(%(members)s::bigint[], %(sizes)s::bigint[]) AS v (id, size_bytes) WHERE m.id = v.id)
UPDATE processing_blocks b SET planned_bytes = b.planned_bytes + v.more, updated_at = %(now)s,
  first_file_at = CASE WHEN v.files > 0 THEN COALESCE(b.first_file_at, %(now)s) ELSE b.first_file_at END
FROM unnest(%(blocks)s::uuid[], %(more)s::bigint[], %(files)s::bigint[]) AS v (id, more, files) WHERE b.id = v.id
"""


def members_done(done: Sequence[tuple[Member, Sequence[MergedFile]]]) -> None:
    """Store the files that members have brought, unless they are there; their blocks' sums change by what that differs from the
    estimates. Nobody else changes members of a workflow meanwhile; the blocks are locked from now on."""
    more, number = Counter[uuid.UUID](), Counter[uuid.UUID]()
    sizes = [sum(file.size_bytes for file in files) for _, files in done]
    for (member, files), size_bytes in zip(done, sizes, strict=True):
        more[member.block_id] += size_bytes - member.size_bytes
        number[member.block_id] += len(files)
    rows = [(member, file) for member, files in done for file in files]
    values: dict[str, Any] = {
        "members": [member.pk for member, _ in done], "sizes": sizes, "now": clock.now(), "valid": Validity.VALID,
        "blocks": list(more), "more": list(more.values()), "files": [number[pk] for pk in more],
        **{name: [getattr(member, name) for member, _ in rows] for name in ("dataset_id", "block_id", "unit_id")},
        **{name: [getattr(file, name) for _, file in rows] for name in ("lfn", "rse", "size_bytes", "adler32", "events")},
        **{name: [json.dumps(getattr(file, name)) for _, file in rows] for name in ("lumis", "parents")},
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_DONE, values)


def blocks_seal(*, workflow_id: uuid.UUID) -> int:
    """Seal every open block: nothing is left to plan."""
    return ProcessingBlock.objects.filter(workflow_id=workflow_id, sealed_at__isnull=True).update(sealed_at=clock.now())


def blocks_look(*, workflow_id: uuid.UUID, limits: BlockLimits, filled: Collection[uuid.UUID] = ()) -> BlocksDue:
    """When ``blocks_tend`` or ``blocks_advance`` may find something to do, if nothing else happens; only looks, by one statement.

    Args:
        filled: blocks that have just got files, and may be full by that.
    """
    rows = _timed(workflow_id, limits, filled)
    return BlocksDue(
        changed=any(row.full or not row.changes for row in rows),
        first=min((row.due_at for row in rows if row.changes), default=None),
    )


def blocks_tend(*, workflow_id: uuid.UUID, limits: BlockLimits) -> int:
    """Seal blocks that have enough files, events or lumis, or had their first file long ago; units not done leave them, and
    those that have kept any sealed block waiting for too long. Returns how many units moved.
    """
    moved = 0
    now = clock.now()
    open_ = ProcessingBlock.objects.filter(workflow_id=workflow_id, status=BlockStatus.OPEN).values_list("pk", flat=True)
    due = {row.pk: row for row in _timed(workflow_id, limits, list(open_)) if row.full or (row.changes and row.due_at <= now)}
    for block in _filled(workflow_id).filter(pk__in=due).select_for_update(of=("self",)):
        if block.sealed_at is None:
            block.sealed_at = now
            block.save(update_fields=["sealed_at", "updated_at"])
            log.info("block sealed", block=block.dbs_block_name, why="full" if due[block.pk].full else "old")
        moved += _move_on(block, limits)
    return moved


class _Timed(NamedTuple):
    """An OPEN block with files: whether time changes it, or it is whole; when; whether it has enough files."""

    pk: uuid.UUID
    changes: bool
    due_at: datetime
    full: bool


#: Most blocks are sealed when they are planned: files wait from when they are there, not from then.
_TIMED = """
SELECT id, changes, due_at, changes AND id = ANY(%(filled)s) AND COALESCE((
  SELECT count(*) >= %(max_files)s OR sum(events) >= %(max_events)s OR sum(
    (SELECT sum(jsonb_array_length(run.value)) FROM jsonb_each(file.lumis) run WHERE run.key ~ '^[0-9]+$')) >= %(max_lumis)s
  FROM output_files file WHERE file.block_id = b.id), false)
FROM (
  SELECT id, CASE WHEN sealed_at IS NULL THEN first_file_at + %(wait)s ELSE greatest(sealed_at, first_file_at) + %(patience)s END
    AS due_at, sealed_at IS NULL OR EXISTS (
      SELECT FROM block_work_units member WHERE member.block_id = block.id AND NOT member.done) AS changes
  FROM processing_blocks block WHERE workflow_id = %(workflow)s AND status = %(open)s AND first_file_at IS NOT NULL) b
"""


def _timed(workflow_id: uuid.UUID, limits: BlockLimits, filled: Collection[uuid.UUID]) -> list[_Timed]:
    """All of them; only those ``filled`` are counted for being full."""
    values: dict[str, Any] = {
        "filled": list(filled), "max_files": limits.max_files, "max_events": limits.max_events, "max_lumis": limits.max_lumis,
        "wait": timedelta(seconds=limits.max_wait_seconds), "patience": timedelta(seconds=limits.unit_patience_seconds),
        "workflow": workflow_id, "open": BlockStatus.OPEN,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_TIMED, values)
        return [_Timed(*row) for row in cursor.fetchall()]


def blocks_let_go(*, workflow_id: uuid.UUID, limits: BlockLimits) -> int:
    """Nothing runs: units that are not done leave the sealed blocks that hold files of others. Returns how many moved."""
    sealed = _filled(workflow_id).filter(sealed_at__isnull=False)
    return sum(_move_on(block, limits) for block in sealed.select_for_update(of=("self",)))


def _filled(workflow_id: uuid.UUID) -> QuerySet[ProcessingBlock]:
    """OPEN blocks with files."""
    rows = ProcessingBlock.objects.filter(workflow_id=workflow_id, status=BlockStatus.OPEN, first_file_at__isnull=False)
    return rows.select_related("dataset").order_by("dataset_id", "block_index")


def _move_on(block: ProcessingBlock, limits: BlockLimits) -> int:
    """The block's units that are not done go to a block of the dataset that still takes units."""
    members = list(block.members.filter(done=False).order_by("unit_id"))
    for member in members:
        target = _taking(block.dataset, member.size_bytes, limits)
        BlockWorkUnit.objects.filter(pk=member.pk).update(block=target)
        _recount([target.pk])
    if members:
        _recount([block.pk])
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
    return _block(dataset, _next_index(dataset))


def _next_index(dataset: OutputDataset) -> int:
    last: int | None = ProcessingBlock.objects.filter(dataset=dataset).aggregate(last=Max("block_index"))["last"]
    return 0 if last is None else last + 1


def _block(dataset: OutputDataset, index: int, **given: Any) -> ProcessingBlock:
    """The dataset's block of this index, made if it is not there."""
    name = f"{dataset.name}#{uuid.uuid4()}"
    given |= {"workflow_id": dataset.workflow_id, "dataset_name": dataset.name, "dbs_block_name": name}
    return ProcessingBlock.objects.get_or_create(dataset=dataset, block_index=index, defaults=given)[0]


def block_give_up(*, block: ProcessingBlock, context: dict[str, Any]) -> None:
    """Nothing more is done for the block; its units that are not done go to a new one. What is outside of it stays as it is."""
    ProcessingBlock.objects.filter(pk=block.pk, sealed_at__isnull=True).update(sealed_at=clock.now())
    members = block.members.filter(done=False)
    if members.exists():
        target = _block(block.dataset, _next_index(block.dataset), sealed_at=clock.now())
        members.update(block=target)
        _recount([target.pk, block.pk])
    blocks_become(ProcessingBlock.objects.filter(pk=block.pk), BlockStatus.GIVEN_UP, failure_context=context)


def blocks_end(*, workflow_id: uuid.UUID, request_id: uuid.UUID, request_epoch: int) -> None:
    """The request has ended before its work was done: units that are not done leave, what the others brought is registered.

    Nothing looks after its blocks any more, so none stays OPEN but for a parent that only an operator brings on.
    """
    left = BlockWorkUnit.objects.filter(block__workflow_id=workflow_id, done=False).values_list("unit_id", flat=True)
    units_leave_blocks(unit_ids=list(left))
    blocks_seal(workflow_id=workflow_id)
    blocks_advance(workflow_id=workflow_id, request_id=request_id, request_epoch=request_epoch)


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
                effects_ask(wishes=_complete(block, parents), request_id=request_id, request_epoch=request_epoch)
            waiting.remove(block)
            progress = True


def _complete(block: ProcessingBlock, parents: Sequence[str]) -> list[Wish]:
    """DBS hears of the block when all its files are in Rucio; it goes to tape when both know it. Returns what is to be asked."""
    origin = block.files.values("rse").annotate(total=Sum("size_bytes")).order_by("-total", "rse").first()
    still_open = ProcessingBlock.objects.filter(pk=block.pk, status=BlockStatus.OPEN)
    blocks_become(still_open, BlockStatus.COMPLETE, origin_rse=origin["rse"] if origin else "")
    effects_gathered(block.pk)
    attached = list(block.effects.filter(kind=EffectKind.RUCIO_FILES).values_list("key", flat=True))
    closed = Wish(EffectKind.RUCIO_BLOCK_CLOSE, block.pk, attached, block.pk)
    registered = Wish(EffectKind.DBS_BLOCK, block.pk, [*attached, *parents], block.pk)
    placement, both = placement_of(block), [closed.key, registered.key]
    decided = "MSOutput places outputs" if conf().msoutput_places else f"placement of {placement}"
    no_tape = {} if placement.tape else {"no_tape": f"none is wanted: {decided}"}
    wishes = [closed, registered, Wish(EffectKind.RUCIO_TAPE, block.pk, both, block.pk, payload=no_tape)]
    if placement.disk_expression:
        placed = {name: getattr(placement, f"disk_{name}") for name in ("expression", "copies", "days", "activity")}
        wishes.append(Wish(EffectKind.RUCIO_DISK, block.dataset_id, both, payload={"dataset_id": block.dataset_id, **placed}))
    if conf().source_block_rule and block.files.values("rse").distinct().count() == 1:
        protected = list(block.effects.filter(kind=EffectKind.RUCIO_PROTECT).values_list("key", flat=True))
        wishes.append(Wish(EffectKind.RUCIO_SOURCE_BLOCK, block.pk, [closed.key, *protected], block.pk))
    log.info("block complete", block=block.dbs_block_name, work_units=block.total_work_units)
    return wishes


def _parents_asked(block: ProcessingBlock) -> list[str] | None:
    """Keys of the registrations that the block's waits for; None while one of them is not even asked for.

    Of the blocks with its files' parents; or, of a dataset that names its parents, the first block of each; whichever request
    they are of. What is in no block of ours is in DBS: the input was read there. A parent that was given up is not waited for:
    DBS refuses its children, and an operator hears of it.
    """
    wanted = Q(state=EffectState.DONE) | Q(epoch=F("request__epoch")) & ~Q(state=EffectState.DISCARDED)
    registrations = Effect.objects.filter(wanted, kind=EffectKind.DBS_BLOCK).order_by("id").values_list("key", flat=True)
    never = (BlockStatus.GIVEN_UP, BlockStatus.INVALIDATED)
    found: list[str] = []
    names = block.dataset.registration.get("parents", [])
    if names:
        for name in names:
            first = registrations.filter(block__dataset__name=name).first()
            theirs = ProcessingBlock.objects.filter(dataset__name=name).exclude(status__in=never)
            if first is not None:
                found.append(first)
            elif theirs.exists() and not theirs.filter(dbs_block_closed=True).exists():  # as if a repair was discarded
                return None
        return found
    lfns = {parent for parents in block.files.values_list("parents", flat=True) for parent in parents}
    ours = OutputFile.objects.filter(lfn__in=lfns, block__dbs_block_closed=False).exclude(block__status__in=never)
    blocks = set(ours.exclude(block=block).values_list("block_id", flat=True))
    found = list(registrations.filter(block_id__in=blocks))
    return found if len(found) == len(blocks) else None


def _recount(block_ids: Collection[uuid.UUID]) -> None:
    """Count the blocks' members and their bytes anew."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE processing_blocks b SET total_work_units = s.units, planned_bytes = s.bytes, updated_at = %s"
            " FROM (SELECT p.id, count(m.id) AS units, COALESCE(sum(m.size_bytes), 0) AS bytes FROM processing_blocks p"
            " LEFT JOIN block_work_units m ON m.block_id = p.id WHERE p.id = ANY(%s) GROUP BY p.id) s WHERE b.id = s.id",
            [clock.now(), list(block_ids)],
        )
