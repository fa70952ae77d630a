"""One handler per effect kind: the outside call, then what its success changes in our rows (spec 4.7).

Whoever adds one declares it here, with ``_handles``. ``call(effect)`` runs with no transaction open and returns plain values;
``record(effect, result)`` runs inside the transaction that marks the effect done. Both may run twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from outputs_app.asking import Wish, effect_ask
from outputs_app.invalidation import invalidation_manifest
from outputs_app.models import (
    BlockStatus,
    DatasetState,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from outputs_app.owning import names_release, other_owners
from outputs_app.states import blocks_become
from outputs_app.turns import Turn
from outputs_app.values import DatasetRecord
from wms2 import clock
from wms2.adapters import factory
from wms2.adapters.rucio_types import RucioFile
from wms2.adapters.types import BlockSpec, DatasetSpec, DbsFile, OutputConfig
from wms2.conf import conf
from wms2.errors import NotFoundInService, ServiceUnavailable

Result = dict[str, Any]
Call = Callable[[Effect], Result]
Record = Callable[[Effect, Result], None]


@dataclass(frozen=True, slots=True)
class Handler:
    """How one kind of effect is done and recorded."""

    call: Call
    record: Record


#: By kind; every one is declared where its call is.
HANDLERS: dict[str, Handler] = {}


def _nothing(effect: Effect, result: Result) -> None:
    """No row but the effect itself changes."""


def _handles(kind: EffectKind, record: Record = _nothing) -> Callable[[Call], Call]:
    """Declares the call that does this kind, and what is recorded with its success."""

    def declared(call: Call) -> Call:
        HANDLERS[kind] = Handler(call, record)
        return call

    return declared


def _block(effect: Effect) -> ProcessingBlock:
    if effect.block is None:
        raise ValueError(f"effect {effect.key} has no block")
    return effect.block


def _record_of(dataset: OutputDataset) -> DatasetRecord:
    return DatasetRecord(**{**dataset.registration, "parents": tuple(dataset.registration.get("parents", ()))})


def _unit_files(effect: Effect) -> list[OutputFile]:
    """Of the units that were accounted together; effects asked for before ADR 0064 name one, by their column alone."""
    units = effect.payload.get("units", [effect.unit_id])
    return list(OutputFile.objects.filter(block=_block(effect), unit_id__in=units).order_by("lfn"))


# --- DBS -----------------------------------------------------------------------------------------------------------------


def _record_block(effect: Effect, result: Result) -> None:
    ProcessingBlock.objects.filter(pk=_block(effect).pk).update(
        dbs_block_open=True, dbs_block_closed=True, updated_at=clock.now()
    )


@_handles(EffectKind.DBS_BLOCK, _record_block)
def _dbs_block(effect: Effect) -> Result:
    block = _block(effect)
    record = _record_of(block.dataset)
    config = OutputConfig(
        release_version=record.release,
        pset_hash=record.pset_hash or "NO_PSET_HASH",
        app_name="cmsRun",
        output_module_label=record.module,
        global_tag=record.global_tag,
    )
    rows = list(block.files.order_by("lfn"))
    # DBS wants the events of all lumis or of none, and so does who reads them: a block tells them if every file does
    counted = all(events is not None for row in rows for pairs in row.lumis.values() for _, events in pairs)
    files = tuple(
        DbsFile(
            lfn=row.lfn,
            size_bytes=row.size_bytes,
            adler32=row.adler32,
            events=row.events,
            lumis={
                int(run): tuple((lumi, events if counted else None) for lumi, events in pairs) for run, pairs in row.lumis.items()
            },
            parents=() if record.parents else tuple(row.parents),
            output_config=config,
        )
        for row in rows
    )
    spec = DatasetSpec(
        dataset=record.name,
        primary_ds_type=record.primary_ds_type,
        acquisition_era=record.acquisition_era,
        processing_version=record.processing_version,
        physics_group=record.physics_group,
        output_configs=(config,),
        prep_id=record.prep_id,
    )
    parents = tuple(name for name in record.parents if not _never_registered(block, name))
    dbs = factory.dbs()
    if _taken_back(block.dataset):
        dbs.turn_dataset(record.name, "INVALID", "PRODUCTION")
    dbs.register_block(BlockSpec(block.dbs_block_name, block.origin_rse, spec, files, parents))
    return {"block": block.dbs_block_name, "files": len(files), "origin": block.origin_rse}


def _never_registered(block: ProcessingBlock, dataset: str) -> bool:
    """An output of this workflow that got no file: DBS does not know it and refuses it as a parent."""
    ours = OutputDataset.objects.filter(workflow_id=block.workflow_id, name=dataset)
    return ours.exists() and not ours.filter(blocks__dbs_block_closed=True).exists()


def _taken_back(dataset: OutputDataset) -> bool:
    """Whether it is invalid by WMS2's own doing, for a request whose outputs were taken back, and this one begins it anew.

    Once a block of ours is in it, or another request's blocks are, it was somebody else who made it INVALID, and that stands.
    """
    others = OutputDataset.objects.filter(name=dataset.name).exclude(pk=dataset.pk)
    in_dbs = others.exclude(state=DatasetState.INVALIDATED).filter(blocks__dbs_block_closed=True)
    begun = dataset.blocks.filter(dbs_block_closed=True)
    return others.filter(state=DatasetState.INVALIDATED).exists() and not (in_dbs.exists() or begun.exists())


@_handles(EffectKind.DBS_VALID)
def _dbs_valid(effect: Effect) -> Result:
    name = OutputDataset.objects.values_list("name", flat=True).get(pk=effect.payload["dataset_id"])
    return {"dataset": name, "access_type": factory.dbs().turn_dataset(name, "PRODUCTION", "VALID")}


# --- Rucio ---------------------------------------------------------------------------------------------------------------


@_handles(EffectKind.RUCIO_BLOCK)
def _rucio_block(effect: Effect) -> Result:
    block = _block(effect)
    factory.rucio().ensure_block(block.dataset_name, block.dbs_block_name, _project(effect))
    return {"block": block.dbs_block_name}


def _project(effect: Effect) -> str:
    """What CMS sorts containers and blocks by."""
    if conf().rucio_project:
        return conf().rucio_project
    if conf().environment != "production":
        return "Test"
    return "RelVal" if effect.request.request_data.get("SubRequestType") == "RelVal" else "Production"


@_handles(EffectKind.RUCIO_FILES)
def _rucio_files(effect: Effect) -> Result:
    block, files = _block(effect), _unit_files(effect)
    for rse in sorted({f.rse for f in files}):
        factory.rucio().register_files(
            rse, block.dbs_block_name, [RucioFile(f.lfn, f.size_bytes, f.adler32) for f in files if f.rse == rse]
        )
    return {"files": len(files)}


def _record_protected(effect: Effect, result: Result) -> None:
    rules: dict[str, str] = result["rules"]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE output_files f SET rule_id = v.rule FROM unnest(%s::text[], %s::text[]) AS v (lfn, rule)"
            " WHERE f.lfn = v.lfn AND f.block_id = %s",
            [list(rules), list(rules.values()), _block(effect).pk],
        )


@_handles(EffectKind.RUCIO_PROTECT, _record_protected)
def _rucio_protect(effect: Effect) -> Result:
    rules: dict[str, str] = {}
    files = _unit_files(effect)
    for rse in sorted({f.rse for f in files}):
        lfns = [f.lfn for f in files if f.rse == rse]
        rules |= factory.rucio().protect_files(rse, lfns, comment=_rule_comment(effect), activity=conf().rule_activity)
    return {"rules": rules}


@_handles(EffectKind.RUCIO_BLOCK_CLOSE)
def _rucio_block_close(effect: Effect) -> Result:
    factory.rucio().close_block(_block(effect).dbs_block_name)
    return {"block": _block(effect).dbs_block_name}


def _record_archived(effect: Effect, result: Result) -> None:
    rows = ProcessingBlock.objects.filter(pk=_block(effect).pk)
    blocks_become(rows, BlockStatus.ARCHIVED, tape_rule_id=result["rule_id"], rucio_last_error="")


@_handles(EffectKind.RUCIO_TAPE, _record_archived)
def _rucio_tape(effect: Effect) -> Result:
    block = _block(effect)
    rucio = factory.rucio()
    rse = block.dataset.tape_rse or rucio.choose_tape_rse(conf().tape_rse_expression, key=block.dataset_name)
    # the choice is stored before the rule is asked for: a repeated call must not choose another tape
    OutputDataset.objects.filter(pk=block.dataset_id, tape_rse="").update(tape_rse=rse)
    rse = OutputDataset.objects.values_list("tape_rse", flat=True).get(pk=block.dataset_id)
    return {"rule_id": rucio.tape_rule(block.dbs_block_name, rse, comment=_rule_comment(effect)), "rse": rse}


# --- taking outputs back -------------------------------------------------------------------------------------------------


#: Rules that are deleted between two records of what is done.
_PORTION = 50


def _rule_comment(effect: Effect) -> str:
    """The comment by which the rules of a request are found again in Rucio: the same for all of them."""
    return f"wms2 {conf().instance} {effect.request.request_name}"


@_handles(EffectKind.INVALIDATION_MANIFEST)
def _manifest_write(effect: Effect) -> Result:
    """Write ``<state_dir>/invalidations/<request>.json``, whole or not at all."""
    request = effect.request
    document = invalidation_manifest(request_name=request.request_name, workflow_id=request.workflow.pk)
    directory = conf().state_dir / "invalidations"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{request.request_name}.json"
    part = path.with_suffix(".tmp")
    with part.open("w") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return {"path": str(path), **document["totals"]}


def _record_released(effect: Effect, result: Result) -> None:
    """No rule protects the files any more."""
    dataset = _dataset(effect)
    _forget(OutputFile.objects.filter(dataset=dataset), ProcessingBlock.objects.filter(dataset=dataset))


@_handles(EffectKind.RUCIO_RELEASE, _record_released)
def _rules_release(effect: Effect) -> Result:
    """Delete the dataset's source and tape rules; those that are gone already count too.

    Rules are also looked for by their comment: a call whose answer was lost made one that no row knows. Those that expire were
    deleted: Rucio keeps a rule for an hour after its last deletion, and a repeat that began with them again would never end.

    Raises:
        ServiceUnavailable: a registration of the request, begun before, is still under way and may make another rule.
    """
    dataset = _dataset(effect)
    older = Effect.objects.filter(request=effect.request, epoch__lt=effect.epoch, state=EffectState.CLAIMED)
    if older.filter(claim_expires_at__gte=clock.now()).exists():
        raise ServiceUnavailable("wms2", effect.kind, "registrations begun before are still under way")
    rucio = factory.rucio()
    files, blocks = OutputFile.objects.filter(dataset=dataset), ProcessingBlock.objects.filter(dataset=dataset)
    names = set(files.values_list("lfn", flat=True)) | set(blocks.values_list("dbs_block_name", flat=True))
    standing = (rule for rule in rucio.rules_with_comment(_rule_comment(effect)) if rule.expires_at is None)
    found = {rule.rule_id for rule in standing if rule.name in names}
    known = (files.values_list("rule_id", flat=True), blocks.values_list("tape_rule_id", flat=True))
    rules = sorted(found.union(*known) - {""})
    turn, before = Turn(effect), int(effect.result.get("deleted", 0))
    deleted = before
    for first in range(0, len(rules), _PORTION):
        portion = rules[first : first + _PORTION]
        deleted += sum(rucio.delete_rule(rule) for rule in portion)
        # the row that knows a rule is how a repeat finds it: only what is left is asked for again
        _forget(files.filter(rule_id__in=portion), blocks.filter(tape_rule_id__in=portion))
        if first + _PORTION < len(rules):
            turn.told(deleted=deleted)
    return {"rules": before + len(rules), "deleted": deleted}


def _forget(files: QuerySet[OutputFile], blocks: QuerySet[ProcessingBlock]) -> None:
    files.update(rule_id="")
    # a block without its tape rule is archived no more; soon it is invalidated
    blocks_become(blocks.filter(status=BlockStatus.ARCHIVED), BlockStatus.COMPLETE, tape_rule_id="")
    blocks.update(tape_rule_id="", updated_at=clock.now())


def _record_invalidated(effect: Effect, result: Result) -> None:
    """SUPERSEDED or ACTIVE -> INVALIDATED; the name is this request's no more."""
    dataset = _dataset(effect)
    OutputFile.objects.filter(dataset=dataset).update(validity=Validity.INVALID)
    blocks_become(ProcessingBlock.objects.filter(dataset=dataset), BlockStatus.INVALIDATED)
    OutputDataset.objects.filter(pk=dataset.pk).update(state=DatasetState.INVALIDATED)
    names_release(request_id=effect.request_id, names=[dataset.name])
    kept_for_nobody = bool(result.get("kept_for")) and not other_owners(request_id=effect.request_id, name=dataset.name)
    if kept_for_nobody:  # the other owner was taken back at the same time, and kept it for us
        again = Wish(EffectKind.DBS_INVALIDATE, f"{dataset.pk}:again", payload={"dataset_id": dataset.pk})
        effect_ask(again, request_id=effect.request_id, request_epoch=effect.epoch)


