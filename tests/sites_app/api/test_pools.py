"""Pools and schedds over REST: added, changed, checked, enabled, removed, with reasons."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from sites_app.models import Onboarding, Pool, Schedd, ScheddState, SystemicAlert
from tests.support.problems import problem
from tests.support.rows import pool_row, schedd_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
WHY = {"reason": "more room"}
NEW = {"name": "global:9620", "collector": "cm.example:9620", "file_system": "cephfs", **WHY}


def test_a_pool_and_its_schedd_are_added_and_shown(operator: APIClient, reader: APIClient) -> None:
    assert operator.post("/api/v1/pools", NEW).status_code == 201
    problem(operator.post("/api/v1/pools", NEW), 409, "invalid_transition")
    for field, wrong in (("collector", "no port"), ("token_dir", "tokens"), ("name", "a b")):
        problem(operator.post("/api/v1/pools", {**NEW, "name": "other", field: wrong}), 400, "invalid", field=field)
    problem(reader.post("/api/v1/pools", NEW), 403, "permission_denied")
    assert operator.post("/api/v1/pools/global:9620/schedds", {"name": "schedd@new", **WHY}).status_code == 202
    body = reader.get("/api/v1/schedds/schedd@new").json()
    assert (body["pool"], body["state"], body["onboardings"]) == ("global:9620", "discovered", [])
    assert reader.get("/api/v1/pools/global:9620").json()["file_system"] == "cephfs"
    assert [row["name"] for row in reader.get("/api/v1/schedds", {"pool": "global:9620"}).json()["results"]] == ["schedd@new"]
    assert set(AuditEntry.objects.values_list("action", "outcome")) == {
        ("pool_add", "done"), ("pool_add", "refused"), ("schedd_add", "done"), ("denied", "refused"),
    }  # fmt: skip


def test_a_schedd_is_enabled_only_when_its_checks_have_passed(operator: APIClient) -> None:
    schedd = schedd_row("schedd@new", state=ScheddState.DISABLED, onboarded_at=None, onboarding="version: HTCondor 9.0.1")
    path = "/api/v1/schedds/schedd@new"
    assert "HTCondor 9.0.1" in problem(operator.post(f"{path}/enable", WHY), 409, "invalid_transition")["detail"]
    assert operator.post(f"{path}/check", WHY).status_code == 202
    problem(operator.post(f"{path}/check", WHY), 409, "invalid_transition")
    problem(operator.post(f"{path}/remove", WHY), 409, "invalid_transition")
    Onboarding.objects.update(ended_at=timezone.now())
    Schedd.objects.filter(pk=schedd.pk).update(onboarded_at=timezone.now())
    for _ in range(2):
        assert operator.post(f"{path}/enable", WHY).json()["state"] == "enabled"


def test_limits_change_at_once_and_another_directory_has_to_be_checked(operator: APIClient) -> None:
    schedd_row("schedd@new")
    path = "/api/v1/schedds/schedd@new"
    assert operator.post(f"{path}/change", {"max_dagman_slots": 70, **WHY}).json()["max_dagman_slots"] == 70
    problem(operator.post(f"{path}/change", {"submit_root": "/other", **WHY}), 409, "invalid_transition")
    operator.post(f"{path}/disable", WHY)
    body = operator.post(f"{path}/change", {"submit_root": "/other", **WHY}).json()
    assert (body["submit_root"], body["onboarded_at"]) == ("/other", None)
    problem(operator.post(f"{path}/enable", WHY), 409, "invalid_transition")
    assert operator.post(f"{path}/remove", WHY).json()["name"] == "schedd@new"
    assert not Schedd.objects.exists()


def test_a_pool_is_changed_and_closed(operator: APIClient) -> None:
    pool_row("first", token_dir="/tokens")
    place = {"collector": "cm2.example:9618", "file_system": "nfs"}
    assert operator.post("/api/v1/pools/first/change", {**place, **WHY}).json()["token_dir"] == ""
    problem(operator.post("/api/v1/pools/first/remove", WHY), 409, "invalid_transition")
    assert operator.post("/api/v1/pools/first/disable", WHY).json()["state"] == "disabled"
    assert operator.post("/api/v1/pools/first/remove", WHY).json()["name"] == "first"
    assert not Pool.objects.exists()


def test_that_a_collector_is_silent_is_written_down_also_for_a_call_with_a_key(operator: APIClient) -> None:
    pool_row("far", collector="127.0.0.1:1")
    assert operator.post("/api/v1/pools/far/ask", WHY, HTTP_IDEMPOTENCY_KEY="k").status_code == 503
    assert Pool.objects.get(name="far").silent_since is not None
    assert AuditEntry.objects.filter(action="pool_ask", outcome="done").exists()


def test_alerts_that_are_over_are_listed_too(reader: APIClient) -> None:
    now = timezone.now()
    SystemicAlert.objects.create(holds=True, reason="over", began_at=now - timedelta(days=1), ended_at=now)
    SystemicAlert.objects.create(holds=False, reason="goes on", began_at=now)
    rows = reader.get("/api/v1/systemic-alerts").json()["results"]
    assert [(row["reason"], row["ended_at"] is None) for row in rows] == [("goes on", True), ("over", False)]
    assert reader.get(f"/api/v1/systemic-alerts/{rows[1]['id']}").json()["reason"] == "over"
    SystemicAlert.objects.create(pool="far", holds=True, reason="far away", began_at=now)
    reported = reader.get("/api/v1/lifecycle/status").json()
    assert [row["reason"] for row in reported["systemic_troubles"]] == ["far away", "goes on"]
    assert reported["systemic_trouble"] == reported["systemic_troubles"][0]
