"""Invalidation of outputs: the list of them; files and datasets, or single files and blocks, invalidated in DBS, then their rules
deleted in Rucio."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from itertools import chain

import structlog
from django.db.models import QuerySet

from outputs_app.blocks.ownership import names_release, other_owners
from outputs_app.effects.handler import (
    RULE_ACTIVITY,
    Result,
    block_of,
    by_rse,
    dataset_of,
    handles,
    in_parallel,
    rule_comment,
    unit_files,
)
from outputs_app.effects.invalidation import former_run_out, invalidation_manifest
from outputs_app.effects.requests import EffectRequest, effects_enqueue
from outputs_app.effects.time_slices import TimeSlice, lease_end, still_claimed
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
from outputs_app.states import blocks_become
from wms2.adapters import factory
from wms2.adapters.caller import undoing
from wms2.conf import conf
from wms2.errors import LeaseLost, NotFoundInService, ServiceUnavailable
from wms2.runtime import clock

log = structlog.get_logger(__name__)
#: Rules that are deleted, and files that are invalidated, between two records of what is done.
_PORTION = 400


@handles(EffectKind.INVALIDATION_MANIFEST)
def _manifest_write(effect: Effect) -> Result:
    """Write ``<state_dir>/invalidations/<request>.json``, whole or not at all."""
    request = effect.request
    document = invalidation_manifest(request_name=request.request_name, workflow_id=request.workflow.pk)
    directory = conf().state_dir / "invalidations"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{request.request_name}.json"
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")  # another writer's, who was paused, is another file
    with part.open("w") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return {"path": str(path), **document["totals"]}


def _record_released(effect: Effect, result: Result) -> None:
    dataset: int = effect.payload["dataset_id"]
    blocks = ProcessingBlock.objects.filter(dataset=dataset)
    _forget(OutputFile.objects.filter(dataset=dataset), blocks, blocks)
    OutputDataset.objects.filter(pk=dataset).update(disk_rule_id="")


@handles(EffectKind.RUCIO_RELEASE, _record_released)
def _rules_release(effect: Effect) -> Result:
    """Delete the dataset's source and tape rules, unlocked where they are locked; those that are gone already count too.

    First those that rows know; then rules are looked for by their comment: a call whose answer was lost made one that no row
    knows. Those that expire were deleted: Rucio keeps a rule for an hour after its last deletion, and a repeat that began with
    them again would never end.

    Raises:
        ServiceUnavailable: see ``_older_over``: it may make another rule.
    """
    _older_over(effect)
    dataset, rucio = dataset_of(effect), factory.rucio()
    files, blocks = OutputFile.objects.filter(dataset=dataset), ProcessingBlock.objects.filter(dataset=dataset)
    alone = not other_owners(request_id=effect.request_id, name=dataset.name)  # the container's rule is for all of them
    of_blocks = chain([dataset.disk_rule_id] if alone else [], *blocks.values_list("tape_rule_id", "source_rule_id"))
    held_by: dict[str, list[int]] = {rule: [] for rule in of_blocks if rule}
    for rule, key in files.exclude(rule_id="").values_list("rule_id", "pk"):
        held_by.setdefault(rule, []).append(key)
    time_slice, deleted, purge = TimeSlice(effect), int(effect.result.get("deleted", 0)), bool(effect.payload.get("purge"))

    def delete(rules: Sequence[str]) -> int:
        return sum(rucio.delete_rule(rule, purge) for rule in rules)

    of = max(int(effect.result.get("of", 0)), len(held_by))
    done = of - len(held_by)
    for portion in _portions(sorted(held_by)):
        deleted += in_parallel(portion, delete)
        # the row that knows a rule is how a repeat finds it: only what is left is asked for again
        keys = [key for rule in portion for key in held_by[rule]]
        _forget(files.filter(pk__in=keys), blocks.filter(tape_rule_id__in=portion), blocks.filter(source_rule_id__in=portion))
        done += len(portion)
        time_slice.reported(done=done, of=of, deleted=deleted)
    if "unruled" not in effect.result:
        time_slice.reported(unruled=_rule_unruled(effect, dataset))
    if not alone:  # the dataset goes on as others': its blocks in Rucio have no files that are INVALID in DBS
        for block in blocks:
            rucio.detach_files(block.dbs_block_name, files.filter(block=block).values_list("lfn", flat=True))
    lasting = [rule for rule in rucio.rules_with_comment(rule_comment(effect)) if rule.expires_at is None]
    names = _ours(dataset, [rule.name for rule in lasting]) | ({dataset.name} if alone else set())
    unknown = sorted(rule.rule_id for rule in lasting if rule.name in names)
    for portion in _portions(unknown):
        deleted += in_parallel(portion, delete)
        time_slice.reported(deleted=deleted)
    return {"done": of + len(unknown), "of": of + len(unknown), "deleted": deleted}


def _older_over(effect: Effect) -> None:
    """Whichever step comes first waits, so that no block becomes VALID, and no rule is made, behind its back.

    Raises:
        ServiceUnavailable: a registration of the request, begun before, is still under way, or may be.
    """
    if not former_run_out(request_id=effect.request_id, request_epoch=effect.epoch):
        raise ServiceUnavailable("wms2", effect.kind, "registrations begun before are still under way")


def _rule_unruled(effect: Effect, dataset: OutputDataset) -> int:
    """Replicas that were registered and never had a rule: Rucio removes one only with the end of its last rule, so each gets one,
    which ends with those that are looked for by their comment. How many there are."""
    found, rucio = 0, factory.rucio()
    protections = Effect.objects.filter(request=effect.request, kind=EffectKind.RUCIO_PROTECT, block__dataset=dataset)
    for never in protections.exclude(state=EffectState.DONE).select_related("block"):
        files = unit_files(never, Validity.values)  # by now DBS has them as INVALID
        held = rucio.file_replicas([file.lfn for file in files])
        for rse, there in by_rse(files).items():
            lfns = [file.lfn for file in there if rse in held[file.lfn]]
            if lfns:
                rucio.protect_files(rse, lfns, comment=rule_comment(effect), activity=RULE_ACTIVITY)
            found += len(lfns)
    return found


def _portions(items: Sequence[str]) -> list[Sequence[str]]:
    return [items[first : first + _PORTION] for first in range(0, len(items), _PORTION)]


def _ours(dataset: OutputDataset, names: Sequence[str]) -> set[str]:
    """Those of the names that are of the dataset's files or blocks."""
    found: set[str] = set()
    for portion in _portions(sorted(set(names))):
        found |= set(OutputFile.objects.filter(dataset=dataset, lfn__in=portion).values_list("lfn", flat=True))
        blocks = ProcessingBlock.objects.filter(dataset=dataset, dbs_block_name__in=portion)
        found |= set(blocks.values_list("dbs_block_name", flat=True))
    return found


