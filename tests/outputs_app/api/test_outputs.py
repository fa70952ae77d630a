"""Blocks and effects: what came out, what is still owed to DBS and Rucio, and trying again."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from outputs_app.models import (
    BlockStatus,
    EffectState,
)
from tests.support.cases import in_one_test
from tests.support.problems import problem
from tests.support.rows import new_block, new_effect
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db


def test_a_block_tells_its_progress_members_and_rules(reader: APIClient) -> None:
    block = new_block(units=3, done=2)
    (line,) = reader.get("/api/v1/blocks").json()["results"]
    assert (line["id"], line["work_units"], line["request_name"]) == (str(block.pk), "2/3", block.workflow.request_id)
    body = reader.get(f"/api/v1/blocks/{block.pk}").json()
    assert body["work_units"] == "2/3"
    assert body["completed_work_units"] == [{"round": 0, "name": "mg_000000"}, {"round": 0, "name": "mg_000001"}]
    assert body["source_rule_ids"] == {f"/store/{block.pk}/{n}.root": f"rule{n}" for n in (0, 1)}


def test_blocks_are_filtered(reader: APIClient) -> None:
    one = new_block(status=BlockStatus.FAILED)
    new_block(dataset_name="/Other/Era-v1/AOD", dbs_block_name="/Other/Era-v1/AOD#1")

    def found(**query: Any) -> list[str]:
        return [row["id"] for row in reader.get("/api/v1/blocks", query).json()["results"]]

    assert len(found()) == 2
    assert found(status="failed,invalidated") == found(request=one.workflow.request_id) == [str(one.pk)]
    assert found(workflow=one.workflow_id) == found(search=one.dbs_block_name[-12:]) == [str(one.pk)]
    assert len(found(dataset="/Other/Era-v1/AOD")) == 1


def test_effects_are_listed_newest_first_and_filtered(reader: APIClient) -> None:
    pending, dead, done = new_effect(), new_effect(EffectState.DEAD, last_error="503"), new_effect(EffectState.DONE)

    def found(**query: Any) -> list[int]:
        return [row["id"] for row in reader.get("/api/v1/effects", query).json()["results"]]

    assert found() == [done.pk, dead.pk, pending.pk]
    assert found(open="true") == [dead.pk, pending.pk]
    assert found(open="false") == [done.pk]
    assert found(state="dead,refused") == found(request=dead.request.request_name) == [dead.pk]
    assert found(kind="dbs_block") == []
    assert found(ordering="id") == [pending.pk, dead.pk, done.pk]


def test_an_effect_tells_what_it_waits_for(reader: APIClient) -> None:
    first, second = new_effect(), new_effect(payload={"rse": "T1"})
    second.depends_on.add(first)
    body = reader.get(f"/api/v1/effects/{second.pk}").json()
    assert (body["depends_on"], body["payload"]) == ([first.pk], {"rse": "T1"})


@pytest.mark.parametrize("state", [EffectState.REFUSED, EffectState.DEAD])
def test_a_refused_or_dead_effect_is_revived_with_its_block_and_audited(operator: APIClient, state: EffectState) -> None:
    block = new_block(units=1, done=1, status=BlockStatus.FAILED, sealed_at=timezone.now())
    effect = new_effect(state, block=block, first_failed_at=timezone.now(), next_attempt_at=timezone.now() + timedelta(days=1))

    for _ in range(2):
        response = operator.post(f"/api/v1/effects/{effect.pk}/retry", {"reason": "Rucio is back"})
        assert (response.status_code, response.json()["state"]) == (202, "pending")

    effect.refresh_from_db()
    block.refresh_from_db()
    assert effect.first_failed_at is None
    assert effect.next_attempt_at <= timezone.now()
    assert block.status == BlockStatus.OPEN
    entry = AuditEntry.objects.filter(action="effect_retry").last()
    assert entry is not None
    assert (entry.actor, entry.target, entry.reason, entry.evidence) == ("olga", effect.key, "Rucio is back", {"old": state})


def test_an_effect_that_runs_just_now_goes_on(operator: APIClient) -> None:
    effect = new_effect(EffectState.CLAIMED, claimed_by="worker:1")
    response = operator.post(f"/api/v1/effects/{effect.pk}/retry", {"reason": "r"})
    assert (response.status_code, response.json()["state"], response.json()["claimed_by"]) == (202, "claimed", "worker:1")


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "r", "now": True}, {"reason": ["r"]}], ids=str)
def test_a_retry_without_a_proper_reason_is_400(operator: APIClient, body: dict[str, Any]) -> None:
    effect = new_effect(EffectState.DEAD)
    problem(operator.post(f"/api/v1/effects/{effect.pk}/retry", body), 400, "invalid")
    effect.refresh_from_db()
    assert effect.state == EffectState.DEAD


@in_one_test(
    "query",
    ["blocks?status=odd", "blocks?workflow=x", "blocks?search=%00", "blocks?ordering=failure_context", "effects?state=odd",
     "effects?kind=odd", "effects?block=1", "effects?request=%00", "effects?page_size=x", "effects?cursor=%F0%9F%98%80"],
)  # fmt: skip
def test_a_wrong_query_is_400(reader: APIClient, query: str) -> None:
    assert reader.get(f"/api/v1/{query}").status_code == 400


def test_what_is_not_there_is_404(operator: APIClient) -> None:
    huge = 10**40
    for path in (f"blocks/{uuid.uuid4()}", "blocks/1", "effects/999999", f"effects/{huge}", "effects/-1", "effects/x"):
        problem(operator.get(f"/api/v1/{path}"), 404, "not_found")
    for pk in (999999, huge):
        problem(operator.post(f"/api/v1/effects/{pk}/retry", {"reason": "r"}), 404, "not_found")
