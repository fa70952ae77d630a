"""Source rules end when somebody else keeps the files: at the later of the tape rule's OK and the block's validation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from outputs_app.effects import HANDLERS
from outputs_app.effects.requests import EffectRequest
from outputs_app.effects.source_rules import source_rules_check
from outputs_app.models import BlockStatus, BlockValidation, Effect, EffectKind, EffectState, ProcessingBlock, Validity
from tests.support.rows import new_block
from wms2.adapters import factory
from wms2.adapters.rucio_types import LockRow, RuleState
from wms2.conf import conf
from wms2.errors import AwaitsPerson, ServiceRejected, ServiceUnavailable

pytestmark = pytest.mark.django_db
NOW = timezone.now


@pytest.fixture(name="rucio")
def _rucio(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What Rucio says is OK, and how often it was asked."""
    said = SimpleNamespace(ok=set(), asked=[], silent=False, locks=[])

    def block_rules_ok(comment: str) -> set[str]:
        said.asked.append(comment)
        if said.silent:
            raise ServiceUnavailable("rucio", "block_rules_ok", "no answer")
        return said.ok

    def blocks_kept(blocks: list[str]) -> dict[str, list[LockRow]]:
        if said.silent:
            raise ServiceUnavailable("rucio", "blocks_kept", "no answer")
        return {block: [LockRow(name=block, rse=rse, rule_id=rule, state="OK") for rse, rule in said.locks] for block in blocks}

    answers = {"block_rules_ok": block_rules_ok, "blocks_kept": blocks_kept, "tapes": lambda: {"T1_X_Tape"}}
    monkeypatch.setattr(factory, "rucio", lambda: SimpleNamespace(**answers))
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS", "0")
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS_WITHOUT_TAPE", "0")
    conf.cache_clear()
    return said


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    """Archived, its tape rule made, its dataset VALID."""
    block = new_block(units=2, done=2, status=BlockStatus.ARCHIVED, tape_rule_id="tape", sealed_at=NOW())
    validate(block)
    return block


def validate(block: ProcessingBlock, days_ago: float = 1.0) -> None:
    validated_at = NOW() - timedelta(days=days_ago)
    BlockValidation.objects.update_or_create(block=block, defaults={"asked_at": validated_at, "validated_at": validated_at})


def asked(block: ProcessingBlock) -> bool:
    return Effect.objects.filter(block=block, kind=EffectKind.RUCIO_UNPROTECT).exists()


def test_they_end_when_the_tape_rule_is_ok_and_not_before(rucio, block: ProcessingBlock) -> None:
    rucio.ok = {"another"}
    assert source_rules_check() == 0
    rucio.ok = {"tape"}
    assert source_rules_check() == 1
    assert asked(block)
    assert source_rules_check() == 0, "it is asked for once"
    assert len(rucio.asked) == 2, "one call a request, none when nothing waits"


def test_they_end_only_when_the_block_is_validated(rucio, block: ProcessingBlock) -> None:
    BlockValidation.objects.update(validated_at=None)
    rucio.ok = {"tape"}
    assert source_rules_check() == 0
    assert not asked(block)


def test_a_silent_rucio_ends_nothing(rucio, block: ProcessingBlock) -> None:
    rucio.silent = True
    assert source_rules_check() == 0
    assert not asked(block)


def test_they_are_kept_by_setting(rucio, block: ProcessingBlock, monkeypatch) -> None:
    monkeypatch.setenv("WMS2_SOURCE_RULE_CLEANUP", "keep")
    conf.cache_clear()
    rucio.ok = {"tape"}
    assert source_rules_check() == 0
    assert (asked(block), rucio.asked) == (False, [])


def test_days_are_counted_from_the_later_of_both(rucio, block: ProcessingBlock, monkeypatch) -> None:
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS", "3")
    conf.cache_clear()
    ProcessingBlock.objects.update(tape_ok_at=NOW() - timedelta(days=5))
    assert source_rules_check() == 0, "validated yesterday"
    BlockValidation.objects.update(validated_at=NOW() - timedelta(days=5))
    ProcessingBlock.objects.update(tape_ok_at=NOW() - timedelta(days=2))
    assert source_rules_check() == 0, "on tape since two days"
    ProcessingBlock.objects.update(tape_ok_at=NOW() - timedelta(days=4))
    assert source_rules_check() == 1


@pytest.mark.parametrize(
    ("days", "locks", "ends"),
    [
        ("0", [], False),
        ("1", [], False),  # by days alone they would be the last rule that goes
        ("1", [("T2_DE", "source")], False),
        ("1", [("T2_DE", "disk")], True),
        ("0", [("T2_DE", "disk")], False),
        ("30", [("T2_DE", "disk")], False),
        ("0", [("T1_X_Tape", "msoutput")], True),
        ("30", [("T2_DE", "disk"), ("T1_X_Tape", "msoutput")], True),
    ],
)
@pytest.mark.parametrize("given_up", [False, True])
def test_without_a_tape_rule_of_ours_they_end_by_what_else_keeps_it(rucio, monkeypatch, days, locks, ends, given_up) -> None:
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS_WITHOUT_TAPE", days)
    conf.cache_clear()
    block = new_block(units=1, done=1, status=BlockStatus.ARCHIVED, no_tape="none", source_rule_id="source", sealed_at=NOW())
    validate(block, days_ago=2)
    state = EffectState.DISCARDED if given_up else EffectState.DONE
    Effect.objects.create(request=block.workflow.request, block=block, kind=EffectKind.RUCIO_TAPE, key="tape", state=state)
    rucio.silent, rucio.locks = True, locks
    source_rules_check()
    assert not asked(block)
    rucio.silent = False
    source_rules_check()
    assert asked(block) is ends
    assert rucio.asked == []