@_handles(EffectKind.DBS_INVALIDATE, _record_invalidated)
def _dbs_invalidate(effect: Effect) -> Result:
    """Make every registered file INVALID; the dataset too when nobody else writes into it and nothing valid of anybody's is left.

    What DBS never heard of needs nothing.
    """
    dataset = _dataset(effect)
    dbs = factory.dbs()
    turn, count = Turn(effect), int(effect.result.get("files", 0))
    done = int(effect.result.get("up_to_block", -1))
    for block in ProcessingBlock.objects.filter(dataset=dataset, block_index__gt=done).order_by("block_index"):
        count += dbs.invalidate_files(sorted(file.lfn for file in dbs.block_files(block.dbs_block_name)))
        turn.told(files=count, up_to_block=block.block_index)
    others = other_owners(request_id=effect.request_id, name=dataset.name)
    if others:
        return {"files": count, "dataset": "kept", "kept_for": others}
    left = dbs.valid_file(dataset.name)
    if left:
        return {"files": count, "dataset": f"kept: {left} in it is valid"}
    try:
        dbs.set_dataset_access_type(dataset.name, "INVALID")
    except NotFoundInService:
        return {"files": count, "dataset": "not in DBS"}
    return {"files": count, "dataset": "INVALID"}


def _dataset(effect: Effect) -> OutputDataset:
    return OutputDataset.objects.get(pk=effect.payload["dataset_id"])
