"""Calls to Rucio: blocks, replicas, rules on files and on tape."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.db.models import QuerySet

from outputs_app.effects.handler import (
    RULE_ACTIVITY,
    Result,
    block_of,
    by_rse,
    dataset_of,
    handles,
    in_parallel,
    rule_comment,
    rule_there,
    unit_files,
)
from outputs_app.effects.time_slices import TimeSlice
from outputs_app.models import BlockStatus, Effect, EffectKind, OutputDataset, OutputFile, ProcessingBlock, Validity
from outputs_app.states import blocks_become
from wms2.adapters import factory
from wms2.adapters.rucio_types import RucioFile, RuleInfo, RuleState
from wms2.conf import conf
from wms2.errors import AwaitsPerson, ServiceRejected
from wms2.runtime import clock
from wms2.runtime.sql import sql_rows
from wms2.web.formatting import counted

#: Rules that are deleted between two records of what is done.
_PORTION = 50
#: A rule on disk may have a lifetime of days; one that ends sooner was deleted, or is over: it keeps nothing.
_DYING = timedelta(days=1)
#: Whose rules on input end with the request that reads it.
_TRANSFEROR = "wmcore_transferor"


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
    for rse, there in by_rse(files).items():
        factory.rucio().register_files(rse, block.dbs_block_name, [RucioFile(f.lfn, f.size_bytes, f.adler32) for f in there])
    return {"files": len(files)}


def _record_protected(effect: Effect, result: Result) -> None:
    rules: dict[str, str] = result["rules"]
    sql_rows(
        "UPDATE output_files f SET rule_id = v.rule FROM unnest(%s::text[], %s::text[]) AS v (lfn, rule)"
        " WHERE f.lfn = v.lfn AND f.block_id = %s",
        [list(rules), list(rules.values()), block_of(effect).pk],
    )


@handles(EffectKind.RUCIO_PROTECT, _record_protected)
def _rucio_protect(effect: Effect) -> Result:
    rules: dict[str, str] = {}
    for rse, files in by_rse(unit_files(effect)).items():
        lfns = [file.lfn for file in files]
        rules |= factory.rucio().protect_files(rse, lfns, comment=rule_comment(effect), activity=RULE_ACTIVITY)
    return {"rules": rules}


@handles(EffectKind.RUCIO_BLOCK_CLOSE)
def _rucio_block_close(effect: Effect) -> Result:
    factory.rucio().close_block(block_of(effect).dbs_block_name)
    return {"block": block_of(effect).dbs_block_name}


@handles(
    EffectKind.RUCIO_TAPE,
    lambda effect, result: blocks_become(
        ProcessingBlock.objects.filter(pk=block_of(effect).pk), BlockStatus.ARCHIVED, tape_rule_id=result.get("rule_id", ""),
        no_tape=result.get("no_tape", ""), tape_ok_at=None, rucio_last_error="",
    ),
)  # fmt: skip
def _rucio_tape(effect: Effect) -> Result:
    block = block_of(effect)
    if "no_tape" in effect.payload:  # as it was decided when the block was complete: a repeat decides alike
        return {"no_tape": effect.payload["no_tape"]}
    rucio = factory.rucio()
    rules = rucio.tape_rules_over(block.dbs_block_name, block.dataset_name)
    others = [rule for rule in rules if rule.account != conf().rucio_account]
    if others:  # one copy on tape is enough
        return {"no_tape": f"rule {others[0].rule_id} of {others[0].account} has it at {others[0].rse_expression}"}
    ours = [rule.rse_expression for rule in rules if rule.name == block.dbs_block_name]  # of an answer that was lost
    rse = ours[0] if ours else _tape_rse(block)
    return {"rule_id": rucio.tape_rule(block.dbs_block_name, rse, comment=rule_comment(effect)), "rse": rse}


def _tape_rse(block: ProcessingBlock) -> str:
    """The dataset's. One that has left the expression, closed for output, is drawn again unless a block of the dataset is there.

    The choice is stored before the rule is asked for: a repeated call must not choose another tape.
    """
    rucio, expression, stored = factory.rucio(), conf().tape_rse_expression, block.dataset.tape_rse
    if stored and (block.dataset.blocks.exclude(tape_rule_id="").exists() or stored in rucio.rses(expression)):
        return stored
    rse = rucio.choose_tape_rse(expression, key=block.dataset_name)
    OutputDataset.objects.filter(pk=block.dataset_id, tape_rse=stored).update(tape_rse=rse)
    return OutputDataset.objects.values_list("tape_rse", flat=True).get(pk=block.dataset_id)


@handles(
    EffectKind.RUCIO_DISK,
    lambda effect, result: OutputDataset.objects.filter(pk=effect.payload["dataset_id"]).update(disk_rule_id=result["rule_id"]),
)
def _rucio_disk(effect: Effect) -> Result:
    """The container's rule as it was decided when its first block was complete; blocks that come later are under it too."""
    wanted = effect.payload
    rule_id = factory.rucio().disk_rule(
        dataset_of(effect).name, wanted["expression"], rule_comment(effect), wanted["activity"] or RULE_ACTIVITY,
        copies=wanted["copies"], lifetime_seconds=wanted["days"] * 86_400 or None,
    )  # fmt: skip
    return {"rule_id": rule_id}


