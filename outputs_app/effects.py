"""One handler per effect kind: the outside call, then what its success changes in our rows (spec 4.7).

``call(effect)`` runs with no transaction open and returns plain values; ``record(effect, result)`` runs inside the transaction
that marks the effect done. Both may run twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outputs_app import invalidation_effects as back
from outputs_app.models import BlockStatus, DatasetState, Effect, EffectKind, OutputDataset, OutputFile, ProcessingBlock
from outputs_app.states import blocks_become
from outputs_app.values import DatasetRecord
from wms2 import clock
from wms2.adapters import factory
from wms2.adapters.rucio_types import RucioFile
from wms2.adapters.types import BlockSpec, DatasetSpec, DbsFile, OutputConfig
from wms2.conf import conf

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """How one kind of effect is done and recorded."""

    call: Callable[[Effect], Result]
    record: Callable[[Effect, Result], None]


def _nothing(effect: Effect, result: Result) -> None:
    """No row but the effect itself changes."""


def _block(effect: Effect) -> ProcessingBlock:
    if effect.block is None:
        raise ValueError(f"effect {effect.key} has no block")
    return effect.block


def _record_of(dataset: OutputDataset) -> DatasetRecord:
    return DatasetRecord(**{**dataset.registration, "parents": tuple(dataset.registration.get("parents", ()))})


def _unit_files(effect: Effect) -> list[OutputFile]:
    return list(OutputFile.objects.filter(block=_block(effect), unit_id=effect.unit_id).order_by("lfn"))


# --- DBS -----------------------------------------------------------------------------------------------------------------


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


def _record_block(effect: Effect, result: Result) -> None:
    ProcessingBlock.objects.filter(pk=_block(effect).pk).update(
        dbs_block_open=True, dbs_block_closed=True, updated_at=clock.now()
    )


def _dbs_valid(effect: Effect) -> Result:
    name = OutputDataset.objects.values_list("name", flat=True).get(pk=effect.payload["dataset_id"])
    return {"dataset": name, "access_type": factory.dbs().turn_dataset(name, "PRODUCTION", "VALID")}


# --- Rucio ---------------------------------------------------------------------------------------------------------------


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


def _rucio_files(effect: Effect) -> Result:
    block, files = _block(effect), _unit_files(effect)
    for rse in sorted({f.rse for f in files}):
        factory.rucio().register_files(
            rse, block.dbs_block_name, [RucioFile(f.lfn, f.size_bytes, f.adler32) for f in files if f.rse == rse]
        )
    return {"files": len(files)}


def _rucio_protect(effect: Effect) -> Result:
    rules: dict[str, str] = {}
    files = _unit_files(effect)
    for rse in sorted({f.rse for f in files}):
        lfns = [f.lfn for f in files if f.rse == rse]
        rules |= factory.rucio().protect_files(rse, lfns, comment=back.rule_comment(effect), activity=conf().rule_activity)
    return {"rules": rules}


def _record_protected(effect: Effect, result: Result) -> None:
    files = _unit_files(effect)
    for file in files:
        file.rule_id = result["rules"][file.lfn]
    OutputFile.objects.bulk_update(files, ["rule_id"])


def _rucio_block_close(effect: Effect) -> Result:
    factory.rucio().close_block(_block(effect).dbs_block_name)
    return {"block": _block(effect).dbs_block_name}


def _rucio_tape(effect: Effect) -> Result:
    block = _block(effect)
    rucio = factory.rucio()
    rse = block.dataset.tape_rse or rucio.choose_tape_rse(conf().tape_rse_expression, key=block.dataset_name)
    # the choice is stored before the rule is asked for: a repeated call must not choose another tape
    OutputDataset.objects.filter(pk=block.dataset_id, tape_rse="").update(tape_rse=rse)
    rse = OutputDataset.objects.values_list("tape_rse", flat=True).get(pk=block.dataset_id)
    return {"rule_id": rucio.tape_rule(block.dbs_block_name, rse, comment=back.rule_comment(effect)), "rse": rse}


def _record_archived(effect: Effect, result: Result) -> None:
    rows = ProcessingBlock.objects.filter(pk=_block(effect).pk)
    blocks_become(rows, BlockStatus.ARCHIVED, tape_rule_id=result["rule_id"], rucio_last_error="")


HANDLERS: dict[str, Handler] = {
    EffectKind.RUCIO_BLOCK: Handler(_rucio_block, _nothing),
    EffectKind.RUCIO_FILES: Handler(_rucio_files, _nothing),
    EffectKind.RUCIO_PROTECT: Handler(_rucio_protect, _record_protected),
    EffectKind.RUCIO_BLOCK_CLOSE: Handler(_rucio_block_close, _nothing),
    EffectKind.DBS_BLOCK: Handler(_dbs_block, _record_block),
    EffectKind.RUCIO_TAPE: Handler(_rucio_tape, _record_archived),
    EffectKind.DBS_VALID: Handler(_dbs_valid, _nothing),
    EffectKind.INVALIDATION_MANIFEST: Handler(back.manifest_write, _nothing),
    EffectKind.RUCIO_RELEASE: Handler(back.rules_release, back.record_released),
    EffectKind.DBS_INVALIDATE: Handler(back.dbs_invalidate, back.record_invalidated),
}
