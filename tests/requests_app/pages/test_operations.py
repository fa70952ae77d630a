"""The pages of operations: what runs where, who works on it, what was done; each costs the same with many rows."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from dags_app.models import DAGStatus
from requests_app.feed import emit_event, publish
from requests_app.models import Limit, RequestStatus
from sites_app.models import Health, HealthChange, ScheddState
from tests.support.page_cost import shown
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from tests.support.scene import Scene
from wms2.audit import audit
from wms2.models import AuditEntry, Worker, WorkerPool

pytestmark = pytest.mark.django_db


def test_operations_says_what_runs_where_and_which_limits_were_changed(reader: Client, built: Scene) -> None:
    now = timezone.now()
    Worker.objects.create(name="w1", queues=["celery"], takes=["celery"], started_at=now, heartbeat_at=now)
    Worker.objects.create(name="w2", queues=["celery"], started_at=now, heartbeat_at=now - timedelta(hours=1))
    WorkerPool.objects.get_or_create(queue="celery")
    Limit.objects.update_or_create(
        name="max_active_dags", defaults={"value": 250, "actor": "olga", "reason": "the schedd is slow"}
    )
    for number in range(5):
        schedd_row(f"schedd{number + 10}@wms2.example")
    said = shown(reader, "/operations/")
    assert "of 250" in said and "the schedd is slow" in said
    schedds = shown(reader, "/operations/", "part-schedds")
    assert "schedd2@wms2.example" in schedds and "silent for 22 min: timed out after 20 s" in schedds
    assert "w1" in shown(reader, "/operations/", "part-workers")


def test_a_schedd_shows_its_dags_and_its_health(operator: Client) -> None:
    schedd = schedd_row("schedd9@wms2.example", state=ScheddState.ENABLED, health=Health.DEGRADED, health_reason="too slow")
    HealthChange.objects.create(schedd=schedd, at=timezone.now(), old=Health.HEALTHY, new=Health.DEGRADED, reason="duty cycle")
    for number in range(3):
        request = request_row(RequestStatus.ACTIVE, request_name=f"there_{number}")
        dag_row(workflow_row(request), DAGStatus.RUNNING, schedd=schedd)
    said = shown(operator, "/operations/schedds/schedd9@wms2.example/")
    for words in ("too slow", "duty cycle", "who did what", "there_2", "Drain …", "No DAG can be given to it"):
        assert words in said, words
    assert operator.get("/operations/schedds/schedd99/").status_code == 404


def test_what_changed_since_a_shift_is_one_click_and_filtered_by_who(reader: Client) -> None:
    request = request_row(RequestStatus.HELD)
    for actor, action in (("olga", "request_hold"), ("dan", "site_ban"), ("wms2", "request_evaluated")):
        audit(actor=actor, action=action, target=request.request_name, target_type="request", reason=f"by {actor}")
    audit(actor="olga", action="of_yesterday", reason="long ago")
    AuditEntry.objects.filter(action="of_yesterday").update(at=timezone.now() - timedelta(hours=30))
    for _ in range(3):
        emit_event("request.status", request, **{"from": "active", "to": "held"})
    emit_event("site.status", None, **{"name": "T2_CH_CERN", "from": "enabled", "to": "draining", "reason": "tape full"})
    publish()
    assert 'href="/operations/activity/?since=8h"' in reader.get("/operations/").content.decode()
    said = shown(reader, "/operations/activity/?since=8h")
    for words in ("by olga", "by dan", "Held 3", "T2_CH_CERN", "tape full"):
        assert words in said, words
    for words in ("by wms2", "long ago"):
        assert words not in said, words
    assert "by wms2" in shown(reader, "/operations/activity/?people=no")
    assert "long ago" in shown(reader, "/operations/activity/?since=2d&actor=olga")
    assert "by olga" not in shown(reader, "/operations/activity/?actor=dan")
    listed = json.loads(reader.get("/operations/activity/?actor=dan&format=json").content)["activity"]
    assert [entry["reason"] for entry in listed] == ["by dan"]
    assert "by dan" in reader.get("/operations/activity/?format=csv").content.decode()
    wrong = reader.get("/operations/activity/?since=yesterday")
    assert (wrong.status_code, "a moment in UTC" in wrong.content.decode()) == (400, True)
