"""Processing blocks: which files are in them, and when they take no more (docs/design/model.md, Blocks).

Only writes rows, inside its caller's transaction, which holds the request's row: one evaluation at a time changes blocks of a
workflow. A block lies at one RSE and takes the files that completed units have brought there; it is registered in DBS once, when
it is sealed (ADR 0016).
"""

from __future__ import annotations

import json
import operator
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from django.db.models import F, Max, Q, Sum

from outputs_app.blocks.placements import placement_of
from outputs_app.effects.requests import EffectRequest, effects_enqueue
from outputs_app.models import (
    BlockStatus,
    Effect,
    EffectKind,
    EffectState,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from outputs_app.states import blocks_become
from outputs_app.values import BlockLimits, BlocksDue, MergedFile
from wms2.conf import conf
from wms2.runtime import clock
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)


class Written(NamedTuple):
    """A dataset that a request writes. ``is_shared``: another request's has the name, too."""

    name: str
    pk: int
    workflow_id: uuid.UUID
    is_shared: bool


class UnitFiles(NamedTuple):
    """The files of one dataset that a unit has brought to one RSE."""

    unit_id: int
    dataset: Written
    rse: str
    files: Sequence[MergedFile]

    @property
    def dataset_id(self) -> int:
        """Its key, as the tables have it."""
        return self.dataset.pk


class Joined(NamedTuple):
    """Blocks with their new units, and those of them that have enough files now."""

    units: Mapping[uuid.UUID, Sequence[int]]
    full: frozenset[uuid.UUID]


_TAKING = """
SELECT block.dataset_id, block.origin_rse, block.id, COALESCE(sum(file.size_bytes), 0)::bigint, count(file.id),
  COALESCE(sum(file.events), 0)::bigint, COALESCE(sum((SELECT sum(jsonb_array_length(run.value)) FROM jsonb_each(file.lumis) run
    WHERE run.key ~ '^[0-9]+$')), 0)::bigint
FROM processing_blocks block LEFT JOIN output_files file ON file.block_id = block.id
WHERE block.dataset_id = ANY(%s) AND block.origin_rse = ANY(%s) AND block.sealed_at IS NULL AND block.status = ANY(%s)
GROUP BY block.id
"""
#: One whose registration has failed takes units still: an operator has it tried again.
_TAKES = [BlockStatus.OPEN, BlockStatus.FAILED]


def units_join_blocks(*, brought: Sequence[UnitFiles], limits: BlockLimits) -> Joined:
    """Store the files of completed units, in order, in the blocks of their dataset at their RSE.

    A block that would grow too large by a unit is sealed, and another begun: only the files of a single unit pass a limit. The
    caller has locked the request's row; the blocks are locked from now on.
    """
    joined = dict[uuid.UUID, list[int]]()
    found = sql_rows(_TAKING, [list({each.dataset_id for each in brought}), list({each.rse for each in brought}), _TAKES])
    # bytes, files, events and lumis of the block that takes units, by dataset and RSE
    filling = {(dataset_id, rse): (pk, tuple(held)) for dataset_id, rse, pk, *held in found}
    most = (limits.max_bytes, limits.max_files, limits.max_events, limits.max_lumis)
    rows: list[tuple[uuid.UUID, UnitFiles]] = []
    for each in brought:
        place, more = (each.dataset_id, each.rse), _measured(each.files)
        pk, held = filling.get(place, (None, ()))
        total = tuple(map(operator.add, held, more))
        if pk is not None and any(map(operator.gt, total, most)):
            ProcessingBlock.objects.filter(pk=pk).update(sealed_at=clock.now())
            log.info("block sealed", block_id=str(pk), why="the next unit would pass its limits")
            pk = None
        if pk is None:
            pk, total = _block_begun(each.dataset, each.rse).pk, more
        filling[place] = pk, total
        joined.setdefault(pk, []).append(each.unit_id)
        rows.append((pk, each))
    _store(rows)
    return Joined(joined, frozenset(pk for pk, total in filling.values() if any(map(operator.ge, total, most)) and pk in joined))


def _measured(files: Sequence[MergedFile]) -> tuple[int, ...]:
    lumis = sum(len(pairs) for file in files for pairs in file.lumis.values())
    return sum(file.size_bytes for file in files), len(files), sum(file.events for file in files), lumis


