"""Calls to DBS: the registration of whole blocks, and of complete datasets as VALID."""

from __future__ import annotations

from collections.abc import Iterable

import structlog
from django.db.models.expressions import RawSQL

from outputs_app.effects.handler import Result, block_of, dataset_of, handles
from outputs_app.models import DatasetState, Effect, EffectKind, OutputDataset, ProcessingBlock
from outputs_app.values import DatasetRecord
from wms2.adapters import factory
from wms2.adapters.types import BlockSpec, DatasetSpec, DbsFile, OutputConfig
from wms2.runtime import clock
from wms2.runtime.json_columns import known, numbered

log = structlog.get_logger(__name__)


@handles(
    EffectKind.DBS_BLOCK,
    lambda effect, result: ProcessingBlock.objects.filter(pk=block_of(effect).pk).update(
        dbs_block_open=True, dbs_block_closed=True, warnings=result["warnings"], updated_at=clock.now()
    ),
)
def _dbs_block(effect: Effect) -> Result:
    block = block_of(effect)
    stored = known(DatasetRecord, block.dataset.registration)
    record = DatasetRecord(**{**stored, "parents": tuple(stored.get("parents", ()))})
    config = OutputConfig(
        release_version=record.release, pset_hash=record.pset_hash or "NO_PSET_HASH", app_name="cmsRun",
        output_module_label=record.module, global_tag=record.global_tag,
    )  # fmt: skip
    rows = list(block.files.order_by("lfn"))
    # DBS and its readers want the events of all lumis or of none: a block has them if every file does
    counted = all(events is not None for row in rows for _, pairs in numbered(row.lumis) for _, events in pairs)
    files = tuple(
        DbsFile(
            lfn=row.lfn, size_bytes=row.size_bytes, adler32=row.adler32, events=row.events,
            lumis={
                run: tuple((lumi, events if counted else None) for lumi, events in pairs) for run, pairs in numbered(row.lumis)
            },
            parents=() if record.parents else tuple(row.parents), output_config=config, is_valid=row.is_valid,
        )
        for row in rows
    )  # fmt: skip
    spec = DatasetSpec(
        dataset=record.name, primary_ds_type=record.primary_ds_type, acquisition_era=record.acquisition_era,
        processing_version=record.processing_version, physics_group=record.physics_group, output_configs=(config,),
        prep_id=record.prep_id,
    )  # fmt: skip
    # an output of this workflow in which no request has a file is unknown to DBS, which refuses it as a parent
    named = OutputDataset.objects.filter(name__in=record.parents)
    ours = set(named.filter(workflow_id=block.workflow_id).values_list("name", flat=True))
    written = set(named.filter(files__isnull=False).values_list("name", flat=True))
    parents = tuple(name for name in record.parents if name in written or name not in ours)
    dbs = factory.dbs()
    if _taken_back(block.dataset):
        dbs.turn_dataset(record.name, "INVALID", "PRODUCTION")
    warnings = dbs.register_block(BlockSpec(block.dbs_block_name, block.origin_rse, spec, files, parents))
    if taken_back := [row.lfn for row in rows if not row.is_valid]:
        dbs.invalidate_files(taken_back)  # all files of a new block are valid there
    if warnings:
        _warn(effect, warnings)
    return {"block": block.dbs_block_name, "files": len(files), "origin": block.origin_rse, "warnings": list(warnings)}


def _warn(effect: Effect, warnings: Iterable[str]) -> None:
    """On the request, each once, outside the effect's transaction: a holder of the request's row may wait for the effect's."""
    for warning in warnings:
        row = type(effect.request).objects.filter(pk=effect.request_id).exclude(warnings__contains=[warning])
        if row.update(warnings=RawSQL("warnings || jsonb_build_array(%s::text)", [warning])):
            log.warning("registered otherwise than sent", effect=effect.key, why=warning)


def _taken_back(dataset: OutputDataset) -> bool:
    """Whether it is invalid by WMS2's own doing, for a request whose outputs were taken back, and this one begins it anew.

    Once a block of ours is in it, or another request's blocks are, a person made it INVALID, and that stands.
    """
    others = OutputDataset.objects.filter(name=dataset.name).exclude(pk=dataset.pk)
    in_dbs = others.exclude(state=DatasetState.INVALIDATED).filter(blocks__dbs_block_closed=True)
    begun = dataset.blocks.filter(dbs_block_closed=True)
    return others.filter(state=DatasetState.INVALIDATED).exists() and not (in_dbs.exists() or begun.exists())


@handles(EffectKind.DBS_VALID)
def _dbs_valid(effect: Effect) -> Result:
    name = dataset_of(effect).name
    return {"dataset": name, "access_type": factory.dbs().turn_dataset(name, "PRODUCTION", "VALID")}
