"""Worker pools, shared resources and their leases over REST."""

from __future__ import annotations

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from tests.support.problems import problem
from wms2.errors import NoneFree
from wms2.models import AuditEntry, Resource, Worker
from wms2.work.resources import PLANNING, resource

pytestmark = pytest.mark.django_db


def test_a_pool_is_read_drained_sized_and_resumed(operator: APIClient, reader: APIClient) -> None:
    now = timezone.now()
    Worker.objects.create(name="celery@a", queues=["effects"], takes=["effects"], started_at=now, heartbeat_at=now)
    assert {row["queue"]: row["alive"] for row in reader.get("/api/v1/worker-pools").json()["results"]} == {
        "celery": 0, "effects": 1, "ticks": 0, "verbs": 0,
    }  # fmt: skip
    address = "/api/v1/worker-pools/effects"
    assert operator.post(f"{address}/drain", {"reason": "an update"}).json()["state"] == "draining"
    assert operator.post(f"{address}/drain", {"reason": "an update"}).status_code == 409
    sized = operator.post(f"{address}/size", {"desired": 3, "processes": 4, "reason": "more"}).json()
    assert (sized["desired"], sized["processes"], sized["alive"]) == (3, 4, 1)
    assert operator.post(f"{address}/resume", {"reason": "done"}).json()["state"] == "starting"
    assert reader.get("/api/v1/workers/celery@a").json()["takes"] == ["effects"]


def test_leases_over_rest(operator: APIClient, reader: APIClient) -> None:
    Resource.objects.filter(pk=PLANNING).update(units=10)
    asked = {"resource": PLANNING, "units": 8, "holder": "a script", "ttl_seconds": 30}
    assert reader.post("/api/v1/leases", asked).status_code == 403
    taken = operator.post("/api/v1/leases", asked)
    assert taken.status_code == 201, taken.content
    body = taken.json()
    assert body["granted"] is True
    refused = operator.post("/api/v1/leases", asked)
    assert (refused.status_code, refused.json()["code"]) == (409, "none_free")
    assert int(refused["Retry-After"]) > 0
    assert operator.post("/api/v1/leases", {**asked, "resource": "nothing"}).json()["code"] == "invalid_transition"

    (row,) = reader.get(f"/api/v1/leases?resource={PLANNING}").json()["results"]
    assert "token" not in row
    address = f"/api/v1/leases/{body['token']}"
    later = operator.post(f"{address}/heartbeat")
    assert later.status_code == 200, later.content
    assert later.json()["expires_at"] > body["expires_at"]
    assert operator.post(f"{address}/release").status_code == 200
    assert operator.post(f"{address}/heartbeat").status_code == 404
    assert list(AuditEntry.objects.values_list("action", flat=True).order_by("id")) == ["lease_take", "lease_release"]


def test_what_wms2_itself_needs_nobody_has_for_long_without_a_word(operator: APIClient) -> None:
    asked = {"resource": PLANNING, "units": 2000, "holder": "a script", "ttl_seconds": 86_400}
    problem(operator.post("/api/v1/leases", asked), 400, "invalid", field="ttl_seconds")
    Resource.objects.create(name="gpus", units=2000)
    assert operator.post("/api/v1/leases", {**asked, "resource": "gpus"}).status_code == 201
    assert operator.post("/api/v1/leases", {**asked, "ttl_seconds": 600}).status_code == 201
    with pytest.raises(NoneFree, match="2000 are taken: 2000 by olga for a script, since 20"), resource(PLANNING, 1, "a plan"):
        pass


def test_units_are_changed_and_resources_added_by_verbs(operator: APIClient, reader: APIClient) -> None:
    changed = operator.post(f"/api/v1/resources/{PLANNING}/units", {"units": 7, "reason": "less memory"})
    assert (changed.status_code, changed.json()["units"]) == (202, 7)
    added = operator.post(f"/api/v1/resources/{PLANNING}/add", {"name": "gpus", "units": 4, "unit": "GPUs", "reason": "a site"})
    assert (added.status_code, added.json()["name"]) == (202, "gpus")
    assert reader.get("/api/v1/resources/gpus").json()["unit"] == "GPUs"