def _block_begun(dataset: Written, rse: str) -> ProcessingBlock:
    """The next one there. Its name follows from that, so that a restored database has the names that DBS and Rucio know."""
    blocks = ProcessingBlock.objects.filter(dataset=dataset.pk)
    last: int | None = blocks.aggregate(last=Max("block_index"))["last"]
    name = uuid.uuid5(dataset.workflow_id, f"{dataset.name} {rse} {blocks.filter(origin_rse=rse).count()}")
    return ProcessingBlock.objects.create(
        dataset_id=dataset.pk, block_index=0 if last is None else last + 1, origin_rse=rse, workflow_id=dataset.workflow_id,
        dataset_name=dataset.name, dbs_block_name=f"{dataset.name}#{name}",
    )  # fmt: skip


#: Each unit and file once; none of its parts reads what another writes. A former release gave units places when it planned them.
_STORE = """
WITH files AS (
  INSERT INTO output_files (
    lfn, dataset_id, block_id, unit_id, rse, size_bytes, adler32, events, lumis, parents, rule_id, validity, created_at)
  SELECT file.*, '', %(valid)s, %(now)s FROM unnest(
    %(lfn)s::text[], %(dataset_id)s::bigint[], %(block_id)s::uuid[], %(unit_id)s::bigint[], %(rse)s::text[],
    %(size_bytes)s::bigint[], %(adler32)s::text[], %(events)s::bigint[], %(lumis)s::jsonb[], %(parents)s::jsonb[]) file),
planned AS (DELETE FROM block_work_units WHERE unit_id = ANY(%(units)s) AND NOT done),
members AS (
  INSERT INTO block_work_units (block_id, unit_id, dataset_id, size_bytes, done)
  SELECT member.*, true FROM unnest(%(blocks)s::uuid[], %(units)s::bigint[], %(datasets)s::bigint[], %(sizes)s::bigint[]) member)
UPDATE processing_blocks b SET planned_bytes = b.planned_bytes + v.bytes, total_work_units = b.total_work_units + v.units,
  updated_at = %(now)s, first_file_at = COALESCE(b.first_file_at, %(now)s)
FROM (
  SELECT member.block_id, sum(member.size_bytes)::bigint AS bytes, count(*) AS units
  FROM unnest(%(blocks)s::uuid[], %(sizes)s::bigint[]) AS member (block_id, size_bytes) GROUP BY 1) v WHERE b.id = v.block_id
"""


def _store(joined: Sequence[tuple[uuid.UUID, UnitFiles]]) -> None:
    rows = [(block_id, each, file) for block_id, each in joined for file in each.files]
    values: dict[str, Any] = {
        "now": clock.now(), "valid": Validity.VALID, "blocks": [block_id for block_id, _ in joined],
        "units": [each.unit_id for _, each in joined], "datasets": [each.dataset_id for _, each in joined],
        "sizes": [sum(file.size_bytes for file in each.files) for _, each in joined],
        "block_id": [block_id for block_id, _, _ in rows],
        **{name: [getattr(each, name) for _, each, _ in rows] for name in ("dataset_id", "unit_id", "rse")},
        **{name: [getattr(file, name) for _, _, file in rows] for name in ("lfn", "size_bytes", "adler32", "events")},
        **{name: [json.dumps(getattr(file, name)) for _, _, file in rows] for name in ("lumis", "parents")},
    }  # fmt: skip
    sql_rows(_STORE, values)


def blocks_seal_all(*, workflow_id: uuid.UUID) -> int:
    """Seal every open block: nothing is left to plan."""
    return ProcessingBlock.objects.filter(workflow_id=workflow_id, sealed_at__isnull=True).update(sealed_at=clock.now())


def blocks_check(*, workflow_id: uuid.UUID, limits: BlockLimits, full: Collection[uuid.UUID] = ()) -> BlocksDue:
    """When ``blocks_seal_due`` or ``blocks_register_sealed`` may find something to do, if nothing else happens; only looks, by
    one statement.

    Args:
        full: blocks that have just got enough files.
    """
    rows = _timed(workflow_id, limits)
    return BlocksDue(
        changed=any(row.pk in full or not row.unsealed for row in rows),
        first=min((row.due_at for row in rows if row.unsealed), default=None),
    )


def blocks_seal_due(*, workflow_id: uuid.UUID, limits: BlockLimits) -> None:
    """Seal blocks that have enough files, events or lumis, or had their first file long ago."""
    now = clock.now()
    for row in _timed(workflow_id, limits, counted=True):
        if row.full or (row.unsealed and row.due_at <= now):
            still_open = ProcessingBlock.objects.filter(pk=row.pk, status=BlockStatus.OPEN, sealed_at=None)
            still_open.update(sealed_at=now, updated_at=now)
            log.info("block sealed", block_id=str(row.pk), why="full" if row.full else "old")


class _Timed(NamedTuple):
    """An OPEN block with files: whether it is not sealed yet; when time seals it; whether it has enough files."""

    pk: uuid.UUID
    unsealed: bool
    due_at: datetime
    full: bool


