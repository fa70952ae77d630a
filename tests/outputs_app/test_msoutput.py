"""Who does tape is one choice: MSOutput places and WMS2 keeps files at their source until that is done, or WMS2 does both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from outputs_app.blocks.placements import placement_set
from outputs_app.effects.executor import effects_run_due
from outputs_app.effects.source_rules import source_rules_check
from outputs_app.models import (
    BlockStatus,
    BlockValidation,
    Effect,
    EffectKind,
    OutputDataset,
    Placement,
    ProcessingBlock,
)
from tests.support.adapters import adapters_forget
from tests.support.neighbours import MSOutput, RuleCleaner
from tests.support.owed_to_rucio import DISK, TAPE, complete, rules, run
from tests.support.rucio import APPROVED_TAPE, settle
from wms2.conf import conf

pytestmark = [pytest.mark.django_db, pytest.mark.rucio, pytest.mark.xdist_group("storage elements in Rucio")]
OTHER_TAPE = "T1_US_FNAL_Tape"


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"WMS2_{name.upper()}", value)
    conf.cache_clear()
    adapters_forget()


@pytest.mark.parametrize(
    ("follows", "chosen", "places"), [("", "", False), ("1", "", True), ("1", "wms2", False), ("", "msoutput", True)]
)
def test_an_installation_that_follows_reqmgr2_begins_with_msoutput(monkeypatch, follows, chosen, places) -> None:
    settings(monkeypatch, reqmgr2_follow=follows, team="wms2", output_placement=chosen)
    assert conf().msoutput_places is places


def test_source_rules_stay_until_msoutputs_rule_has_every_file_on_tape(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(monkeypatch, output_placement="msoutput", source_rule_days="0", source_rule_days_without_tape="0")
    placement_set(row=Placement(), tier="GEN-SIM", disk_expression="T1_US_FNAL_Disk", actor="o", reason="ignored meanwhile")
    block = complete(DISK, DISK)
    container = block.dataset.name
    assert MSOutput(admin).place(container, TAPE) == "", "it is not in Rucio yet"
    assert set(run().values()) == {"done"}
    block.refresh_from_db()
    assert (block.status, block.no_tape) == (BlockStatus.ARCHIVED, "none is wanted: MSOutput places outputs")
    assert not Effect.objects.filter(kind=EffectKind.RUCIO_DISK).exists()
    assert rules(admin, container) == []
    assert [rule["id"] for rule in rules(admin, block.dbs_block_name)] == [block.source_rule_id]
    BlockValidation.objects.create(block=block, asked_at=timezone.now(), validated_at=timezone.now() - timedelta(days=90))

    source_rules_check()
    assert not Effect.objects.filter(kind=EffectKind.RUCIO_UNPROTECT).exists(), "nothing else keeps the files, however long ago"
    tape = MSOutput(admin).place(container, TAPE)
    source_rules_check()
    assert not Effect.objects.filter(kind=EffectKind.RUCIO_UNPROTECT).exists(), "on their way to tape"
    settle(admin, [tape])
    assert RuleCleaner(admin).clean(container) == []
    source_rules_check()
    assert run()["rucio_unprotect"] == "done"
    assert rules(admin, block.dbs_block_name) == []
    assert f"rule {tape} of wmcore_output at {TAPE}" in Effect.objects.get(kind=EffectKind.RUCIO_UNPROTECT).result["kept_by"]
    assert [rule["id"] for rule in rules(admin, container)] == [tape]


def test_a_tape_rule_that_ends_again_keeps_nothing(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """WMCore's rule cleaner ends what is of its account, the rule of a request that was rejected say."""
    settings(monkeypatch, output_placement="msoutput", source_rule_days="0")
    block = complete(DISK)
    run()
    BlockValidation.objects.create(block=block, asked_at=timezone.now(), validated_at=timezone.now())
    tape = MSOutput(admin, account="wma_prod").place(block.dataset.name, TAPE)
    settle(admin, [tape])
    source_rules_check()
    assert RuleCleaner(admin).clean(block.dataset.name) == [tape]
    assert run()["rucio_unprotect"] == "pending"
    assert "so the source rules stay" in Effect.objects.get(kind=EffectKind.RUCIO_UNPROTECT).last_error
    assert [rule["rse_expression"] for rule in rules(admin, block.dbs_block_name)] == [DISK]


def test_a_container_that_msoutput_has_on_tape_gets_no_second_copy(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(monkeypatch, output_placement="wms2")
    block = complete(DISK)
    Effect.objects.filter(kind=EffectKind.RUCIO_TAPE).update(next_attempt_at=timezone.now() + timedelta(days=1))
    effects_run_due(owner="test", limit=20)
    tape = MSOutput(admin).place(block.dataset.name, OTHER_TAPE)
    assert set(run().values()) == {"done"}
    block.refresh_from_db()
    assert (block.status, block.tape_rule_id) == (BlockStatus.ARCHIVED, "")
    assert block.no_tape == f"rule {tape} of wmcore_output has it at {OTHER_TAPE}"
    assert [rule["rse_expression"] for rule in rules(admin, block.dbs_block_name)] == [DISK]


def test_a_tape_that_is_closed_for_output_is_drawn_again_before_the_first_rule(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(monkeypatch, output_placement="wms2")
    block = complete(DISK)
    OutputDataset.objects.update(tape_rse=APPROVED_TAPE)
    assert set(run().values()) == {"done"}
    block.refresh_from_db()
    (rule,) = (rule for rule in rules(admin, block.dbs_block_name) if rule["id"] != block.source_rule_id)
    assert block.dataset.tape_rse == rule["rse_expression"] and rule["rse_expression"] in (TAPE, OTHER_TAPE)
    # its answer was lost, and the tape is closed meanwhile: the rule is found
    ProcessingBlock.objects.update(status=BlockStatus.COMPLETE, tape_rule_id="")
    settings(monkeypatch, tape_rse_expression=APPROVED_TAPE)
    Effect.objects.filter(kind=EffectKind.RUCIO_TAPE).update(state="pending")
    assert set(run().values()) == {"done"}
    block.refresh_from_db()
    assert (block.tape_rule_id, len(rules(admin, block.dbs_block_name))) == (rule["id"], 2)
