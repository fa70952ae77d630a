"""Outputs in the admin: what is owed and when, and whose failures a block counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from outputs_app.models import Effect, EffectKind, EffectState, ProcessingBlock
from tests.support.html import text
from tests.support.rows import request_row
from tests.support.scene import Scene
from tests.support.web_clients import built, staff

__all__ = ["built", "staff"]
pytestmark = pytest.mark.django_db
LIST = "/admin/outputs_app/effect/"


def effect(state: EffectState, **fields: Any) -> Effect:
    soon = timezone.now() + timedelta(minutes=3, seconds=30)
    return Effect.objects.create(
        request=request_row(), kind=EffectKind.RUCIO_TAPE, key=f"tape:{state}", state=state, next_attempt_at=soon, **fields
    )


def listed(client: Client) -> str:
    return text(client.get(LIST).content.decode(), "result_list")


def test_an_effect_that_is_to_be_done_tells_its_next_attempt(staff: Client) -> None:
    row = effect(EffectState.PENDING)
    assert "in 3 min –" in listed(staff)
    assert f"{row.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC" in text(staff.get(f"{LIST}{row.pk}/change/").content.decode())


def test_an_effect_that_is_done_tells_when_and_no_next_attempt(staff: Client) -> None:
    row = effect(EffectState.DONE, done_at=timezone.now() - timedelta(hours=2))
    assert "– 2 h ago" in listed(staff)
    assert "Next attempt at: – " in text(staff.get(f"{LIST}{row.pk}/change/").content.decode())


@pytest.mark.parametrize("state", [EffectState.REFUSED, EffectState.DEAD])
def test_an_effect_that_only_a_person_brings_on_has_no_next_attempt(staff: Client, state: EffectState) -> None:
    effect(state)
    assert "in 3 min" not in listed(staff)


def test_a_blocks_page_says_that_failed_attempts_are_counted(staff: Client, built: Scene) -> None:
    block = ProcessingBlock.objects.filter(workflow=built.active.workflow).first()
    assert block is not None
    said = text(staff.get(f"/admin/outputs_app/processingblock/{block.pk}/change/").content.decode())
    assert "Failed attempts at DBS or Rucio: 0" in said
    assert "Last failed attempt at DBS or Rucio:" in said
    assert "DBS block name:" in said


def test_a_list_of_blocks_has_the_last_error_beside_the_name(staff: Client, built: Scene) -> None:
    ProcessingBlock.objects.update(rucio_last_error="no such RSE")
    said = text(staff.get("/admin/outputs_app/processingblock/").content.decode(), "result_list")
    assert said.index("Rucio last error") < said.index("Workflow")
    assert "no such RSE" in said