def _forget(files: QuerySet[OutputFile], on_tape: QuerySet[ProcessingBlock], at_source: QuerySet[ProcessingBlock]) -> None:
    """The rules of these files, the tape rules and the source rules of these blocks are deleted."""
    files.exclude(rule_id="").update(rule_id="")  # a rule on a block is found by its name as long as it stands
    # where DBS has not invalidated it yet: a block without its tape rule is archived no more
    blocks_become(on_tape.filter(status=BlockStatus.ARCHIVED), BlockStatus.COMPLETE, tape_rule_id="")
    on_tape.exclude(tape_rule_id="").update(tape_rule_id="", updated_at=clock.now())
    at_source.exclude(source_rule_id="").update(source_rule_id="", updated_at=clock.now())


def _record_invalidated(effect: Effect, result: Result) -> None:
    """SUPERSEDED or ACTIVE -> INVALIDATED; the name is this request's no more."""
    dataset = dataset_of(effect)
    OutputFile.objects.filter(dataset=dataset, validity=Validity.VALID).update(validity=Validity.INVALID)
    blocks_become(ProcessingBlock.objects.filter(dataset=dataset), BlockStatus.INVALIDATED)
    OutputDataset.objects.filter(pk=dataset.pk).update(state=DatasetState.INVALIDATED)
    names_release(request_id=effect.request_id, names=[dataset.name])
    has_no_owner = bool(result.get("kept_for")) and not other_owners(request_id=effect.request_id, name=dataset.name)
    if has_no_owner:  # the other owner was taken back at the same time, and kept it for us
        again = EffectRequest(EffectKind.DBS_INVALIDATE, f"{dataset.pk}:again", payload={"dataset_id": dataset.pk})
        effects_enqueue(effect_requests=[again], request_id=effect.request_id, request_epoch=effect.epoch)


