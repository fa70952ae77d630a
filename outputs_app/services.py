"""Writes of outputs_app: datasets, files, and the effects they call for (spec 4.7; docs/design/model.md, Effects).

Every function here only writes rows, inside its caller's transaction; what must happen outside becomes Effect rows, which
``outputs_app.executor`` runs; blocks are in ``outputs_app.blocks``. Each may be repeated: effect keys and unique constraints make
twice the same as once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import asdict
from graphlib import CycleError, TopologicalSorter

from outputs_app.asking import block_asker, effect_ask
from outputs_app.blocks import block_recount
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
from outputs_app.states import blocks_become
from outputs_app.values import DatasetRecord, UnitOutputs
from wms2 import clock
from wms2.audit import audited
from wms2.errors import InvalidTransition, LedgerViolation
from wms2.nudge import EVALUATE_REQUEST, RUN_EFFECTS, nudge
from wms2.wakes import wake


def datasets_ensure(*, workflow_id: uuid.UUID, records: Iterable[DatasetRecord]) -> None:
    """One OutputDataset row per kept output."""
    for record in records:
        OutputDataset.objects.get_or_create(
            workflow_id=workflow_id,
            name=record.name,
            defaults={"step": record.step, "module": record.module, "tier": record.tier, "registration": asdict(record)},
        )


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
    _refuse_circular_parents(outputs)
    _refuse_registered_blocks(outputs, memberships.values())
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
        block_recount(block=member.block)
    for member in memberships.values():
        _ask_unit_effects(request_id, request_epoch, member, outputs)
    return len(outputs.files)


def datasets_publish(*, request_id: uuid.UUID, request_epoch: int, workflow_id: uuid.UUID) -> bool:
    """Ask that the datasets of a request, whole by now, become VALID: DBS's default queries hide others. Whether all are."""
    asked = [
        effect_ask(EffectKind.DBS_VALID, key=pk, request_id=request_id, request_epoch=request_epoch, payload={"dataset_id": pk})
        for pk in OutputDataset.objects.filter(workflow_id=workflow_id, files__isnull=False)
        .values_list("pk", flat=True)
        .distinct()
    ]
    return all(effect.state == EffectState.DONE for effect in asked)


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
        blocks_become(failed.exclude(tape_rule_id=""), BlockStatus.ARCHIVED)
        blocks_become(failed, BlockStatus.OPEN)


def effect_retry_now(*, effect: Effect, actor: str, reason: str) -> None:
    """An operator tries a registration again: due at once, with its retry time counted anew. Asked twice it is asked once; one
    that runs just now goes on.

    Raises:
        InvalidTransition: it is done, or its request's outputs have been taken back since.
    """
    with audited(actor=actor, action="effect_retry", target=effect.key, target_type="effect", reason=reason, old=effect.state):
        if why := effect_retry_refused(effect):
            raise InvalidTransition(f"effect {effect.pk} ({effect.get_kind_display()}): {why}")
        effect_retry(effect=effect, reopen=not effect.request.has_failed)
        wake([effect.request_id], "effect retried")
        nudge(RUN_EFFECTS)
        nudge(EVALUATE_REQUEST, str(effect.request_id))


def effect_retry_refused(effect: Effect) -> str:
    """Why there is nothing to try again; empty if there is."""
    if effect.state == EffectState.DONE:
        return "It is done; there is nothing to retry."
    if effect.epoch != effect.request.epoch:
        return f"It is not wanted any more: the outputs of {effect.request.request_name} are taken back."
    return ""


def _ask_unit_effects(request_id: uuid.UUID, request_epoch: int, member: BlockWorkUnit, outputs: UnitOutputs) -> None:
    """Ask for replicas and source rules of a unit's files of one dataset; DBS hears of them with their whole block."""
    if not any(file.dataset == member.dataset.name for file in outputs.files):
        return
    ask = block_asker(request_id=request_id, request_epoch=request_epoch, block=member.block)
    per_unit = f"{member.block.pk}:{outputs.unit_id}"
    there = ask(EffectKind.RUCIO_BLOCK)
    attached = ask(EffectKind.RUCIO_FILES, key=per_unit, after=[there], unit_id=outputs.unit_id)
    ask(EffectKind.RUCIO_PROTECT, key=per_unit, after=[attached], unit_id=outputs.unit_id)


def _refuse_registered_blocks(outputs: UnitOutputs, members: Iterable[BlockWorkUnit]) -> None:
    """DBS takes files for a block that is registered, and leaves its counts as they were: the guard is ours."""
    for member in members:
        told = member.block.dbs_block_closed or member.block.effects.filter(kind=EffectKind.DBS_BLOCK).exists()
        if told and not member.done:
            raise LedgerViolation(f"{outputs.unit_name}: its block {member.block.dbs_block_name} is registered already")


def _refuse_changed_files(outputs: UnitOutputs) -> None:
    new = {f.lfn: f for f in outputs.files}
    for row in OutputFile.objects.filter(lfn__in=new):
        file = new[row.lfn]
        known = (row.unit_id, row.size_bytes, row.adler32, row.events)
        if known != (outputs.unit_id, file.size_bytes, file.adler32, file.events):
            raise LedgerViolation(f"{outputs.unit_name}: {row.lfn} is already known with other content")
