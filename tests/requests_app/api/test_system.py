"""Admission, limits, sites, the life cycle, the status page and health."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAGStatus
from requests_app.limits import limits_now
from requests_app.models import HoldCode, Installation, Lease, Limit, Request, RequestStatus
from requests_app.monitoring import health
from sites_app.models import Site, SiteBan, SiteRse, SiteStatus
from tests.support.cases import in_one_test
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from tests.support.statements import statements
from wms2 import celery
from wms2.conf import Limits, conf
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
S = RequestStatus
QUEUE, CONFIG = "/api/v1/admission/queue", "/api/v1/admission/config"


def lease(*, age_seconds: float = 1.0, **fields: Any) -> Lease:
    now = timezone.now()
    ended = now - timedelta(seconds=age_seconds)
    values = {
        "owner": "node-a", "epoch": 3, "acquired_at": now, "heartbeat_at": now, "expires_at": now + timedelta(seconds=30),
        "data": {"cycle_started_at": now.isoformat(), "cycle_ended_at": ended.isoformat(), "seconds": 0.5},  # another began
    }  # fmt: skip
    return Lease.objects.create(name="lifecycle", **values | fields)


# --- admission


def test_the_queue_tells_slots_the_next_and_every_place(reader: APIClient) -> None:
    now = timezone.now()
    dag_row(workflow_row(request_row(S.ACTIVE)))
    low = request_row(S.QUEUED, priority=10, queued_at=now)
    pausing = request_row(S.QUEUED, priority=999, next_attempt_at=now + timedelta(hours=1), last_error="dbs: no answer")
    urgent = request_row(S.QUEUED, priority=1, urgent=True, queued_at=now - timedelta(hours=2), waiting_for="a free DAG slot")
    high = request_row(S.QUEUED, priority=500, queued_at=now)

    body = reader.get(QUEUE).json()

    assert (body["active_dags"], body["max_active_dags"], body["queued_workflows"], body["pausing"]) == (1, 300, 4, 1)
    assert body["next_in_queue"]["request_name"] == urgent.request_name
    assert body["next_in_queue"]["priority"] == 1
    assert body["next_in_queue"]["queued_since"]
    assert [(row["place"], row["request_name"]) for row in body["queue"]] == [
        (1, urgent.request_name),
        (2, high.request_name),
        (3, low.request_name),
        (None, pausing.request_name),
    ]
    assert body["queue"][0]["waiting_for"] == "a free DAG slot"
    assert body["queue"][3]["last_error"] == "dbs: no answer"


def test_an_empty_queue_has_nobody_next(reader: APIClient) -> None:
    body = reader.get(QUEUE).json()
    assert (body["next_in_queue"], body["queue"], body["next"]) == (None, [], None)


def test_places_go_on_over_pages(reader: APIClient) -> None:
    for priority in (5, 4, 3):
        request_row(S.QUEUED, priority=priority)
    first = reader.get(QUEUE, {"page_size": 2}).json()
    second = reader.get(first["next"]).json()
    assert [(row["place"], row["priority"]) for row in first["queue"] + second["queue"]] == [(1, 5), (2, 4), (3, 3)]


@pytest.mark.parametrize("rows", [1, 30])
def test_the_queue_costs_a_fixed_number_of_queries(reader: APIClient, rows: int, django_assert_num_queries: Any) -> None:
    for _ in range(rows):
        request_row(S.QUEUED)
    # user; limits twice, what has stopped all, slots, buckets, the queue, ended DAGs; counts, next; the page and those that pause
    with django_assert_num_queries(12):
        assert len(reader.get(QUEUE).json()["queue"]) == rows


def test_limits_are_told_with_their_defaults_and_changed_with_a_reason(operator: APIClient) -> None:
    before = {row["name"]: row for row in operator.get(CONFIG).json()["limits"]}
    assert before.keys() == Limits.model_fields.keys()
    assert (before["max_active_dags"]["value"], before["max_active_dags"]["changed_by"]) == (300, "")

    response = operator.patch(CONFIG, {"max_active_dags": 20, "error_hold_threshold": 0.5, "reason": "schedd upgrade"})

    assert response.status_code == 200
    after = {row["name"]: row for row in response.json()["limits"]}["max_active_dags"]
    assert (after["value"], after["default"], after["changed_by"], after["reason"]) == (20, 300, "olga", "schedd upgrade")
    assert (type(after["value"]), type(before["error_hold_threshold"]["value"])) == (int, float), "20, not 20.0"
    assert limits_now().max_active_dags == 20
    assert set(AuditEntry.objects.values_list("action", "target")) == {
        ("limit_set", "max_active_dags"),
        ("limit_set", "error_hold_threshold"),
    }


@in_one_test(
    "body, field",
    [
        ({"max_active_dags": 5}, "reason"),
        ({"reason": "r"}, "max_active_dags"),
        ({"reason": "r", "max_active_dags": 0}, "max_active_dags"),
        ({"reason": "r", "max_active_dags": -5}, "max_active_dags"),
        ({"reason": "r", "block_target_bytes": 13}, "block_target_bytes"),
        ({"reason": "r", "default_memory_per_core_mb": 1}, "default_memory_per_core_mb"),
        ({"reason": "r", "rate_limit_read": 1}, "rate_limit_read"),
        ({"reason": "r", "max_active_dags": 1.5}, "max_active_dags"),
        ({"reason": "r", "max_active_dags": True}, "max_active_dags"),
        ({"reason": "r", "max_active_dags": None}, "max_active_dags"),
        ({"reason": "r", "max_active_dags": 10**400}, "max_active_dags"),
        ({"reason": "r", "error_hold_threshold": 0}, "error_hold_threshold"),
        ({"reason": "r", "error_hold_threshold": 1.01}, "error_hold_threshold"),
        ({"reason": "r", "error_hold_threshold": "nan"}, "error_hold_threshold"),
        ({"reason": "r", "cycle_seconds": 1}, "cycle_seconds"),
        ({"reason": "r", "no_such_limit": 1}, "no_such_limit"),
        ({"reason": "r", "timeout_active_seconds": -1}, "timeout_active_seconds"),
        ({"reason": "r", "error_max_rescue_attempts": 2400}, "error_max_rescue_attempts"),
        ({"reason": "r", "dag_max_merge_groups": 10**6}, "dag_max_merge_groups"),
    ],
)
def test_a_wrong_limit_is_400_and_nothing_changes(operator: APIClient, body: dict[str, Any], field: str) -> None:
    problem(operator.patch(CONFIG, body), 400, "invalid", field=field)
    assert not Limit.objects.exists()


def test_of_several_limits_all_are_changed_or_none(operator: APIClient) -> None:
    problem(
        operator.patch(CONFIG, {"reason": "r", "dag_max_merge_groups": 3, "max_active_dags": 0}), 400, "invalid",
        field="max_active_dags",
    )  # fmt: skip
    assert not Limit.objects.exists()
    assert not AuditEntry.objects.exists()


def test_readers_do_not_change_limits(reader: APIClient) -> None:
    problem(reader.patch(CONFIG, {"reason": "r", "max_active_dags": 5}), 403, "permission_denied")


# --- sites


def test_sites_show_their_storage_and_the_bans_in_force(reader: APIClient) -> None:
    now = timezone.now()
    site = Site.objects.create(name="T1_US_FNAL", status=SiteStatus.DRAINING)
    Site.objects.create(name="T2_CH_CERN")
    for rse in ("T1_US_FNAL_Tape", "T1_US_FNAL_Disk"):
        SiteRse.objects.create(site=site, rse=rse, seen_at=now)
    ban = SiteBan.objects.create(site=site, reason="black hole", expires_at=now + timedelta(days=1))
    SiteBan.objects.create(site=site, reason="over", expires_at=now + timedelta(days=1), removed_at=now, removed_by="olga")

    rows = reader.get("/api/v1/sites").json()["results"]
    assert [(row["name"], row["rses"], row["bans"]) for row in rows] == [
        ("T1_US_FNAL", ["T1_US_FNAL_Disk", "T1_US_FNAL_Tape"], 1),
        ("T2_CH_CERN", [], 0),
    ]
    body = reader.get("/api/v1/sites/T1_US_FNAL").json()
    assert [(entry["id"], entry["reason"]) for entry in body["active_bans"]] == [(str(ban.pk), "black hole")]
    for query in ({"status": "draining"}, {"search": "fnal"}, {"rse": "T1_US_FNAL_Disk"}):
        assert [row["name"] for row in reader.get("/api/v1/sites", query).json()["results"]] == ["T1_US_FNAL"]


@pytest.mark.parametrize("rows", [1, 30])
def test_a_page_of_sites_costs_four_queries(reader: APIClient, rows: int, django_assert_num_queries: Any) -> None:
    for number in range(rows):
        Site.objects.create(name=f"T2_XX_{number}")
    with django_assert_num_queries(4):
        assert len(reader.get("/api/v1/sites").json()["results"]) == rows


def test_a_wrong_site_is_404_and_a_wrong_query_400(reader: APIClient) -> None:
    problem(reader.get("/api/v1/sites/T9_XX_None"), 404, "not_found")
    problem(reader.get("/api/v1/sites/T9%20XX"), 404, "not_found")
    assert reader.get("/api/v1/sites?status=odd").status_code == 400
    assert reader.get("/api/v1/sites?rse=%00").status_code == 400


# --- life cycle and status


def test_the_life_cycle_tells_who_leads_the_last_cycle_and_the_schedds(reader: APIClient) -> None:
    lease(age_seconds=2)
    schedd = schedd_row(unreachable_since=timezone.now(), last_error="no answer")
    dag_row(workflow_row(request_row(S.ACTIVE)), schedd=schedd)

    body = reader.get("/api/v1/lifecycle/status").json()

    assert (body["holder"], body["epoch"], body["leading"], body["stale"]) == ("node-a", 3, True, False)
    assert 1 < body["cycle_age_seconds"] < 60
    started_at, ended_at = (datetime.fromisoformat(body["last_cycle"][name]) for name in ("started_at", "ended_at"))
    assert (body["last_cycle"]["seconds"], (ended_at - started_at).total_seconds()) == (0.5, 0.5)
    (row,) = body["schedds"]
    assert (row["name"], row["live_dags"], row["last_error"]) == ("schedd@test", 1, "no answer")
    assert row["unreachable_since"]


def test_a_life_cycle_that_never_ran_is_stale_and_one_that_stopped_too(reader: APIClient) -> None:
    body = reader.get("/api/v1/lifecycle/status").json()
    assert (body["holder"], body["leading"], body["stale"], body["cycle_age_seconds"]) == ("", False, True, None)
    lease(age_seconds=100_000, expires_at=timezone.now() - timedelta(hours=1))
    body = reader.get("/api/v1/lifecycle/status").json()
    assert (body["leading"], body["stale"]) == (False, True)


def test_the_status_counts_everything_zeros_included(reader: APIClient) -> None:
    request_row(S.HELD, hold_code=HoldCode.LEDGER, alert_code="ledger_violation")
    request_row(S.QUEUED)
    dag_row(workflow_row(request_row(S.ACTIVE)), DAGStatus.RUNNING)
    Site.objects.create(name="T1")

    body = reader.get("/api/v1/status").json()

    assert (body["requests"]["held"], body["requests"]["queued"], body["requests"]["failed"]) == (1, 1, 0)
    assert body["requests"].keys() == set(S.values)
    assert (body["held"]["ledger"], body["held"]["operator"]) == (1, 0)
    assert (body["alerted_requests"], body["dags_live"], body["sites"]["enabled"]) == (1, 1, 1)
    assert body["admission"]["queued_workflows"] == 1
    assert body["lifecycle"]["stale"] is True
    assert (body["instance"], body["environment"]) == (conf().instance, conf().environment)


def test_the_status_names_the_first_in_the_queue_without_sorting_it_each_time(
    reader: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requests_app.selectors.admission.CACHED_SECONDS", 3600.0)
    first, second = request_row(S.QUEUED, priority=2), request_row(S.QUEUED, priority=1)

    def named() -> tuple[str, bool]:
        with CaptureQueriesContext(connection) as asked:
            body = reader.get("/api/v1/status").json()
        sorts = any("LEAST(" in each for each in statements(asked))
        return body["admission"]["next_in_queue"]["request_name"], sorts

    assert named() == (first.request_name, True)
    assert named() == (first.request_name, False)
    Request.objects.filter(pk=first.pk).update(status=S.PLANNING)
    assert named() == (second.request_name, True)


# --- health


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of ours, a leader, and a broker that answers."""
    Installation.objects.create(instance=conf().instance, environment=conf().environment)
    lease()
    monkeypatch.setattr(health, "broker_answers", lambda: True)


