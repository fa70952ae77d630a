"""The pages of outputs: what is stuck at which step, one block, one dataset."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, ProcessingBlock
from tests.support.page_cost import shown
from tests.support.rows import new_block

pytestmark = pytest.mark.django_db


def owed(block: ProcessingBlock, state: EffectState, **fields: Any) -> Effect:
    request = block.workflow.request
    return Effect.objects.create(
        request=request, block=block, kind=EffectKind.DBS_BLOCK, key=f"{state}{block.pk}", state=state, **fields
    )


def test_what_is_stuck_comes_first_and_blocks_are_found_by_what_they_wait_for(operator: Client) -> None:
    stuck, filling, on_tape, waits = (new_block() for _ in range(4))
    owed(stuck, EffectState.REFUSED, last_error="DBS says no", first_failed_at=timezone.now() - timedelta(hours=1))
    owed(filling, EffectState.PENDING, last_error="DBS is slow", first_failed_at=timezone.now() - timedelta(hours=9))
    ProcessingBlock.objects.filter(pk=stuck.pk).update(status=BlockStatus.COMPLETE)
    archived = {"status": BlockStatus.ARCHIVED, "tape_rule_id": "rule1"}
    ProcessingBlock.objects.filter(pk=on_tape.pk).update(**archived, tape_ok_at=timezone.now())
    ProcessingBlock.objects.filter(pk=waits.pk).update(**archived, origin_rse="T1_US_FNAL_Disk")
    said = shown(operator, "/outputs/")
    assert said.index("DBS says no") < said.index("Owed to DBS and Rucio") and "DBS is slow" in said
    blocks = shown(operator, "/outputs/", "part-blocks")
    assert stuck.dbs_block_name in blocks and waits.dbs_block_name not in blocks
    listed = shown(operator, "/outputs/?tape=waits", "part-blocks")
    assert waits.dbs_block_name in listed and on_tape.dbs_block_name not in listed
    found = json.loads(operator.get("/outputs/?status=archived&rse=T1_US_FNAL_Disk&format=json").content)["blocks"]
    assert [row["dbs_block_name"] for row in found] == [waits.dbs_block_name]
    assert waits.dbs_block_name in operator.get("/outputs/?status=archived&format=csv").content.decode()
    wrong = operator.get("/outputs/?status=lost")
    assert (wrong.status_code, "Start again" in wrong.content.decode()) == (400, True)


def test_a_block_says_its_step_and_a_dataset_which_requests_make_it(operator: Client) -> None:
    block = new_block()
    owed(block, EffectState.DEAD, last_error="no answer")
    said = shown(operator, f"/outputs/blocks/{block.pk}/")
    assert "Step: Register block in DBS: dead, no answer" in said
    assert "Source rule one for each file" in said
    block.files.update(rule_id="")
    assert "Source rule none" in shown(operator, f"/outputs/blocks/{block.pk}/")
    type(block).objects.update(source_rule_id="of the block")
    assert "Source rule of the block" in shown(operator, f"/outputs/blocks/{block.pk}/")
    of_dataset = shown(operator, f"/outputs/datasets/?name={block.dataset_name}")
    assert block.dbs_block_name in of_dataset and block.workflow.request.request_name in of_dataset
    assert operator.get("/outputs/datasets/?name=/a/b/RAW").status_code == 404