class RuleOfNames:
    """A Rucio with one rule, OK, which keeps the files of these names; what is deleted there is written down."""

    def __init__(self, kept: set[str], on_disk: Collection[str] = (), **rule: object) -> None:
        self.kept, self.on_disk, self.deleted = kept, on_disk, list[str]()
        about = {"rule_id": "disk", "account": "wms2", "rse_expression": "X", "locks_ok": len(kept)} | rule
        self.reported = SimpleNamespace(**{"state": RuleState.OK, "expires_at": None, "refused": None} | about)
        self.at = rule.get("at", {"T1_US_FNAL_Disk": True})

    def blocks_kept(self, blocks: list[str]) -> dict[str, list[LockRow]]:
        return {block: [] for block in blocks}

    def tapes(self) -> set[str]:
        return {"T1_X_Tape"}

    def rule(self, _: str) -> SimpleNamespace:
        return self.reported

    def files_kept(self, block: str, rule: SimpleNamespace, among: Collection[str] | None = None) -> set[str]:
        assert rule is self.reported and among in (None, self.tapes())
        return self.kept if among is None else self.kept.difference(self.on_disk)

    def block_locations(self, blocks: list[str]) -> dict[str, dict[str, bool]]:
        return dict.fromkeys(blocks, self.at)

    def block_rule(self, *_: str) -> str:
        if self.reported.refused:
            raise self.reported.refused
        return "source"

    def delete_rule(self, rule_id: str) -> bool:
        self.deleted.append(rule_id)
        return True


def new_effect(block: ProcessingBlock, kind: EffectKind) -> Effect:
    return Effect.objects.create(
        request=block.workflow.request, block=block, kind=kind, key="end", state=EffectState.CLAIMED, claim_epoch=1,
        claim_expires_at=NOW() + timedelta(minutes=5), claimed_by="test",
    )  # fmt: skip


def protected(valid: Sequence[bool]) -> tuple[ProcessingBlock, list[str]]:
    """An archived block with such files, each under a rule of its own, and their LFNs."""
    block = new_block(units=len(valid), done=len(valid), status=BlockStatus.ARCHIVED, tape_rule_id="tape", sealed_at=NOW())
    ProcessingBlock.objects.filter(pk=block.pk).update(origin_rse="T1_US_FNAL_Disk")
    files = list(block.files.order_by("id"))
    for number, (file, is_valid) in enumerate(zip(files, valid, strict=True)):
        file.rule_id, file.validity = f"rule{number}", Validity.VALID if is_valid else Validity.INVALID
        file.save()
    block.refresh_from_db()
    return block, [file.lfn for file in files]


@pytest.mark.parametrize(
    ("valid", "on_tape", "missing"),
    [
        ((True, True, True), (0, 1, 2), None),
        ((True, True, True), (0, 1), 2),
        ((True, True, False), (0, 1), None),
        ((False, True, True), (0, 1), 2),  # as many as are valid, but others
        ((True, True, True), (0, 1, 7, 8), 2),  # more than are ours
        ((True, True, True), (), 0),
    ],
)
@pytest.mark.parametrize("kind", [EffectKind.RUCIO_UNPROTECT, EffectKind.RUCIO_SOURCE_BLOCK])
def test_no_file_rule_ends_while_a_valid_file_is_not_kept_by_name(monkeypatch, kind, valid, on_tape, missing) -> None:
    """A rule is OK as soon as all that Rucio has in its block is there: that block may have lost files, and have others."""
    block, lfns = protected(valid)
    if kind == EffectKind.RUCIO_UNPROTECT:
        type(block).objects.update(source_rule_id="source")
        block.refresh_from_db()
    rucio = RuleOfNames({lfns[each] if each < len(lfns) else f"/store/strange{each}.root" for each in on_tape})
    monkeypatch.setattr(factory, "rucio", lambda: rucio)
    effect = new_effect(block, kind)
    if missing is None:
        HANDLERS[kind].call(effect)
        wanted = {f"rule{number}" for number, is_valid in enumerate(valid) if is_valid}
        assert set(rucio.deleted) >= wanted
        assert ("source" in rucio.deleted) is (kind == EffectKind.RUCIO_UNPROTECT), "the block's rule goes with the last of them"
        return
    if kind == EffectKind.RUCIO_UNPROTECT:
        with pytest.raises(AwaitsPerson, match="does not keep") as waits:
            HANDLERS[kind].call(effect)
        why = str(waits.value)
    else:
        why = HANDLERS[kind].call(effect)["kept"]
    assert lfns[missing] in why
    assert rucio.deleted == []
    assert [file.rule_id for file in block.files.order_by("id")] == [f"rule{number}" for number in range(len(valid))]


