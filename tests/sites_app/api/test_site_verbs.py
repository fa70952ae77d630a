"""Operations on sites: drain, enable, disable, ban, lift. Each has a reason, may be repeated, and is refused with words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from sites_app.models import Site, SiteBan, SiteStatus
from tests.support.cases import in_one_test
from tests.support.problems import problem
from tests.support.rows import request_row, workflow_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
NAMES = ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue")


@pytest.fixture(autouse=True)
def _sites(db: Any) -> None:
    for name in NAMES:
        Site.objects.create(name=name)


def url(action: str, site: str = "T2_CH_CERN") -> str:
    return f"/api/v1/sites/{site}/{action}"


def test_a_site_is_drained_until_a_time_and_enabled_again(operator: APIClient) -> None:
    until = timezone.now() + timedelta(days=2)
    for _ in range(2):
        body = operator.post(url("drain"), {"reason": "downtime", "until": until.isoformat()})
        assert (body.status_code, body.json()["status"], body.json()["status_actor"]) == (202, "draining", "olga")
    assert AuditEntry.objects.filter(action="site_change_status", target="T2_CH_CERN").count() == 1
    body = operator.post(url("enable"), {"reason": "it is back"})
    assert (body.json()["status"], body.json()["drain_until"]) == ("enabled", None)


def test_a_drain_cannot_end_in_the_past(operator: APIClient) -> None:
    reported = problem(operator.post(url("drain"), {"reason": "x", "until": "2020-01-01T00:00:00Z"}), 400, "invalid")
    assert (reported["field"], reported["detail"]) == ("until", "until: a drain ends in the future")
    assert Site.objects.get(pk="T2_CH_CERN").status == SiteStatus.ENABLED


def test_a_site_is_banned_for_all_for_the_usual_days_and_the_ban_is_lifted(operator: APIClient) -> None:
    body = operator.post(url("ban"), {"reason": "its storage lies"})
    assert body.status_code == 202
    (ban,) = body.json()["active_bans"]
    assert (ban["workflow_id"], ban["created_by"]) == (None, "olga")
    assert SiteBan.objects.get().expires_at > timezone.now() + timedelta(days=6.9)
    for _ in range(2):
        body = operator.delete(url("ban") + "?reason=repaired")
        assert (body.status_code, body.json()["active_bans"]) == (202, [])
    assert SiteBan.objects.get().removed_by == "olga"


def test_the_same_ban_again_prolongs_it(operator: APIClient) -> None:
    operator.post(url("ban"), {"reason": "once"})
    until = timezone.now() + timedelta(days=30)
    operator.post(url("ban"), {"reason": "longer", "expires_at": until.isoformat()})
    assert SiteBan.objects.get().expires_at == until


def test_more_than_half_of_the_sites_are_banned_only_by_insisting(operator: APIClient) -> None:
    operator.post(url("ban"), {"reason": "first"})
    reported = problem(operator.post(url("ban", "T1_US_FNAL"), {"reason": "second"}), 409, "invalid_transition")
    assert "2 of 3 sites" in reported["detail"]
    assert AuditEntry.objects.filter(action="site_ban", outcome="refused").count() == 1
    assert operator.post(url("ban", "T1_US_FNAL"), {"reason": "second", "insist": True}).status_code == 202


def test_a_ban_may_concern_one_request_and_only_that_one_is_lifted(operator: APIClient) -> None:
    request = request_row()
    workflow_row(request)
    operator.post(url("ban"), {"reason": "for all"})
    body = operator.post(url("ban"), {"reason": "for one", "request_name": request.request_name})
    assert len(body.json()["active_bans"]) == 2
    operator.delete(url("ban") + f"?reason=done&request_name={request.request_name}")
    assert SiteBan.objects.get(removed_at__isnull=True).reason == "for all"


def test_the_request_named_in_the_body_counts_when_the_reason_stands_in_the_query(operator: APIClient) -> None:
    request = request_row()
    workflow_row(request)
    operator.post(url("ban"), {"reason": "for all"})
    operator.post(url("ban"), {"reason": "for one", "request_name": request.request_name})
    answer = operator.delete(url("ban") + "?reason=done", {"request_name": request.request_name})
    assert answer.status_code == 202
    assert SiteBan.objects.get(removed_at__isnull=True).reason == "for all"


def test_a_ban_for_an_unknown_request_or_in_the_past_names_the_field(operator: APIClient) -> None:
    reported = problem(operator.post(url("ban"), {"reason": "x", "request_name": "nobody_has_it"}), 400, "invalid")
    assert reported["field"] == "request_name"
    reported = problem(operator.post(url("ban"), {"reason": "x", "expires_at": "2020-01-01T00:00:00Z"}), 400, "invalid")
    assert reported["field"] == "expires_at"


@pytest.mark.parametrize("action", ["enable", "disable", "drain", "ban"])
def test_a_reason_is_needed_and_a_site_that_is_known(operator: APIClient, action: str) -> None:
    problem(operator.post(url(action), {}), 400, "invalid")
    assert operator.post(url(action, "T9_XX_Nowhere"), {"reason": "x"}).status_code == 404


def patch(client: APIClient, **body: Any) -> Any:
    return client.patch("/api/v1/sites/T2_CH_CERN", {"reason": "for the test"} | body)


def test_a_sites_status_is_changed_with_a_reason_and_repeated(operator: APIClient) -> None:
    until = (timezone.now() + timedelta(days=2)).isoformat()
    for _ in range(2):
        assert patch(operator, status="draining", drain_until=until).json()["status"] == "draining"
    body = patch(operator, status="maintenance")
    assert (body.status_code, body.json()["status"], body.json()["drain_until"]) == (200, "maintenance", None)
    assert (body.json()["status_actor"], body.json()["status_reason"]) == ("olga", "for the test")
    reported = AuditEntry.objects.filter(action="site_change_status", target="T2_CH_CERN").order_by("id")
    assert [(row.evidence["old"], row.evidence["new"]) for row in reported] == [
        ("enabled", "draining"),
        ("draining", "maintenance"),
    ]


def test_notes_about_a_site_are_replaced_and_audited(operator: APIClient) -> None:
    for notes in ({"contact": "olga"}, {"contact": "olga"}, {"ticket": 7}):
        body = patch(operator, config_data=notes)
        assert (body.status_code, body.json()["config_data"]) == (200, notes)
    reported = AuditEntry.objects.filter(action="site_note").order_by("id")
    assert [row.evidence["new"] for row in reported] == [{"contact": "olga"}, {"ticket": 7}]


@in_one_test(
    "body, field",
    [
        ({}, "status"),
        ({"status": "asleep"}, "status"),
        ({"status": "enabled", "drain_until": "2126-01-01T00:00:00Z"}, "drain_until"),
        ({"status": "draining", "drain_until": "2020-01-01T00:00:00Z"}, "drain_until"),
        ({"config_data": "none"}, "config_data"),
        ({"total_slots": 7}, "total_slots"),
        ({"status": "disabled", "reason": " "}, "reason"),
    ],
)
def test_what_cannot_be_changed_is_named(operator: APIClient, body: dict[str, Any], field: str) -> None:
    assert problem(patch(operator, **body), 400, "invalid")["field"] == field
    assert Site.objects.get(pk="T2_CH_CERN").status == SiteStatus.ENABLED


def test_readers_look_at_a_site_and_change_nothing(reader: APIClient) -> None:
    assert reader.get("/api/v1/sites/T2_CH_CERN").json()["name"] == "T2_CH_CERN"
    assert reader.get("/api/v1/sites/T9_XX_Nowhere").status_code == 404
    assert patch(reader, status="disabled").status_code == 403