def test_a_process_that_serves_is_alive_without_a_database(nobody: APIClient, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        response = nobody.get("/livez")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/readyz", "/api/v1/health"])
def test_everybody_may_ask_whether_it_is_ready(nobody: APIClient, well: None, path: str) -> None:
    response = nobody.get(path)
    assert (response.status_code, response.json()) == (200, {"status": "ok", "reasons": {}, "warnings": {}})


def test_a_database_of_another_instance_is_not_ready(nobody: APIClient, well: None) -> None:
    Installation.objects.update(instance="somebody-else")
    response = nobody.get("/readyz")
    assert response.status_code == 503
    assert response.json()["reasons"].keys() == {"instance"}
    assert "somebody-else" not in response.content.decode()


def test_without_a_recent_cycle_it_is_not_ready(nobody: APIClient, well: None) -> None:
    Lease.objects.all().delete()
    assert nobody.get("/readyz").json()["reasons"] == {"lifecycle": "no cycle has run yet"}
    lease(age_seconds=100_000)
    assert "ago" in nobody.get("/readyz").json()["reasons"]["lifecycle"]


def test_a_broker_that_does_not_answer_is_told(nobody: APIClient, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Installation.objects.create(instance=conf().instance, environment=conf().environment)
    lease()
    monkeypatch.setattr(celery.app.conf, "broker_url", "redis://127.0.0.1:1/0")
    response = nobody.get("/readyz")
    assert (response.status_code, response.json()["reasons"]) == (503, {"broker": "does not answer"})


def test_a_database_that_does_not_answer_is_reported_without_its_secrets(
    nobody: APIClient, well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def cursor(self) -> None:
            raise OperationalError("connection to /secret/socket failed")

    monkeypatch.setattr(health, "connection", Broken())
    response = nobody.get("/readyz")
    assert (response.status_code, response.json()["reasons"]) == (503, {"database": "does not answer"})