@pytest.mark.parametrize("disk_is_enough", [False, True])
def test_what_a_rule_keeps_on_disk_is_on_no_tape(monkeypatch, disk_is_enough) -> None:
    """The expression of another's rule has disks too, or the RSE of ours is no tape any more."""
    block, lfns = protected((True, True))
    rucio = RuleOfNames(set(lfns), on_disk=lfns[1:])
    monkeypatch.setattr(factory, "rucio", lambda: rucio)
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS_WITHOUT_TAPE", "1" if disk_is_enough else "0")
    conf.cache_clear()
    effect = new_effect(block, EffectKind.RUCIO_UNPROTECT)
    if disk_is_enough:
        assert HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect)["deleted"] == 2
        return
    with pytest.raises(AwaitsPerson, match=rf"does not keep 1 of 2 valid files, first {lfns[1]} on tape"):
        HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect)
    assert rucio.deleted == []


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"state": RuleState.REPLICATING}, "is REPLICATING"),
        ({"state": RuleState.STUCK}, "is STUCK"),
        ({"expires_at": NOW() + timedelta(minutes=59)}, "its end 20"),
        ({"refused": ServiceRejected("rucio", "block_rule", "the limit is used up", "InsufficientAccountLimit")}, "used up"),
        ({"at": {}}, "not every file is available"),
    ],
)
def test_files_keep_their_rules_where_the_blocks_is_not_as_good(monkeypatch, rule: dict[str, object], why: str) -> None:
    """Nothing waits for a person: that protects as well."""
    block, lfns = protected((True, True))
    rucio = RuleOfNames(set(lfns), **rule)
    monkeypatch.setattr(factory, "rucio", lambda: rucio)
    assert why in HANDLERS[EffectKind.RUCIO_SOURCE_BLOCK].call(new_effect(block, EffectKind.RUCIO_SOURCE_BLOCK))["kept"]
    assert rucio.deleted == []
    assert set(block.files.values_list("rule_id", flat=True)) == {"rule0", "rule1"}
    block.refresh_from_db()
    assert block.source_rule_id == ("" if {"refused", "at"} & rule.keys() else "source")


def test_no_rule_ends_before_the_blocks_is_made_or_left(rucio, block: ProcessingBlock) -> None:
    """Made afterwards it would stay for ever."""
    replacing = new_effect(block, EffectKind.RUCIO_SOURCE_BLOCK)
    Effect.objects.update(key=EffectRequest(EffectKind.RUCIO_SOURCE_BLOCK, block.pk).key)
    rucio.ok = {"tape"}
    assert source_rules_check() == 1
    ends = Effect.objects.get(kind=EffectKind.RUCIO_UNPROTECT)
    assert list(ends.depends_on.all()) == [replacing]


@pytest.mark.parametrize(
    ("ends_in", "kept", "why"),
    [
        (timedelta(minutes=59), 2, "ends at"),
        (None, 1, "does not keep 1 of 2 valid files"),
        (None, 2, ""),
        (timedelta(days=20), 2, ""),
    ],
)
def test_on_disk_alone_they_end_by_what_that_rule_keeps_of_the_block(monkeypatch, ends_in, kept, why) -> None:
    """It is on the whole container, so it has files of other blocks too; deleted, it is OK for another hour."""
    block = new_block(units=2, done=2, status=BlockStatus.ARCHIVED, no_tape="none is wanted", sealed_at=NOW())
    block.files.update(rule_id="")
    type(block.dataset).objects.update(disk_rule_id="disk")
    block.refresh_from_db()
    rucio = RuleOfNames({file.lfn for file in block.files.order_by("id")[:kept]} | {"/store/of_another_block.root"})
    rucio.reported.expires_at = ends_in and NOW() + ends_in
    monkeypatch.setattr(factory, "rucio", lambda: rucio)
    effect = new_effect(block, EffectKind.RUCIO_UNPROTECT)
    with pytest.raises(AwaitsPerson, match="no rule keeps its files elsewhere"):
        HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect)
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS_WITHOUT_TAPE", "1")
    conf.cache_clear()
    if why:
        with pytest.raises(AwaitsPerson, match=why):
            HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect)
    else:
        assert HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect) == {"deleted": 0, "kept_by": "rule disk of wms2 at X"}


def test_many_blocks_are_looked_at_by_as_many_statements_as_one(rucio, django_assert_max_num_queries) -> None:
    for number in range(6):
        block = new_block(units=1, done=1, status=BlockStatus.ARCHIVED, tape_rule_id=f"tape{number}", sealed_at=NOW())
        validate(block)
    rucio.ok = {f"tape{number}" for number in range(6)}
    with django_assert_max_num_queries(6 * 6 + 5):  # some for each request, however many blocks it has
        assert source_rules_check() == 6
