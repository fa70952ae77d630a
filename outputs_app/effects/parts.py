"""Single files, or a single block, that are taken back: the files INVALID in DBS, then their rules deleted; the others stay."""

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

    A rule that protects other files of the block as well stays; where they are ``lost``, Rucio's block goes on without them, so
    that no rule waits for them and none keeps them: protection ends by that too, so DBS is told before. What DBS does not have as
    valid needs nothing.
    """
    block, rucio, dbs = block_of(effect), factory.rucio(), factory.dbs()
    files = OutputFile.objects.filter(block=block, pk__in=effect.payload["files"])
    others = OutputFile.objects.filter(block=block).exclude(pk__in=effect.payload["files"]).values_list("rule_id", flat=True)
    rules = set(files.values_list("rule_id", flat=True)) - set(others) - {""}
    if effect.payload["whole"]:
        rules |= {block.tape_rule_id, block.source_rule_id} - {""}
    lfns = sorted(files.values_list("lfn", flat=True))
    valid = {file.lfn for file in dbs.block_files(block.dbs_block_name) if file.is_valid}
    there = [lfn for lfn in lfns if lfn in valid]
    if there:
        in_parallel(there, dbs.invalidate_files)
    if effect.payload.get("lost"):
        rucio.detach_files(block.dbs_block_name, lfns)
    deleted = in_parallel(sorted(rules), lambda share: sum(rucio.delete_rule(rule) for rule in share)) if rules else 0
    return {"done": len(lfns), "of": len(lfns), "deleted": deleted}
