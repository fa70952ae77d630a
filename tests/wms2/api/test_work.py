"""Worker pools, shared resources and their leases over REST."""

from __future__ import annotations

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from wms2.models import Worker
from wms2.work.resources import PLANNING, resource

pytestmark = pytest.mark.django_db


def test_a_pool_is_read_drained_and_resumed(operator: APIClient, reader: APIClient) -> None:
    now = timezone.now()
    Worker.objects.create(name="celery@a", queues=["effects"], takes=["effects"], started_at=now, heartbeat_at=now)
    assert {row["queue"]: row["alive"] for row in reader.get("/api/v1/worker-pools").json()["results"]} == {
        "celery": 0, "effects": 1, "ticks": 0, "verbs": 0,
    }  # fmt: skip
    address = "/api/v1/worker-pools/effects"
    assert operator.post(f"{address}/drain", {"reason": "an update"}).json()["state"] == "draining"
    assert operator.post(f"{address}/drain", {"reason": "an update"}).status_code == 409
    assert operator.post(f"{address}/resume", {"reason": "done"}).json()["state"] == "starting"
    assert reader.get("/api/v1/workers/celery@a").json()["takes"] == ["effects"]


def test_the_units_of_a_resource_are_changed_and_its_leases_listed(operator: APIClient, reader: APIClient) -> None:
    changed = operator.post(f"/api/v1/resources/{PLANNING}/units", {"units": 7, "reason": "less memory"})
    assert (changed.status_code, changed.json()["units"]) == (202, 7)
    with resource(PLANNING, 3, "a plan"):
        (row,) = reader.get(f"/api/v1/leases?resource={PLANNING}").json()["results"]
    assert (row["holder"], row["units"], "token" in row) == ("a plan", 3, False)
    assert operator.post("/api/v1/leases", {}).status_code == 405
