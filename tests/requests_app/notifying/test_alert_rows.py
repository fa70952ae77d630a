"""Alerts as rows: several a request, conditions of the cycle, what people do about them, the page and REST."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from requests_app.alert_rows import AlertSubject
from requests_app.alerts import alert, alert_off, remind
from requests_app.lifecycle.alert_conditions import alerts_check
from requests_app.models import Alert, AlertChannel, Event, HoldCode, Request, RequestStatus, RequestWatch
from requests_app.selectors.alerts import open_alerts
from requests_app.services.alerts import alert_acknowledge, request_watch
from requests_app.states import transition
from sites_app.models import Site, SiteStatus
from tests.support import rest_clients
from tests.support.rows import request_row, schedd_row
from wms2.errors import InvalidTransition
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "test"}


@pytest.fixture
def rest() -> Iterator[APIClient]:
    user = get_user_model().objects.create_superuser("ada", "ada@example.org", "x")
    yield rest_clients.client_of(user)


def check() -> dict[tuple[str, str], Alert]:
    alerts_check(nullcontext)
    return {(row.code, row.subject): row for row in open_alerts()}


def test_a_request_has_several_alerts_and_shows_the_newest_that_is_open() -> None:
    row = request_row(S.ACTIVE)
    alert(row, "slow_active", "for long")
    alert(row, "dagman_held", "held", AlertSubject(schedd="s@a"))
    alert(row, "slow_active", "for longer")
    remind(row, "cases_wait", "2 cases")
    remind(row, "cases_wait", "3 cases")
    row.refresh_from_db()
    assert (row.alert_code, Event.objects.filter(kind="alert").count()) == ("cases_wait", 4)
    assert [(each.code, each.cause, each.text, each.count) for each in open_alerts(request=row)] == [
        ("slow_active", "", "for longer", 1), ("dagman_held", "s@a", "held", 1), ("cases_wait", "", "3 cases", 2),
    ]  # fmt: skip
    alert_off(row, "cases_wait")
    alert_off(row, "slow_active")
    assert Request.objects.get(pk=row.pk).alert_code == "dagman_held"
    transition(row, S.STOPPING, actor="olga", reason="test", stop_intent="hold")
    row.refresh_from_db()
    assert (row.alert_code, row.alerted_at, open_alerts().count(), Alert.objects.count()) == ("", None, 0, 3)


def test_conditions_begin_change_and_end_and_join_those_of_their_cause() -> None:
    one, two = (request_row(S.HELD, hold_code=HoldCode.THRESHOLD, hold_reason="too many") for _ in range(2))
    schedd = schedd_row(unreachable_since=timezone.now(), state="enabled")
    Site.objects.create(name="T2_X", status=SiteStatus.DISABLED, status_reason="down")
    AlertChannel.objects.create(
        name="ops", kind="mail", address="a@b.ch", failing_since=timezone.now(), created_at=timezone.now(), created_by="olga"
    )
    found = check()
    keys = {
        ("request_held", one.request_name),
        ("schedd_silent", schedd.name),
        ("site_closed", "T2_X"),
        ("channel_failing", "ops"),
    }
    assert keys <= found.keys()
    assert found["request_held", one.request_name].since == one.status_since
    assert found["request_held", one.request_name].cause == found["request_held", two.request_name].cause != ""
    alert_acknowledge(alert=found["request_held", one.request_name], **BY)
    third = request_row(S.HELD, hold_code=HoldCode.THRESHOLD, hold_reason="too many")
    Request.objects.filter(pk=two.pk).update(status=S.QUEUED, hold_code="", hold_reason="")
    Site.objects.update(status_reason="broken")
    again = check()
    assert again["request_held", third.request_name].owner == "olga"
    assert ("request_held", two.request_name) not in again
    assert "broken" in again["site_closed", "T2_X"].text
    assert again["site_closed", "T2_X"].pk == found["site_closed", "T2_X"].pk


def test_a_watcher_who_has_no_mail_address_any_more_is_an_alert_until_one_is_given(rest: APIClient) -> None:
    row = request_row(S.ACTIVE)
    request_watch(request=row, actor="ada", reason="mine")
    User.objects.update(email="")
    found = check()["watcher_without_address", "ada"]
    assert row.request_name in found.text
    User.objects.update(email="ada@example.org")
    assert ("watcher_without_address", "ada") not in check()


def test_what_a_former_release_wrote_on_requests_gets_a_row_and_loses_it() -> None:
    row = request_row(S.ACTIVE, alert_code="slow_active", alerted_at=timezone.now() - timedelta(hours=3))
    found = check()["slow_active", row.request_name]
    assert found.since == row.alerted_at
    Request.objects.update(alert_code="")
    assert ("slow_active", row.request_name) not in check()


def test_operations_hold_for_a_cause_or_for_one_alert_over_rest(rest: APIClient) -> None:
    rows = [request_row(S.ACTIVE) for _ in range(3)]
    for row in rows:
        alert(row, "effect_dead", "no answer", AlertSubject(site="T2_X"))
    one = Alert.objects.order_by("id")[0]
    url = f"/api/v1/alerts/{one.pk}"
    answer = rest.post(f"{url}/acknowledge", {"reason": "mine"}, format="json")
    assert (answer.status_code, answer.json()["owner"]) == (202, "ada"), answer.json()
    assert Alert.objects.filter(owner="ada").count() == 3
    assert rest.post(f"{url}/give-back", {"reason": "no", "alone": True}, format="json").status_code == 202
    assert Alert.objects.filter(owner="ada").count() == 2
    until = timezone.now() + timedelta(hours=2)
    assert rest.post(f"{url}/silence", {"reason": "known", "until": until.isoformat()}, format="json").status_code == 202
    late = rest.post(f"{url}/silence", {"reason": "x", "until": "2099-01-01T00:00:00Z"}, format="json")
    assert (late.status_code, "30 days" in str(late.json())) == (400, True), late.json()
    lines = rest.get("/api/v1/alerts", {"open": "true", "silenced": "true", "owned": "false"}).json()["results"]
    assert [(line["id"], line["request_name"], line["todo"] != "") for line in lines] == [(one.pk, rows[0].request_name, True)]
    assert rest.post(f"{url}/end-silence", {"reason": "over"}, format="json").status_code == 202
    assert rest.get(url).json()["silenced_until"] is None
    watch = f"/api/v1/requests/{rows[0].request_name}/watch"
    assert rest.post(watch, {"reason": "mine"}, format="json").status_code == 202
    assert RequestWatch.objects.get().user == User.objects.get(username="ada")
    assert rest.delete(watch, {"reason": "enough"}, format="json").status_code == 202
    assert not RequestWatch.objects.exists()


def test_an_alert_that_another_has_is_taken_over_only_where_that_is_said(rest: APIClient) -> None:
    alert(request_row(S.ACTIVE), "slow_active", "for long")
    seen_before = Alert.objects.get()  # by two people at the same moment
    alert_acknowledge(alert=Alert.objects.get(), actor="olga", reason="mine")
    with pytest.raises(InvalidTransition, match=r"olga has it since \d{4}-"):
        alert_acknowledge(alert=seen_before, actor="otto", reason="mine")
    answer = rest.post(f"/api/v1/alerts/{seen_before.pk}/acknowledge", {"reason": "mine"}, format="json")
    assert (answer.status_code, "olga has it since" in answer.json()["detail"]) == (409, True), answer.json()
    assert (Alert.objects.get().owner, AuditEntry.objects.filter(outcome="refused").count()) == ("olga", 2)
    answer = rest.post(f"/api/v1/alerts/{seen_before.pk}/acknowledge", {"reason": "mine", "take_over": True}, format="json")
    assert (answer.status_code, Alert.objects.get().owner) == (202, "ada"), answer.json()
    User.objects.create_user("olga")
    alert_acknowledge(alert=seen_before, actor="ada", owner="olga", reason="handed over at 7")  # her own
    assert Alert.objects.get().owner == "olga"


def test_channels_are_added_at_allowed_addresses_alone_and_routed(rest: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    add, channels = "/api/v1/service/level/add-alert-channel", "/api/v1/alert-channels"
    rest.get("/api/v1/service/level")
    chat = {"name": "chat", "kind": "mattermost", "address": "https://evil.example.org/hooks", "secret": "chat", "reason": "r"}
    refused = rest.post(add, chat, format="json")
    assert (refused.status_code, "WMS2_ALERT_HOSTS" in str(refused.json())) == (400, True), refused.json()
    assert "WMS2_ALERT_SECRETS" in str(
        rest.post(add, {**chat, "address": "http://127.0.0.1:9/", "secret": "x"}, format="json").json()
    )
    made = rest.post(add, {**chat, "address": "http://127.0.0.1:9/hooks"}, format="json")
    assert made.status_code == 202, made.json()
    (line,) = rest.get(channels).json()["results"]
    route = rest.post(
        f"{channels}/{line['id']}/routes", {"code": "effect_*", "severity": "critical", "reason": "r"}, format="json"
    )
    assert route.status_code == 202, route.json()
    (found,) = rest.get("/api/v1/alert-routes", {"channel": "chat"}).json()["results"]
    assert (found["code"], found["severity"], found["campaign"]) == ("effect_*", "critical", "")
    assert rest.post(f"{channels}/{line['id']}/test", {"reason": "r"}, format="json").status_code == 202
    assert rest.post(f"/api/v1/alert-routes/{found['id']}/remove", {"reason": "r"}, format="json").status_code == 202
    assert rest.post(f"{channels}/{line['id']}/remove", {"reason": "r"}, format="json").status_code == 202
    assert rest.get(channels).json()["results"] == []


def test_the_page_has_a_line_for_each_cause_with_operations_and_costs_the_same_for_many(
    operator: Client, reader: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(30):
        row = request_row(S.ACTIVE)
        alert(row, "effect_dead", "no answer", AlertSubject(site=f"T2_{number % 3}"))
        alert(row, "ledger_violation", "lost work")
    operator.get("/alerts/")
    with django_assert_max_num_queries(8 + 3):  # three of them are the session's, the user's and their roles
        shown = operator.get("/alerts/").content.decode().replace("<wbr>", "")
    assert shown.index("30 requests: ledger_violation") < shown.index("10 requests: effect_dead at T2_0")
    assert shown.count("Acknowledge …") == 4 and "Silence …" in shown
    assert "Acknowledge" not in reader.get("/alerts/").content.decode()
    one = reader.get("/alerts/", {"code": "effect_dead", "cause": "T2_1"}).content.decode()
    assert one.count('<a class="name"') == 10 and "ledger_violation" not in one
    wrong = reader.get("/alerts/", {"severity": "worst"})
    assert (wrong.status_code, "severity: " in wrong.content.decode()) == (400, True)
    Alert.objects.update(ended_at=timezone.now())
    assert "Nothing waits for a person." in reader.get("/alerts/").content.decode()
    assert reader.get("/alerts/", {"open": "false", "code": "ledger_violation"}).content.decode().count("lost work") == 30
