"""Single files, or a single block, that are taken back: their rules deleted, the files INVALID in DBS; the others stay."""

from __future__ import annotations

from outputs_app.effects.handler import Result, block_of, handles, in_parallel
from outputs_app.models import BlockStatus, Effect, EffectKind, OutputFile, Validity
from outputs_app.states import blocks_become
from wms2.adapters import factory


def _record(effect: Effect, result: Result) -> None:
    block = block_of(effect)
    OutputFile.objects.filter(block=block, pk__in=effect.payload["files"]).update(validity=Validity.INVALID, rule_id="")
    if effect.payload["whole"]:
        blocks_become(type(block).objects.filter(pk=block.pk), BlockStatus.INVALIDATED, tape_rule_id="", source_rule_id="")


@handles(EffectKind.FILES_INVALIDATE, _record)
def _files_invalidate(effect: Effect) -> Result:
    """``payload``: ``files`` of the block, and whether that is the ``whole`` block: then its own rules go too.

    A rule that protects other files of the block as well stays.
    """
    block, rucio, dbs = block_of(effect), factory.rucio(), factory.dbs()
    files = OutputFile.objects.filter(block=block, pk__in=effect.payload["files"])
    others = OutputFile.objects.filter(block=block).exclude(pk__in=effect.payload["files"]).values_list("rule_id", flat=True)
    rules = set(files.values_list("rule_id", flat=True)) - set(others) - {""}
    if effect.payload["whole"]:
        rules |= {block.tape_rule_id, block.source_rule_id} - {""}
    deleted = in_parallel(sorted(rules), lambda share: sum(rucio.delete_rule(rule) for rule in share)) if rules else 0
    lfns = sorted(files.values_list("lfn", flat=True))
    done = in_parallel(lfns, dbs.invalidate_files) if lfns else 0
    return {"done": done, "of": len(lfns), "deleted": deleted}
