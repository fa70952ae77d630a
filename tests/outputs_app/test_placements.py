"""Which outputs go to tape and whose containers are placed on disk, by tier and campaign; changed by operators, audited."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from outputs_app.blocks.filling import blocks_register_sealed, blocks_seal_all
from outputs_app.blocks.placements import placement_of, placement_remove, placement_set
from outputs_app.effects import HANDLERS
from outputs_app.models import BlockStatus, Effect, EffectKind, Placement, ProcessingBlock
from requests_app.models import Request
from tests.support.rows import new_block
from wms2.checks import check_configuration
from wms2.conf import conf
from wms2.errors import InvalidTransition
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
BY = {"actor": "olga", "reason": "the collaboration says so"}


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    block = new_block(units=1, done=1)
    Request.objects.update(campaign="Run3Winter")
    return block


def decide(campaign: str = "", tier: str = "", **values: Any) -> None:
    placement_set(row=Placement(), campaign=campaign, tier=tier, **values, **BY)


def complete(block: ProcessingBlock) -> dict[str, dict[str, Any]]:
    """Kind -> payload of what is asked for it."""
    blocks_seal_all(workflow_id=block.workflow_id)
    request = block.workflow.request
    blocks_register_sealed(workflow_id=block.workflow_id, request_id=request.pk, request_epoch=1)
    return dict(Effect.objects.values_list("kind", "payload"))


def test_where_nothing_is_decided_blocks_go_to_tape_and_others_place_containers(block: ProcessingBlock) -> None:
    asked = complete(block)
    assert asked[EffectKind.RUCIO_TAPE] == {}
    assert EffectKind.RUCIO_DISK not in asked


@pytest.mark.parametrize(
    ("decided", "tape"),
    [
        ([("", "GEN-SIM", False)], False),
        ([("", "AODSIM", False)], True),
        ([("Run3Winter", "", False)], False),
        ([("Another", "GEN-SIM", False)], True),
        ([("Run3Winter", "", True), ("", "GEN-SIM", False)], True),
        ([("Run3Winter", "", True), ("Run3Winter", "GEN-SIM", False)], False),
    ],
)
def test_the_campaigns_own_decision_counts_before_the_tiers(block: ProcessingBlock, decided, tape: bool) -> None:
    for campaign, tier, value in decided:
        decide(campaign, tier, tape=value)
    assert placement_of(block).tape is tape


def test_a_tier_without_tape_is_archived_without_a_rule_and_says_why(block: ProcessingBlock) -> None:
    decide(tier="GEN-SIM", tape=False)
    complete(block)
    effect = Effect.objects.get(kind=EffectKind.RUCIO_TAPE)
    decide(tier="GEN-SIM", tape=True)  # a repeat decides alike, or a rule would be made that no row knows
    result = HANDLERS[EffectKind.RUCIO_TAPE].call(effect)
    HANDLERS[EffectKind.RUCIO_TAPE].record(effect, result)
    block.refresh_from_db()
    assert (block.status, block.tape_rule_id) == (BlockStatus.ARCHIVED, "")
    assert block.no_tape == "none is wanted: placement of any campaign, GEN-SIM"


def test_a_container_gets_its_rule_on_disk_once_when_its_first_block_is_registered(block: ProcessingBlock) -> None:
    decide(tier="GEN-SIM", disk_expression="rse_type=DISK", disk_copies=2, disk_days=30)
    asked = complete(block)
    wanted = {"dataset_id": block.dataset_id, "expression": "rse_type=DISK", "copies": 2, "days": 30, "activity": ""}
    assert asked[EffectKind.RUCIO_DISK] == wanted
    effect = Effect.objects.get(kind=EffectKind.RUCIO_DISK)
    assert set(effect.depends_on.values_list("kind", flat=True)) == {EffectKind.RUCIO_BLOCK_CLOSE, EffectKind.DBS_BLOCK}
    assert effect.block is None, "more blocks of the dataset bring no second one"


def test_decisions_are_audited_and_the_last_one_for_all_stays(block: ProcessingBlock) -> None:
    decide(tier="GEN-SIM", tape=False)
    decide(tier="GEN-SIM", tape=True)
    row = Placement.objects.get(tier="GEN-SIM")
    placement_remove(row=row, **BY)
    actions = list(AuditEntry.objects.order_by("id").values_list("action", "outcome"))
    assert actions == [("placement_set", "done"), ("placement_set", "done"), ("placement_remove", "done")]
    with pytest.raises(InvalidTransition, match="nothing else is decided"):
        placement_remove(row=Placement.objects.get_or_create(campaign="", tier="")[0], **BY)
    decide(campaign="Run3Winter")
    with pytest.raises(InvalidTransition, match="decided already"):
        placement_set(row=Placement.objects.get(campaign="Run3Winter"), **BY)
    with pytest.raises(InvalidTransition, match="greater than or equal to 1"):
        decide(disk_copies=0)


@pytest.mark.parametrize(
    ("follows", "chosen", "warned"), [("1", "", True), ("1", "msoutput", False), ("1", "wms2", False), ("", "", False)]
)
def test_who_follows_reqmgr2_and_has_not_chosen_who_places_is_warned(
    monkeypatch: pytest.MonkeyPatch, admin_client: Client, follows: str, chosen: str, warned: bool
) -> None:
    """With this release such an installation makes no tape and disk rules any more."""
    for name, value in {"REQMGR2_FOLLOW": follows, "TEAM": "wms2", "OUTPUT_PLACEMENT": chosen}.items():
        monkeypatch.setenv(f"WMS2_{name}", value)
    conf.cache_clear()
    assert ("wms2.W003" in {message.id for message in check_configuration()}) is warned
    decide()
    row = Placement.objects.get()
    for page in ("/admin/outputs_app/placement/", f"/admin/outputs_app/placement/{row.pk}/change/"):
        shown = admin_client.get(page).content.decode()
        assert ("MSOutput places outputs (WMS2_OUTPUT_PLACEMENT" in shown) is (warned or chosen == "msoutput"), page
        assert ("is not set, and ReqMgr2 is followed" in shown) is warned
