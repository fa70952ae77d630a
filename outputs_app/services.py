"""Writes of outputs_app: datasets, files, and the effects they call for (spec 4.7; docs/design/model.md, Effects).

Every function here only writes rows, inside its caller's transaction; what must happen outside becomes Effect rows, which
``outputs_app.effects.executor`` runs; blocks are in ``outputs_app.blocks.filling``. Each may be repeated: effect keys and unique
constraints make twice the same as once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from django.db.models import QuerySet

from outputs_app.blocks.filling import Joined, UnitFiles, Written, blocks_register_sealed, units_join_blocks
from outputs_app.blocks.ownership import lumis_twice, names_lock
from outputs_app.effects.requests import EffectRequest, effects_enqueue, effects_widen
from outputs_app.models import (
    AFTERWARDS,
    OPEN_EFFECT,
    SETTLED_EFFECT,
    BlockStatus,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    ProcessingBlock,
)
from outputs_app.states import blocks_become
from outputs_app.values import BlockLimits, DatasetRecord, UnitOutputs
from wms2.actions import must_apply
from wms2.audit import audited
from wms2.conf import conf
from wms2.errors import LedgerViolation
from wms2.metrics.series import EFFECTS_TOTAL
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.grouping import grouped
from wms2.runtime.notify import EVALUATE_REQUEST, RUN_EFFECTS, notify
from wms2.runtime.sql import sql_rows

Content = tuple[int, int, str, int]


def datasets_ensure(*, workflow_id: uuid.UUID, records: Iterable[DatasetRecord]) -> None:
    """One OutputDataset row per kept output."""
    for record in records:
        OutputDataset.objects.get_or_create(
            workflow_id=workflow_id,
            name=record.name,
            defaults={"step": record.step, "module": record.module, "tier": record.tier, "registration": asdict(record)},
        )


def units_register(
    *, request_id: uuid.UUID, request_epoch: int, outputs: Sequence[UnitOutputs], limits: BlockLimits
) -> Registered:
    """Store the files of completed units and ask for their registration and protection, once per block (ADR 0015).

    The number of statements does not depend on the number of units.
    """
    known = _known(request_id, outputs)
    refused: dict[int, LedgerViolation] = {}
    brought: list[UnitFiles] = []
    for unit in outputs:
        try:
            _refuse(unit, known)
        except LedgerViolation as error:
            refused[unit.unit_id] = error
            continue
        known.files.update(_contents(unit))  # no other unit may bring them
        new = unit.files if unit.unit_id not in known.registered else ()
        places = grouped(new, lambda file: (file.dataset, file.rse))
        brought += [UnitFiles(unit.unit_id, known.datasets[name], rse, files) for (name, rse), files in sorted(places.items())]
    units, full = units_join_blocks(brought=brought, limits=limits) if brought else Joined({}, frozenset())
    # after this, which locks the blocks
    widened = effects_widen(units=units, request_epoch=request_epoch) if units else ()
    effect_requests = _registrations({block_id: ids for block_id, ids in units.items() if block_id not in widened})
    asked = effects_enqueue(effect_requests=effect_requests, request_id=request_id, request_epoch=request_epoch)
    due = any(
        not effect_request.wait_seconds and asked[effect_request.key].state == EffectState.PENDING
        for effect_request in effect_requests
    )
    return Registered(refused, full, due)


class Registered(NamedTuple):
    """What became of the outputs of some units.

    ``refused``: unit id -> why, for units of which nothing was written: a file for a dataset that the request does not write, a
    known LFN with other content, one more than the unit was registered with, files that are parents of each other, or lumis that
    another request's valid file has in the dataset. ``full``: blocks that have enough files by those of the others. ``due``:
    whether effects that were asked for are due now; what is gathered is due later.
    """

    refused: Mapping[int, LedgerViolation]
    full: frozenset[uuid.UUID]
    due: bool


class _Known(NamedTuple):
    """What the outputs of some units are compared with."""

    datasets: Mapping[str, Written]  # of the request, by their names
    registered: frozenset[int]  # units whose files are known
    files: dict[str, Content]
    twice: frozenset[str]  # shared datasets that have lumis of some of the units already


_WRITTEN = """
SELECT name, dataset.id, workflow_id,
  EXISTS (SELECT FROM output_datasets other WHERE other.name = dataset.name AND other.id <> dataset.id)