@handles(EffectKind.RUCIO_SOURCE_BLOCK)
def _rucio_source_block(effect: Effect) -> Result:
    """One rule for a block whose files all lie at its origin, in place of theirs. Only where Rucio counts every file there, or
    it would copy them; and theirs go only when it is OK and keeps each of them. Else both stay: that protects as well."""
    block, rucio = block_of(effect), factory.rucio()
    name, rse, files = block.dbs_block_name, block.origin_rse, block.files.filter(validity=Validity.VALID).order_by("id")
    rule = rule_there(block.source_rule_id) if block.source_rule_id else None
    if rule is None or rule.expires_at is not None:
        if not rucio.block_locations([name])[name].get(rse):
            return {"kept": f"not every file is available at {rse}"}
        try:
            rule_id = rucio.block_rule(name, rse, rule_comment(effect), RULE_ACTIVITY)
        except ServiceRejected as error:
            return {"kept": str(error)}
        ProcessingBlock.objects.filter(pk=block.pk).update(source_rule_id=rule_id)  # before any other is deleted
        rule = rucio.rule(rule_id)
    if rule.state is not RuleState.OK or rule.expires_at is not None:
        return {"kept": f"rule {rule.rule_id} is {rule.state}, its end {rule.expires_at}"}
    if missing := _without_rule(block, rule):
        return {"kept": f"rule {rule.rule_id} does not keep {missing}"}
    return {"deleted": _delete_file_rules(effect, files)}


@handles(
    EffectKind.RUCIO_UNPROTECT,
    lambda effect, result: ProcessingBlock.objects.filter(pk=block_of(effect).pk).update(source_rule_id=""),
)
def _rucio_unprotect(effect: Effect) -> Result:
    """Delete the rules at the source: the block's files are safe elsewhere, or no longer wanted.

    Raises:
        AwaitsPerson: the rule that keeps them from now on is not OK over all of them, even if it was before.
    """
    block, rucio = block_of(effect), factory.rucio()
    if block.status == BlockStatus.INVALIDATED and not block.source_rule_id:  # taken back as a whole, and its rules with it
        return {"deleted": 0}
    why, state, tapes = "no rule keeps its files elsewhere", "unkept", rucio.tapes()
    for keeps in [block.tape_rule_id] if block.tape_rule_id else _rules_of_others(block, tapes):
        rule = rucio.rule(keeps)
        found = _why_not(block, rule, tapes)
        if not found:
            break
        why, state = f"rule {keeps} {found}", rule.state
    else:
        raise AwaitsPerson("rucio", "unprotect", f"{why}, so the source rules stay", state)
    deleted = _delete_file_rules(effect, block.files.order_by("id"))
    deleted += rucio.delete_rule(block.source_rule_id) if block.source_rule_id else 0
    return {"deleted": deleted, "kept_by": f"rule {keeps} of {rule.account} at {rule.rse_expression}"}


def _rules_of_others(block: ProcessingBlock, tapes: Collection[str]) -> list[str]:
    """Without a tape rule of ours: other rules that keep the block, on tape first; on disk where the setting allows it."""
    locks = factory.rucio().blocks_kept([block.dbs_block_name])[block.dbs_block_name]
    disk, enough = block.dataset.disk_rule_id, conf().source_rule_days_without_tape
    found = {lock.rule_id: None for lock in sorted(locks, key=lambda lock: lock.rse not in tapes) if enough or lock.rse in tapes}
    found |= {disk: None} if disk and enough else {}
    return [rule for rule in found if rule != block.source_rule_id]


def _why_not(block: ProcessingBlock, rule: RuleInfo, tapes: Collection[str]) -> str:
    """Why the rule is not enough to end those at the source, in words; empty if it is."""
    if rule.account == _TRANSFEROR:
        return "is MSTransferor's, which ends with the request that reads the block"
    may_end = rule.rule_id == block.dataset.disk_rule_id  # it was given a lifetime by an operator
    if rule.expires_at is not None and not (may_end and rule.expires_at > clock.now() + _DYING):
        return f"ends at {rule.expires_at:%F %T}"
    if rule.state is not RuleState.OK:
        return f"is {rule.state}"
    # a rule over several RSEs may have some files on disk alone, and the RSE of one may be on tape no more
    on_disk = bool(conf().source_rule_days_without_tape)
    missing = _without_rule(block, rule, None if on_disk else tapes)
    return f"does not keep {missing}{'' if on_disk else ' on tape'}" if missing else ""


def _without_rule(block: ProcessingBlock, rule: RuleInfo, among: Collection[str] | None = None) -> str:
    """Valid files of the block that the rule, OK or not, has no lock for (``among`` these RSEs), in words; empty: none."""
    wanted = set(block.files.filter(validity=Validity.VALID).values_list("lfn", flat=True))
    missing = wanted - factory.rucio().files_kept(block.dbs_block_name, rule, among)
    return f"{len(missing)} of {counted(len(wanted), 'valid file')}, first {min(missing)}" if missing else ""


def _delete_file_rules(effect: Effect, files: QuerySet[OutputFile]) -> int:
    """In portions: a row that knows its rule is how a repeat finds it. How many there were still."""
    time_slice, deleted, rucio = TimeSlice(effect), int(effect.result.get("deleted", 0)), factory.rucio()
    while portion := list(files.exclude(rule_id="")[:_PORTION]):
        rules = [file.rule_id for file in portion]
        deleted += in_parallel(rules, lambda share: sum(rucio.delete_rule(rule) for rule in share))
        OutputFile.objects.filter(pk__in=[file.pk for file in portion]).update(rule_id="")
        time_slice.reported(deleted=deleted)
    return deleted