@handles(EffectKind.DBS_INVALIDATE, _record_invalidated)
def _dbs_invalidate(effect: Effect) -> Result:
    """Make every registered file INVALID that is not yet; the dataset too when no other request writes into it and no
    valid file is left.

    What DBS never heard of needs nothing.

    Raises:
        ServiceUnavailable: see ``_older_over``: it may bring a valid block.
    """
    _older_over(effect)
    dataset, dbs = dataset_of(effect), factory.dbs()
    blocks = ProcessingBlock.objects.filter(dataset=dataset).order_by("block_index")
    time_slice, before = TimeSlice(effect), int(effect.result.get("before_block", 0))
    of = int(effect.result.get("of", 0)) or OutputFile.objects.filter(dataset=dataset).count()
    for block in blocks.filter(block_index__gt=int(effect.result.get("up_to_block", -1))):
        known = dbs.block_files(block.dbs_block_name)
        valid = sorted(file.lfn for file in known if file.is_valid)
        done = before + len(known) - len(valid)
        for portion in _portions(valid):
            done += in_parallel(portion, dbs.invalidate_files)
            OutputFile.objects.filter(lfn__in=portion, dataset=dataset).update(validity=Validity.INVALID)
            time_slice.reported(done=done, of=of)
        before += len(known)
        time_slice.reported(done=before, of=of, before_block=before, up_to_block=block.block_index)
    numbers: Result = {"done": before, "of": before}  # files that DBS never had need nothing
    others = other_owners(request_id=effect.request_id, name=dataset.name)
    if others:
        return {**numbers, "dataset": "kept", "kept_for": others}
    left = dbs.valid_file(dataset.name)
    if left:
        return {**numbers, "dataset": f"kept: {left} in it is valid"}
    if not still_claimed(effect).update(claim_expires_at=lease_end()):  # done by another, and the name may have passed on
        raise LeaseLost(f"{effect.key} is claimed by another process")
    try:
        dbs.set_dataset_access_type(dataset.name, "INVALID")
    except NotFoundInService:
        return {**numbers, "dataset": "not in DBS"}
    if not still_claimed(effect).exists() and other_owners(request_id=effect.request_id, name=dataset.name):
        with undoing():  # paused in the call, it came after theirs
            back = dbs.turn_dataset(dataset.name, "INVALID", _before(dataset))
        log.error("a dataset that is another request's by now was made INVALID, and is not", dataset=dataset.name, is_now=back)
    return {**numbers, "dataset": "INVALID"}


def _before(dataset: OutputDataset) -> str:
    """The access type of a dataset that others write, or have written and completed."""
    others = OutputDataset.objects.filter(name=dataset.name).exclude(pk=dataset.pk).values_list("pk", flat=True)
    keys = [EffectRequest(EffectKind.DBS_VALID, pk).key for pk in others]
    return "VALID" if Effect.objects.filter(key__in=keys, state=EffectState.DONE).exists() else "PRODUCTION"


def _record_parts(effect: Effect, result: Result) -> None:
    block = block_of(effect)
    OutputFile.objects.filter(block=block, pk__in=effect.payload["files"]).update(validity=Validity.INVALID, rule_id="")
    if effect.payload["whole"]:
        blocks_become(type(block).objects.filter(pk=block.pk), BlockStatus.INVALIDATED, tape_rule_id="", source_rule_id="")


@handles(EffectKind.FILES_INVALIDATE, _record_parts)
def _files_invalidate(effect: Effect) -> Result:
    """``payload``: ``files`` of the block, and whether that is the ``whole`` block: then its own rules go too.

    A rule that protects other files of the block as well stays. Rucio's block goes on without them: no rule waits for them,
    none keeps them, and its files are those that DBS has as valid: who announces datasets compares them. Protection ends by
    that too, so DBS comes first. What DBS does not have as valid needs nothing.
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
    rucio.detach_files(block.dbs_block_name, lfns)
    deleted = in_parallel(sorted(rules), lambda share: sum(rucio.delete_rule(rule) for rule in share)) if rules else 0
    return {"done": len(lfns), "of": len(lfns), "deleted": deleted}
