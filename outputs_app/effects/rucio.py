"""What Rucio is told: blocks, replicas, rules on files and on tape."""

from __future__ import annotations

from django.db import connection

from outputs_app.effects.handler import Result, block_of, handles, rule_comment, unit_files
from outputs_app.models import BlockStatus, Effect, EffectKind, OutputDataset, ProcessingBlock
from outputs_app.states import blocks_become
from wms2.adapters import factory
from wms2.adapters.rucio_types import RucioFile
from wms2.conf import conf


@handles(EffectKind.RUCIO_BLOCK)
def _rucio_block(effect: Effect) -> Result:
    block = block_of(effect)
    factory.rucio().ensure_block(block.dataset_name, block.dbs_block_name, _project(effect))
    return {"block": block.dbs_block_name}


def _project(effect: Effect) -> str:
    """What CMS sorts containers and blocks by."""
    if conf().rucio_project:
        return conf().rucio_project
    if conf().environment != "production":
        return "Test"
    return "RelVal" if effect.request.request_data.get("SubRequestType") == "RelVal" else "Production"


@handles(EffectKind.RUCIO_FILES)
def _rucio_files(effect: Effect) -> Result:
    block, files = block_of(effect), unit_files(effect)
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
            [list(rules), list(rules.values()), block_of(effect).pk],
        )


@handles(EffectKind.RUCIO_PROTECT, _record_protected)
def _rucio_protect(effect: Effect) -> Result:
    rules: dict[str, str] = {}
    files = unit_files(effect)
    for rse in sorted({f.rse for f in files}):
        lfns = [f.lfn for f in files if f.rse == rse]
        rules |= factory.rucio().protect_files(rse, lfns, comment=rule_comment(effect), activity=conf().rule_activity)
    return {"rules": rules}


@handles(EffectKind.RUCIO_BLOCK_CLOSE)
def _rucio_block_close(effect: Effect) -> Result:
    factory.rucio().close_block(block_of(effect).dbs_block_name)
    return {"block": block_of(effect).dbs_block_name}


def _record_archived(effect: Effect, result: Result) -> None:
    rows = ProcessingBlock.objects.filter(pk=block_of(effect).pk)
    blocks_become(rows, BlockStatus.ARCHIVED, tape_rule_id=result["rule_id"], rucio_last_error="")


@handles(EffectKind.RUCIO_TAPE, _record_archived)
def _rucio_tape(effect: Effect) -> Result:
    block = block_of(effect)
    rucio = factory.rucio()
    rse = block.dataset.tape_rse or rucio.choose_tape_rse(conf().tape_rse_expression, key=block.dataset_name)
    # the choice is stored before the rule is asked for: a repeated call must not choose another tape
    OutputDataset.objects.filter(pk=block.dataset_id, tape_rse="").update(tape_rse=rse)
    rse = OutputDataset.objects.values_list("tape_rse", flat=True).get(pk=block.dataset_id)
    return {"rule_id": rucio.tape_rule(block.dbs_block_name, rse, comment=rule_comment(effect)), "rse": rse}