_TIMED = """
SELECT id, sealed_at IS NULL, first_file_at + %(wait)s, sealed_at IS NULL AND %(counted)s AND COALESCE((
  SELECT count(*) >= %(max_files)s OR sum(size_bytes) >= %(max_bytes)s OR sum(events) >= %(max_events)s OR sum(
    (SELECT sum(jsonb_array_length(run.value)) FROM jsonb_each(file.lumis) run WHERE run.key ~ '^[0-9]+$')) >= %(max_lumis)s
  FROM output_files file WHERE file.block_id = block.id), false)
FROM processing_blocks block WHERE workflow_id = %(workflow)s AND status = %(open)s AND first_file_at IS NOT NULL
"""


def _timed(workflow_id: uuid.UUID, limits: BlockLimits, *, counted: bool = False) -> list[_Timed]:
    """All of them; ``counted``: whether their files are enough is counted, which costs most."""
    values: dict[str, Any] = {
        **limits._asdict(), "counted": counted, "wait": timedelta(seconds=limits.max_wait_seconds), "workflow": workflow_id,
        "open": BlockStatus.OPEN,
    }  # fmt: skip
    return [_Timed(*row) for row in sql_rows(_TIMED, values)]


def blocks_end(*, workflow_id: uuid.UUID, request_id: uuid.UUID, request_epoch: int) -> None:
    """Seal and register what a request has done that ended before its work was done.

    It is not evaluated any more, so no block stays OPEN, except where an operator must first retry the registration of a parent.
    """
    blocks_seal_all(workflow_id=workflow_id)
    blocks_register_sealed(workflow_id=workflow_id, request_id=request_id, request_epoch=request_epoch)


def blocks_register_sealed(*, workflow_id: uuid.UUID, request_id: uuid.UUID, request_epoch: int) -> None:
    """Sealed blocks become COMPLETE, and are asked to be registered, parents' first, and archived.

    One without files, which a former release planned, is deleted: neither DBS nor Rucio knows it.
    """
    sealed = ProcessingBlock.objects.filter(workflow_id=workflow_id, status=BlockStatus.OPEN, sealed_at__isnull=False)
    waiting = list(sealed.select_related("dataset"))
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
                effects_enqueue(effect_requests=_complete(block, parents), request_id=request_id, request_epoch=request_epoch)
            waiting.remove(block)
            progress = True


def _complete(block: ProcessingBlock, parents: Sequence[str]) -> list[EffectRequest]:
    """DBS gets the block when all its files are in Rucio; it goes to tape when both have it. Returns the effects to ask for."""
    still_open = ProcessingBlock.objects.filter(pk=block.pk, status=BlockStatus.OPEN)
    # a former release put files of several RSEs into one block: the one with most of its bytes
    places = list(block.files.values("rse").annotate(total=Sum("size_bytes")).order_by("-total", "rse"))
    blocks_become(still_open, BlockStatus.COMPLETE, origin_rse=block.origin_rse or places[0]["rse"])
    gathered = Effect.objects.filter(block=block, state=EffectState.PENDING, claim_epoch=0)
    gathered.update(next_attempt_at=clock.now())  # no more units will come
    attached = list(block.effects.filter(kind=EffectKind.RUCIO_FILES).values_list("key", flat=True))
    closed = EffectRequest(EffectKind.RUCIO_BLOCK_CLOSE, block.pk, attached, block.pk)
    registered = EffectRequest(EffectKind.DBS_BLOCK, block.pk, [*attached, *parents], block.pk)
    placement, both = placement_of(block), [closed.key, registered.key]
    decided = "MSOutput places outputs" if conf().msoutput_places else f"placement of {placement}"
    no_tape = {} if placement.tape else {"no_tape": f"none is wanted: {decided}"}
    effect_requests = [closed, registered, EffectRequest(EffectKind.RUCIO_TAPE, block.pk, both, block.pk, payload=no_tape)]
    if placement.disk_expression:
        placed = {name: getattr(placement, f"disk_{name}") for name in ("expression", "copies", "days", "activity")}
        effect_requests.append(
            EffectRequest(EffectKind.RUCIO_DISK, block.dataset_id, both, payload={"dataset_id": block.dataset_id, **placed})
        )
    if len(places) == 1:
        protected = list(block.effects.filter(kind=EffectKind.RUCIO_PROTECT).values_list("key", flat=True))
        effect_requests.append(EffectRequest(EffectKind.RUCIO_SOURCE_BLOCK, block.pk, [closed.key, *protected], block.pk))
    log.info("block complete", block=block.dbs_block_name, work_units=block.total_work_units)
    return effect_requests


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
