"""Validation: a registered block is compared with DBS and Rucio, and its lumis with all of its dataset (ADR 0019).

It only reads outside. Each service's answer is recorded before the next is asked; a repeat begins anew where an effect has
changed the block meanwhile.
"""

from __future__ import annotations

from dataclasses import asdict

from outputs_app.checks.cases import cases_open
from outputs_app.checks.reconciliation.rows import blocks_status
from outputs_app.checks.validation.catalogues import BlockComparison
from outputs_app.checks.validation.process import validation_again
from outputs_app.checks.validation.rules import FileFinding
from outputs_app.effects.handler import Result, block_of, handles, rule_comment
from outputs_app.effects.time_slices import TimeSlice
from outputs_app.models import BlockStatus, BlockValidation, Effect, EffectKind, FindingKind
from wms2.errors import ServiceUnavailable
from wms2.metrics.series import VALIDATIONS_TOTAL
from wms2.runtime import clock
from wms2.runtime.json_columns import known

#: What is asked, in this order; a method of ``BlockComparison`` each.
STEPS = ("dbs", "rucio", "lumis")


def _record(effect: Effect, result: Result) -> None:
    block, generation = block_of(effect), effect.payload["generation"]
    validation = BlockValidation.objects.select_for_update().filter(block=block, generation=generation).first()
    if validation is None or not result:
        return
    if blocks_status([block.pk]).get(block.pk) != result["stamp"]:
        validation_again([block.pk], every_checksum=validation.every_checksum)
        return
    found = [
        FileFinding(**known(FileFinding, each) | {"prognosis": FindingKind(each["prognosis"])})
        for name in STEPS
        for each in result[name]["findings"]
    ]
    opened = cases_open(block, found)
    evidence = {name: {**result[name], "findings": len(result[name]["findings"])} for name in STEPS}
    validation.evidence = {**validation.evidence, **evidence, "accepted": len({each.name for each in found}) - opened}
    validation.catalogues_at, validation.files, validation.events = clock.now(), result["dbs"]["files"], result["dbs"]["events"]
    validation.save(update_fields=["evidence", "catalogues_at", "files", "events"])
    VALIDATIONS_TOTAL.labels("catalogues", "findings" if opened else "fine").inc()


@handles(EffectKind.BLOCK_VALIDATE, _record)
def _block_validate(effect: Effect) -> Result:
    """Raises ServiceUnavailable while an effect is about to change the block."""
    block = block_of(effect)
    if block.status == BlockStatus.INVALIDATED:  # taken back as a whole meanwhile
        return {}
    stamp = blocks_status([block.pk]).get(block.pk)
    if stamp is None:
        raise ServiceUnavailable("wms2", effect.kind, "something is under way for this block")
    if effect.result.get("stamp") != stamp:
        effect.result = {"stamp": stamp}
    time_slice, comparison = TimeSlice(effect), BlockComparison(block, effect.payload["generation"], rule_comment(effect))
    for name in STEPS:
        if name not in effect.result:
            seen = getattr(comparison, name)()
            findings = [asdict(each) for each in seen.findings]
            time_slice.reported(**{name: {**seen.reported, "at": clock.now().isoformat(), "findings": findings}})
    result: Result = effect.result
    return result
