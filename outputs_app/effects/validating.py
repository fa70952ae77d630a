"""A block compared with DBS and Rucio; the evidence, and a case for each difference."""

from __future__ import annotations

from dataclasses import asdict

from outputs_app.effects.handler import Result, block_of, comment_of, handles
from outputs_app.models import BlockValidation, DriftKind, Effect, EffectKind, IntegrityCase, OutputFile, Prognosis
from outputs_app.reconciliation.compare import in_dbs, in_rucio
from outputs_app.reconciliation.rows import blocks_believed
from wms2 import clock
from wms2.adapters import factory

_MISSING = (DriftKind.REPLICA_MISSING, DriftKind.REPLICA_UNAVAILABLE)


def _record(effect: Effect, result: Result) -> None:
    block, now = block_of(effect), clock.now()
    rows = BlockValidation.objects.filter(block=block, validated_at__isnull=True)
    told = {"findings": len(result["findings"]), "at": now.isoformat()}
    rows.update(catalogues_at=now, files=result["files"], events=result["events"], evidence=told)
    if not result["findings"]:
        rows.update(validated_at=now)
    files = {file.lfn: file for file in OutputFile.objects.filter(lfn__in=[each["name"] for each in result["findings"]])}
    IntegrityCase.objects.bulk_create(
        [
            IntegrityCase(
                request=effect.request, block=block, file=files.get(each["name"]), name=each["name"], evidence=[each],
                rse=files[each["name"]].rse if each["name"] in files else "",
                prognosis=Prognosis.MISSING_REPLICA if each["kind"] in _MISSING else Prognosis.CATALOGUE_DIFFERS,
            )
            for each in result["findings"]
        ],
        ignore_conflicts=True,
    )  # fmt: skip


@handles(EffectKind.BLOCK_VALIDATE, _record)
def _block_validate(effect: Effect) -> Result:
    block = block_of(effect)
    (believed,) = blocks_believed([block])
    outputs, rucio = factory.dbs().outputs, factory.rucio()
    known = outputs.block(block.dbs_block_name)
    files = list(outputs.files(block.dbs_block_name, valid_only=False, operation="compare")) if known is not None else []
    rules = {rule.rule_id: rule for rule in rucio.rules_with_comment(comment_of(effect.request.request_name))}
    places = {believed.name: {believed.place_of(file) for file in believed.files.values()} - {""}}
    held = rucio.blocks_held(places).get(believed.name)
    findings = [*in_dbs(believed, known, files), *in_rucio(believed, held, rules.get)]
    valid = [file for file in files if file.is_valid]
    return {
        "files": len(valid),
        "events": sum(file.events for file in valid),
        "findings": [{name: str(value) for name, value in asdict(one).items()} for one in findings],
    }