FROM requests JOIN workflows USING (request_name) JOIN output_datasets dataset ON workflow_id = workflows.id
WHERE requests.id = %s ORDER BY name
"""
#: Files of the names; and, without a name, units whose files are known.
_REGISTERED = """
SELECT lfn, unit_id, size_bytes, adler32, events FROM output_files WHERE lfn = ANY(%(lfns)s)
UNION ALL SELECT NULL, unit_id, 0, '', 0 FROM block_work_units WHERE done AND unit_id = ANY(%(units)s)
"""


def _known(request_id: uuid.UUID, outputs: Sequence[UnitOutputs]) -> _Known:
    datasets = {row[0]: Written(*row) for row in sql_rows(_WRITTEN, [request_id])}
    shared = {
        file.dataset for unit in outputs for file in unit.files if file.dataset in datasets and datasets[file.dataset].is_shared
    }
    if shared:
        names_lock(shared)
    asked = {"lfns": [file.lfn for unit in outputs for file in unit.files], "units": [unit.unit_id for unit in outputs]}
    registered = sql_rows(_REGISTERED, asked)
    return _Known(
        datasets,
        frozenset(unit for lfn, unit, *_ in registered if lfn is None),
        {lfn: (unit, size, adler32, events) for lfn, unit, size, adler32, events in registered if lfn is not None},
        frozenset(name for name in shared if _twice(outputs, datasets[name].pk, name)),
    )


def _twice(outputs: Sequence[UnitOutputs], dataset_id: int, name: str) -> str:
    lumis = [file.lumis for unit in outputs for file in unit.files if file.dataset == name]
    return lumis_twice(dataset_id=dataset_id, name=name, lumis=lumis)


def _refuse(unit: UnitOutputs, known: _Known) -> None:
    names = {file.dataset for file in unit.files}
    if strangers := names - known.datasets.keys():
        raise LedgerViolation(f"{unit.unit_name}: files for datasets it does not belong to: {sorted(strangers)}")
    for lfn, content in _contents(unit).items():
        if known.files.get(lfn, content) != content:
            raise LedgerViolation(f"{unit.unit_name}: {lfn} is already known with other content")
        if unit.unit_id in known.registered and lfn not in known.files:
            raise LedgerViolation(f"{unit.unit_name}: it is registered already, without {lfn}")
    for name in sorted(names & known.twice):
        if why := _twice([unit], known.datasets[name].pk, name):
            raise LedgerViolation(why)
    _refuse_circular_parents(unit)


def _contents(unit: UnitOutputs) -> dict[str, Content]:
    return {file.lfn: (unit.unit_id, file.size_bytes, file.adler32, file.events) for file in unit.files}


def _registrations(units: Mapping[uuid.UUID, Sequence[int]]) -> list[EffectRequest]:
    """Per block: replicas, then source rules, of all units that are done now, and of those that are done soon; DBS hears of them
    with their whole block.

    A unit is done once, so the first of them names the effect, and its files are in no other.
    """
    wait = conf().effect_gather_seconds
    effect_requests: list[EffectRequest] = []
    for block_id, ids in units.items():
        first = min(ids)
        there = EffectRequest(EffectKind.RUCIO_BLOCK, block_id, block_id=block_id)
        common: dict[str, Any] = {"block_id": block_id, "unit_id": first, "payload": {"units": sorted(ids)}, "wait_seconds": wait}
        attached = EffectRequest(EffectKind.RUCIO_FILES, f"{block_id}:{first}", [there.key], **common)
        effect_requests += [there, attached, EffectRequest(EffectKind.RUCIO_PROTECT, attached.of, [attached.key], **common)]
    return effect_requests


def datasets_publish(*, request_id: uuid.UUID, request_epoch: int, workflow_id: uuid.UUID) -> bool:
    """Ask that the datasets of a request, whole by now, become VALID: DBS's default queries hide others. Whether all are, but for
    those that an operator has given up; one without a registered block DBS does not know."""
    known = OutputDataset.objects.filter(workflow_id=workflow_id, blocks__dbs_block_closed=True)
    rows = known.values_list("pk", flat=True).distinct()
    effect_requests = [EffectRequest(EffectKind.DBS_VALID, pk, payload={"dataset_id": pk}) for pk in rows]
    asked = effects_enqueue(effect_requests=effect_requests, request_id=request_id, request_epoch=request_epoch)
    return all(effect.state in SETTLED_EFFECT for effect in asked.values())


def _refuse_circular_parents(outputs: UnitOutputs) -> None:
    """DBS takes no file whose parent it does not know: of datasets that are parents of each other neither could come first."""
    dataset_of = {file.lfn: file.dataset for file in outputs.files}
    parents: dict[str, set[str]] = {file.dataset: set() for file in outputs.files}
    for file in outputs.files:
        parents[file.dataset] |= {dataset_of[parent] for parent in file.parents if parent in dataset_of} - {file.dataset}
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        raise LedgerViolation(f"{outputs.unit_name}: files of {sorted(set(error.args[1]))} are parents of each other") from error


def _block_goes_on(effect: Effect) -> None:
    """What stopped its block is over. ARCHIVED if its tape rule is there, which nothing would make it a second time; else OPEN,
    whatever it was: ``blocks_register_sealed`` makes it COMPLETE and asks for what a FAILED block was never asked."""
    if effect.block is None:
        return
    failed = ProcessingBlock.objects.filter(pk=effect.block.pk, status=BlockStatus.FAILED)
    blocks_become(failed.exclude(tape_rule_id="", no_tape=""), BlockStatus.ARCHIVED)
    blocks_become(failed, BlockStatus.OPEN)
    if effect.request.has_ended:  # no evaluation does it
        request = effect.request
        blocks_register_sealed(workflow_id=effect.block.workflow_id, request_id=request.pk, request_epoch=request.epoch)


def effect_retry_now(*, effect: Effect, actor: str, reason: str) -> None:
    """An operator tries a registration again: due at once, with its retry time counted anew, and its block leaves FAILED. Asked
    twice it is asked once; one that runs just now goes on.

    Raises:
        InvalidTransition: it is done, or its request's outputs have been taken back since.
    """
    with audited(actor=actor, action="effect_retry", target=effect.key, target_type="effect", reason=reason, old=effect.state):
        must_apply(f"effect {effect.pk} ({effect.get_kind_display()})", effect_retry_refused(effect))
        Effect.objects.filter(pk=effect.pk, state__in=(EffectState.REFUSED, EffectState.DEAD, EffectState.PENDING)).update(
            state=EffectState.PENDING, next_attempt_at=clock.now(), first_failed_at=None
        )
        _block_goes_on(effect)
        mark_due([effect.request_id], "effect retried")
        notify(RUN_EFFECTS)
        notify(EVALUATE_REQUEST, str(effect.request_id))


def effect_retry_refused(effect: Effect) -> str:
    """Why there is nothing to try again; empty if there is."""
    if effect.state == EffectState.DONE:
        return "It is done; there is nothing to retry."
    if effect.epoch != effect.request.epoch:
        return f"It is not wanted any more: the outputs of {effect.request.request_name} are taken back."
    if effect.state in SETTLED_EFFECT:
        return f"It is {effect.get_state_display().lower()}; there is nothing to retry."
    return ""


#: What a block's registration rests on: without one of them nothing more can be done for it.
ESSENTIAL = (EffectKind.RUCIO_BLOCK, EffectKind.RUCIO_FILES, EffectKind.RUCIO_BLOCK_CLOSE, EffectKind.DBS_BLOCK)


def effect_discard(*, effect: Effect, actor: str, reason: str) -> None:
    """An operator gives an effect up: it never runs, and the request does not wait for it (ADR 0015).

    What a block's registration rests on gives the block up, with all that is open of it. Without its tape rule a block is
    archived and says so. What other blocks and datasets wait for goes on, and learns from the service what is missing.

    Raises:
        InvalidTransition: it is done, runs just now, waits for another, or is not wanted any more.
    """
    with audited(actor=actor, action="effect_discard", target=effect.key, target_type="effect", reason=reason, old=effect.state):
        # in the order in which everybody locks them: no unit is accounted, nothing of the block is claimed meanwhile
        type(effect.request).objects.select_for_update(no_key=True).get(pk=effect.request_id)
        if effect.block_id is not None:
            ProcessingBlock.objects.select_for_update(no_key=True).get(pk=effect.block_id)
        effect.refresh_from_db()
        must_apply(f"effect {effect.pk} ({effect.get_kind_display()})", effect_discard_refused(effect))
        note, rows = f"Discarded by {actor}: {reason}", list(effects_discarded_with(effect))
        for row in rows:
            row.state, row.done_at = EffectState.DISCARDED, clock.now()
            row.last_error = f"{note}. Last error: {row.last_error}" if row.last_error else note
        Effect.objects.bulk_update(rows, ("state", "done_at", "last_error"))
        if effect.block is not None and gives_block_up(effect):
            context = {"discarded": [row.key for row in rows], "by": actor, "reason": reason, "last_error": effect.last_error}
            rows_of = ProcessingBlock.objects.filter(pk=effect.block.pk)
            rows_of.filter(sealed_at__isnull=True).update(sealed_at=clock.now())  # it takes no more units
            blocks_become(rows_of, BlockStatus.GIVEN_UP, failure_context=context)
        elif effect.block is not None and effect.kind == EffectKind.RUCIO_TAPE:
            blocks_become(ProcessingBlock.objects.filter(pk=effect.block.pk), BlockStatus.ARCHIVED, no_tape=note)
        _block_goes_on(effect)
        mark_due([effect.request_id], "effect discarded")
        EFFECTS_TOTAL.labels(effect.kind, "discarded").inc(len(rows))
        notify(RUN_EFFECTS)
        notify(EVALUATE_REQUEST, str(effect.request_id))


def gives_block_up(effect: Effect) -> bool:
    """Whether its block cannot be brought to an end without it; one that was archived before, and is only repaired, has been."""
    block = effect.block
    return block is not None and effect.kind in ESSENTIAL and not (block.tape_rule_id or block.no_tape)


def effects_discarded_with(effect: Effect) -> QuerySet[Effect]:
    """The effect itself; of one that is essential to its block, what is open of the block; of a repair what registers."""
    if effect.block_id is not None and effect.kind in ESSENTIAL:
        rows = Effect.objects.filter(block_id=effect.block_id, state__in=OPEN_EFFECT)
        return rows if gives_block_up(effect) else rows.exclude(kind__in=(*AFTERWARDS, EffectKind.FILES_INVALIDATE))
    return Effect.objects.filter(pk=effect.pk)


def effect_discard_refused(effect: Effect) -> str:
    """Why it cannot be discarded; empty if it can."""
    if effect.state in SETTLED_EFFECT:
        return f"It is {effect.get_state_display().lower()}."
    if effects_discarded_with(effect).filter(state=EffectState.CLAIMED).exists():
        return "It, or another of its block, runs just now; try again in a moment."
    if effect.kind == EffectKind.RUCIO_TAPE and effect.depends_on.exclude(state__in=SETTLED_EFFECT).exists():
        return "Its block is not registered yet; discard what keeps it from that, if it is to be given up."
    return effect_retry_refused(effect)
