"""Differences from DBS and Rucio over REST: listed, repaired, accepted; datasets with their comparison; where outputs go."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from outputs_app.blocks.placements import placement_set
from outputs_app.models import Comparison, Drift, DriftKind, DriftState, EffectKind, EffectState, Placement
from tests.support.problems import problem
from tests.support.rows import drift_row, new_block, new_effect
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
WHY = {"reason": "checked"}


def test_differences_are_listed_and_filtered(reader: APIClient) -> None:
    block = new_block()
    invalid = drift_row(block)
    gone = drift_row(block, DriftKind.RULE_GONE, state=DriftState.GONE)
    stranger = drift_row(block, DriftKind.RULE_UNKNOWN, request=None, dataset=None, block=None)

    def found(**query: Any) -> list[int]:
        return [row["id"] for row in reader.get("/api/v1/drift", query).json()["results"]]

    assert found() == [stranger.pk, gone.pk, invalid.pk]
    assert found(state="unsettled", request=block.workflow.request_id) == found(kind="dbs_file_invalid") == [invalid.pk]
    assert found(dataset=block.dataset.name) == found(block=block.pk) == [gone.pk, invalid.pk]
    body = reader.get(f"/api/v1/drift/{invalid.pk}").json()
    assert (body["expected"], body["found"], body["dataset_name"]) == ("valid", "invalid", block.dataset.name)
    assert reader.get(f"/api/v1/drift/{stranger.pk}").json()["request_name"] is None


def test_a_difference_is_accepted_with_a_reason(operator: APIClient) -> None:
    row = drift_row(new_block())
    problem(operator.post(f"/api/v1/drift/{row.pk}/accept", {}), 400, "invalid")
    for _ in range(2):
        body = operator.post(f"/api/v1/drift/{row.pk}/accept", WHY).json()
        assert (body["state"], body["reason"]) == ("accepted", "checked")
    assert AuditEntry.objects.filter(action="drift_accept", outcome="done").count() == 2
    Drift.objects.update(state=DriftState.GONE)
    assert (
        "does not stand any more"
        in problem(operator.post(f"/api/v1/drift/{row.pk}/accept", WHY), 409, "invalid_transition")["detail"]
    )


def test_only_what_is_known_and_safe_is_repaired(operator: APIClient) -> None:
    block = new_block()
    invalid, open_ = drift_row(block), drift_row(block, DriftKind.RUCIO_BLOCK_OPEN, name=block.dbs_block_name)
    assert "no repair" in problem(operator.post(f"/api/v1/drift/{invalid.pk}/repair", WHY), 409, "invalid_transition")["detail"]
    assert (
        "No registration" in problem(operator.post(f"/api/v1/drift/{open_.pk}/repair", WHY), 409, "invalid_transition")["detail"]
    )
    effect = new_effect(
        EffectState.DONE, kind=EffectKind.RUCIO_BLOCK_CLOSE, block=block, request=block.workflow.request, attempts=3
    )
    other = new_effect(EffectState.DONE, kind=EffectKind.RUCIO_TAPE, block=block, request=block.workflow.request)
    for _ in range(2):
        assert operator.post(f"/api/v1/drift/{open_.pk}/repair", WHY).json()["state"] == "asked"
    effect.refresh_from_db()
    other.refresh_from_db()
    assert (effect.state, effect.attempts, other.state) == (EffectState.PENDING, 0, EffectState.DONE)
    assert AuditEntry.objects.filter(action="drift_repair", outcome="refused").count() == 2


def test_a_dataset_and_a_request_are_compared_now(operator: APIClient) -> None:
    block = new_block()
    name = block.workflow.request_id
    path = f"/api/v1/datasets/{block.dataset_id}"
    body = operator.get(path).json()
    assert (body["request_name"], body["compared_at"], body["comparison_error"]) == (name, None, None)
    assert (
        "None of its outputs"
        in problem(operator.post(f"/api/v1/requests/{name}/compare", WHY), 409, "invalid_transition")["detail"]
    )
    block.first_file_at = timezone.now()
    block.save()
    assert operator.post(f"/api/v1/requests/{name}/compare", WHY).status_code == 202
    Comparison.objects.update(due_at=None, result={"files": 7})
    body = operator.post(f"{path}/compare", WHY).json()
    assert body["comparison_due_at"] is not None
    (line,) = operator.get("/api/v1/datasets", {"request": name}).json()["results"]
    assert (line["name"], line["compared"]) == (block.dataset.name, {"files": 7})


def test_where_outputs_go_is_read(reader: APIClient) -> None:
    Placement.objects.get_or_create(campaign="", tier="")  # a migration's, which tests that commit take away
    placement_set(row=Placement(), campaign="Run3", tier="AOD", disk_expression="rse_type=DISK", actor="olga", reason="why")
    rows = reader.get("/api/v1/placements").json()["results"]
    assert [(row["campaign"], row["tier"], row["tape"], row["disk_expression"]) for row in rows] == [
        ("", "", True, ""),
        ("Run3", "AOD", True, "rse_type=DISK"),
    ]
    assert [row["tier"] for row in reader.get("/api/v1/placements", {"campaign": "Run3"}).json()["results"]] == ["AOD"]


def test_where_outputs_go_is_decided(operator: APIClient, reader: APIClient) -> None:
    base = Placement.objects.get_or_create(campaign="", tier="")[0]
    url = f"/api/v1/placements/{base.pk}"
    added = operator.post(
        f"{url}/copy", WHY | {"campaign": "Run3", "tier": "AOD", "tape": True, "disk_expression": "rse_type=DISK"}
    )
    assert added.status_code == 202, added.content
    assert (added.json()["tier"], added.json()["tape"], added.json()["disk_copies"]) == ("AOD", True, base.disk_copies)
    own = f"/api/v1/placements/{added.json()['id']}"
    changed = operator.post(f"{own}/change", WHY | {"disk_expression": "rse_type=DISK", "disk_copies": 2}).json()
    assert (changed["campaign"], changed["tape"], changed["disk_copies"]) == ("Run3", False, 2)
    assert operator.post(f"{own}/remove", WHY).json()["tier"] == "AOD"
    assert reader.get(own).status_code == 404
    problem(operator.post(f"{url}/remove", WHY), 409, "invalid_transition")
    actions = AuditEntry.objects.filter(target_type="placement", outcome="done").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["placement_set", "placement_set", "placement_remove"]
