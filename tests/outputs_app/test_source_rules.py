"""Source rules end when somebody else keeps the files: at the later of the tape rule's OK and the block's validation."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from outputs_app.effects import HANDLERS
from outputs_app.models import BlockStatus, BlockValidation, Effect, EffectKind, EffectState, ProcessingBlock, Validity
from outputs_app.source_rules import source_rules_look
from tests.support.rows import new_block
from wms2.adapters import factory
from wms2.adapters.rucio_types import RuleState
from wms2.conf import conf
from wms2.errors import AwaitsPerson, ServiceUnavailable

pytestmark = pytest.mark.django_db
NOW = timezone.now


@pytest.fixture(name="rucio")
def _rucio(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What Rucio says is OK, and how often it was asked."""
    said = SimpleNamespace(ok=set(), asked=[], silent=False)

    def block_rules_ok(comment: str) -> set[str]:
        said.asked.append(comment)
        if said.silent:
            raise ServiceUnavailable("rucio", "block_rules_ok", "no answer")
        return said.ok

    monkeypatch.setattr(factory, "rucio", lambda: SimpleNamespace(block_rules_ok=block_rules_ok))
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
    assert source_rules_look() == 0
    rucio.ok = {"tape"}
    assert source_rules_look() == 1
    assert asked(block)
    assert source_rules_look() == 0, "it is asked for once"
    assert len(rucio.asked) == 2, "one call a request, none when nothing waits"


def test_they_end_only_when_the_block_is_validated(rucio, block: ProcessingBlock) -> None:
    BlockValidation.objects.update(validated_at=None)
    rucio.ok = {"tape"}
    assert source_rules_look() == 0
    assert not asked(block)


def test_a_silent_rucio_ends_nothing(rucio, block: ProcessingBlock) -> None:
    rucio.silent = True
    assert source_rules_look() == 0
    assert not asked(block)


def test_they_are_kept_by_setting(rucio, block: ProcessingBlock, monkeypatch) -> None:
    monkeypatch.setenv("WMS2_SOURCE_RULE_CLEANUP", "keep")
    conf.cache_clear()
    rucio.ok = {"tape"}
    assert source_rules_look() == 0
    assert (asked(block), rucio.asked) == (False, [])


def test_days_are_counted_from_the_later_of_both(rucio, block: ProcessingBlock, monkeypatch) -> None:
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS", "3")
    conf.cache_clear()
    ProcessingBlock.objects.update(tape_ok_at=NOW() - timedelta(days=5))
    assert source_rules_look() == 0, "validated yesterday"
    BlockValidation.objects.update(validated_at=NOW() - timedelta(days=5))
    ProcessingBlock.objects.update(tape_ok_at=NOW() - timedelta(days=2))
    assert source_rules_look() == 0, "on tape since two days"
    ProcessingBlock.objects.update(tape_ok_at=NOW() - timedelta(days=4))
    assert source_rules_look() == 1


@pytest.mark.parametrize(
    ("days", "given_up", "ends"), [("0", False, False), ("1", False, True), ("30", False, False), ("1", True, False)]
)
def test_where_no_tape_rule_is_wanted_they_end_after_days_or_never(rucio, monkeypatch, days, given_up, ends) -> None:
    """Nor where an operator discarded the tape rule: nothing else is known to keep the files."""
    monkeypatch.setenv("WMS2_SOURCE_RULE_DAYS_WITHOUT_TAPE", days)
    conf.cache_clear()
    block = new_block(units=1, done=1, status=BlockStatus.ARCHIVED, no_tape="none is wanted", sealed_at=NOW())
    validate(block, days_ago=2)
    state = EffectState.DISCARDED if given_up else EffectState.DONE
    Effect.objects.create(request=block.workflow.request, block=block, kind=EffectKind.RUCIO_TAPE, key="tape", state=state)
    source_rules_look()
    assert asked(block) is ends
    assert rucio.asked == []


@pytest.mark.parametrize(("locks", "valid", "ends"), [(3, 3, True), (2, 3, False), (2, 2, True)])
def test_they_stay_while_the_tape_rule_has_not_every_valid_file(rucio, monkeypatch, locks, valid, ends) -> None:
    """A rule is OK as soon as all that Rucio has in its block is there: less than ours, if files were lost from the block."""
    block = new_block(units=3, done=3, status=BlockStatus.ARCHIVED, tape_rule_id="tape", sealed_at=NOW())
    files = list(block.files.order_by("id"))
    assert len(files) == 3
    for file in files[valid:]:
        type(file).objects.filter(pk=file.pk).update(validity=Validity.INVALID)
    block.files.update(rule_id="")  # what deletes them is tried with the real Rucio
    rule = SimpleNamespace(state=RuleState.OK, locks_ok=locks, expires_at=None)
    fake = SimpleNamespace(rule=lambda _: rule, delete_rule=lambda _: True)
    monkeypatch.setattr(factory, "rucio", lambda: fake)
    effect = Effect.objects.create(request=block.workflow.request, block=block, kind=EffectKind.RUCIO_UNPROTECT, key="end")
    if ends:
        HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect)
    else:
        with pytest.raises(AwaitsPerson, match="2 of 3 files"):
            HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect)


@pytest.mark.parametrize(
    ("ends_in", "kept", "why"),
    [
        (timedelta(minutes=59), 2, "ends at"),
        (None, 1, "1 of 2 files"),
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
    rule = SimpleNamespace(state=RuleState.OK, locks_ok=400, expires_at=ends_in and NOW() + ends_in)
    told = {(block.dbs_block_name, "disk"): kept}
    fake = SimpleNamespace(rule=lambda _: rule, files_kept=lambda *of: told[of])
    monkeypatch.setattr(factory, "rucio", lambda: fake)
    effect = Effect.objects.create(request=block.workflow.request, block=block, kind=EffectKind.RUCIO_UNPROTECT, key="end")
    if why:
        with pytest.raises(AwaitsPerson, match=why):
            HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect)
    else:
        assert HANDLERS[EffectKind.RUCIO_UNPROTECT].call(effect) == {"deleted": 0}


def test_many_blocks_are_looked_at_by_as_many_statements_as_one(rucio, django_assert_max_num_queries) -> None:
    for number in range(6):
        block = new_block(units=1, done=1, status=BlockStatus.ARCHIVED, tape_rule_id=f"tape{number}", sealed_at=NOW())
        validate(block)
    rucio.ok = {f"tape{number}" for number in range(6)}
    with django_assert_max_num_queries(6 * 6 + 4):  # some for each request, however many blocks it has
        assert source_rules_look() == 6
