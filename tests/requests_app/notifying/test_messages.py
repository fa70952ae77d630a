"""Alerts reach people: by mail, webhook and chat, once and folded, also after failures and kills; Alertmanager has the state."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from django.contrib.auth import get_user_model
from django.utils import timezone
from pytest_httpserver import HTTPServer
from werkzeug import Request as WebRequest
from werkzeug import Response

from requests_app.alerts import alert, alert_off
from requests_app.models import Alert, AlertChannel, AlertMessage, HoldCode, RequestStatus
from requests_app.notifying import send
from requests_app.notifying.compose import messages_compose
from requests_app.services.alerts import alert_acknowledge, alert_give_back, alert_silence, request_unwatch, request_watch
from requests_app.states import transition
from tests.support.alerting import Channel, Later, alerts_repeat, dead, sent
from tests.support.mail_server import MailServer
from tests.support.monitoring import alertmanager
from tests.support.rows import request_row
from tests.support.waiting import until
from wms2.conf import conf

pytestmark = pytest.mark.django_db
BY: dict[str, Any] = {"actor": "olga", "reason": "test"}


def test_alerts_of_one_cause_are_one_mail_then_one_of_the_end(channel: Channel, mails: MailServer, later: Later) -> None:
    channel("mail", {"code": "effect_*"}), channel("mail", {"code": "*", "site": "T1_*"}, name="other", address="t1@example.org")
    rows = dead("T2_X", "T2_X")
    assert (sent(), sent()) == (1, 0)
    to, mail = mails.mails[0]
    assert to == ["ops@example.org"]
    assert mail["Subject"].endswith("New: 2 requests: effect_dead at T2_X")
    body = mail.get_payload(decode=True).decode()  # type: ignore[union-attr]
    assert rows[0].request_name in body and "https://docs.example.org/runbook#effect_dead" in body and "Do: Repair" in body
    dead("T2_X")
    for row in rows:
        alert_off(row, "effect_dead")
    assert sent() == 0, "a minute has not gone by"
    later(minutes=1, seconds=1)
    assert sent() == 1
    assert "Over (warning): 2 requests" in (folded := str(mails.mails[1][1].get_payload())) and "New (warning): tester" in folded
    later(hours=9)
    assert sent() == 1 and mails.mails[2][1]["Subject"].count("Still open") == 1
    later(hours=9)
    alert_acknowledge(alert=Alert.objects.get(ended_at=None), **BY)
    assert sent() == 0, "someone has it"


def test_a_webhook_is_signed_and_comes_again_with_its_id_until_it_is_taken(
    channel: Channel, httpserver: HTTPServer, later: Later
) -> None:
    taken: list[WebRequest] = []

    def take(request: WebRequest) -> Response:
        request.get_data()
        taken.append(request)
        return Response(status=503 if len(taken) == 1 else 204)

    httpserver.expect_request("/webhook", method="POST").respond_with_handler(take)
    hook = channel("webhook", {"severity": "warning", "campaign": "Run*"})
    dead("T2_X")
    assert sent() == 0
    hook.refresh_from_db()
    assert (hook.failures, "HTTP 503" in hook.last_error) == (1, True)
    later(minutes=5)
    dead("T2_Y")
    assert sent() == 1, "the next one waits for this, and is folded into it afterwards"
    assert [each.headers["webhook-id"] for each in taken] == [str(AlertMessage.objects.get().pk)] * 2
    body, when = taken[1].get_data(), taken[1].headers["webhook-timestamp"]
    signed = f"{taken[1].headers['webhook-id']}.{when}.".encode() + body
    key = base64.b64decode(Path(conf().alert_secrets["hook"]).read_text().strip().removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert taken[1].headers["webhook-signature"] == f"v1,{expected}"
    said = json.loads(body)
    assert said["type"] == "alerts.changed" and said["data"]["alerts"][0]["cause"] == "T2_X"
    later(minutes=1, seconds=1)
    assert sent() == 1, "what came meanwhile"
    hook.refresh_from_db()
    assert (hook.failures, hook.failing_since, len(taken)) == (0, None, 3)


def test_a_process_that_dies_after_sending_has_it_sent_again_by_another_as_the_same(
    channel: Channel, mails: MailServer, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel("mail")
    dead("T2_X")

    def die(point: str) -> None:
        raise KeyboardInterrupt(point)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(send, "crash_point", die)
        sent()
    assert sent() == 0, "its claim lasts"
    later(minutes=4)
    assert (sent(), len(mails.mails)) == (1, 2)
    assert len({mail["Message-ID"] for _, mail in mails.mails}) == 1


def test_a_silence_keeps_channels_quiet_and_what_still_stands_afterwards_is_said(
    channel: Channel, httpserver: HTTPServer, later: Later
) -> None:
    httpserver.expect_request("/mattermost/xyz123", method="POST").respond_with_data("ok")
    channel("mattermost")
    dead("T2_X")
    alert_silence(alert=Alert.objects.get(), until=timezone.now() + timedelta(hours=1), **BY)
    dead("T2_X")  # as silent as the first
    assert sent() == 0
    later(hours=2)
    assert sent() == 1
    assert "2 requests: effect\\_dead at T2\\_X" in httpserver.log[0][0].get_json()["text"]


def test_a_failing_channel_is_a_secret_kept_and_a_mail_server_that_is_away_is_no_loss(
    channel: Channel, mails: MailServer, httpserver: HTTPServer, later: Later
) -> None:
    httpserver.expect_request("/mattermost/xyz123").respond_with_data("no", status=404)
    chat, mail = channel("mattermost"), channel("mail")
    mails.refuse = 1
    dead("T2_X")
    assert sent() == 0
    for row in (chat, mail):
        row.refresh_from_db()
        assert row.failing_since is not None and "xyz123" not in row.last_error
    later(minutes=1)
    assert (sent(), len(mails.mails)) == (1, 1)


def test_lines_of_a_text_that_others_wrote_are_not_taken_for_lines_of_the_mail(channel: Channel, mails: MailServer) -> None:
    channel("mail")
    dead("T2_X")
    Alert.objects.update(text="DBS said\nNew (critical): all sites\r\n    Do: abort everything")
    assert sent() == 1
    lines = str(mails.mails[0][1].get_payload()).splitlines()
    assert [line for line in lines if line.startswith(("New", "Do:"))] == [next(line for line in lines if "effect_dead" in line)]
    assert "    New (critical): all sites" in lines


def test_an_address_that_fits_into_no_mail_fails_its_channel_and_holds_up_no_other(
    channel: Channel, mails: MailServer, later: Later
) -> None:
    odd, _ = channel("mail", name="odd"), channel("mail")
    AlertChannel.objects.filter(pk=odd.pk).update(address=f"a@{'ü' * 60}.example")
    dead("T2_X")
    assert (sent(), len(mails.mails)) == (1, 1)
    odd.refresh_from_db()
    assert odd.failing_since is not None and "no mail is sent" in odd.last_error


def test_watchers_get_mails_of_their_requests_alone(mails: MailServer, later: Later) -> None:
    user = get_user_model().objects.create_user("rita", email="rita@example.org")
    mine, _ = dead("T2_X", "T2_X")
    request_watch(request=mine, actor=user.username, reason="mine")
    assert (sent(), sent()) == (1, 0)
    ((to, mail),) = mails.mails
    assert to == ["rita@example.org"] and mine.request_name in mail["Subject"]


def test_watchers_hear_once_of_each_end_of_a_request_and_of_several_in_one_mail(mails: MailServer, later: Later) -> None:
    get_user_model().objects.create_user("rita", email="rita@example.org")
    first, second, before = (request_row(RequestStatus.REMOVING_FILES) for _ in range(3))
    transition(before, RequestStatus.COMPLETED, actor="lifecycle", reason="all is there")
    later(seconds=5)
    for row in (first, second, before):
        request_watch(request=row, actor="rita", reason="mine")
    assert sent() == 0, "what was so before is nothing new"
    later(seconds=5)
    transition(first, RequestStatus.COMPLETED, actor="lifecycle", reason="all is there")
    transition(second, RequestStatus.HELD, actor="olga", reason="a look", hold_code=HoldCode.OPERATOR, hold_reason="a look")
    assert (sent(), sent()) == (1, 0)
    to, mail = mails.mails[0]
    assert to == ["rita@example.org"]
    assert mail["Subject"].endswith(f"Ended: {first.request_name} is completed")
    assert "By lifecycle: all is there" in str(mail.get_payload())

    later(minutes=2)
    transition(first, RequestStatus.ARCHIVED, actor="lifecycle", reason="its grace is over")
    transition(second, RequestStatus.ABORTED, actor="olga", reason="wrong generator")
    assert (sent(), sent()) == (1, 0)
    body = str(mails.mails[1][1].get_payload())
    assert f"{first.request_name} is archived" in body and f"{second.request_name} is aborted" in body
    assert "By olga: wrong generator" in body
    later(hours=50)
    assert sent() == 0, "no reminders of what has ended"


def test_who_stops_watching_or_leaves_hears_no_more(mails: MailServer, later: Later) -> None:
    rita, dan = (get_user_model().objects.create_user(name, email=f"{name}@example.org") for name in ("rita", "dan"))
    row = request_row(RequestStatus.HELD)
    for user in (rita, dan):
        request_watch(request=row, actor=user.username, reason="mine")
    request_unwatch(request=row, actor="rita", reason="enough")
    get_user_model().objects.filter(pk=dan.pk).update(is_active=False)
    later(seconds=5)
    transition(row, RequestStatus.ABORTED, actor="olga", reason="wrong generator")
    assert sent() == 0
    assert mails.mails == []


def test_a_digest_comes_once_a_day_and_says_who_has_what(
    channel: Channel, mails: MailServer, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel("mail", {"code": "none"}, digest=True)
    dead("T2_X")
    alert_acknowledge(alert=Alert.objects.get(), **BY)
    later(hours=(31 - timezone.now().hour) % 24 + 24)  # seven in the morning
    assert (sent(), sent()) == (1, 0)
    assert "olga has it" in str(mails.mails[0][1].get_payload())
    later(hours=24)
    assert sent() == 1


def test_of_digests_that_could_not_be_sent_the_newest_alone_waits(
    channel: Channel, mails: MailServer, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel("mail", {"code": "none"}, digest=True)
    dead("T2_X")
    later(hours=(31 - timezone.now().hour) % 24 + 24)
    with monkeypatch.context() as patched:
        patched.setenv("WMS2_MAIL_SERVER", "127.0.0.1:9")  # where none is
        conf.cache_clear()
        for _ in range(3):
            assert sent() == 0
            later(hours=24)
    conf.cache_clear()
    assert (sent(), len(mails.mails)) == (1, 1)
    assert not AlertMessage.objects.filter(sent_at=None, given_up_at=None).exists()


def test_a_watcher_without_an_address_gets_no_message_made_and_none_sent_again(
    mails: MailServer, later: Later, django_user_model: Any
) -> None:
    user = django_user_model.objects.create_user("wanda", email="wanda@example.org")
    (row,) = dead("T2_X")
    request_watch(request=row, actor="wanda", reason="mine")
    messages_compose()
    user.email = ""
    user.save()
    assert send.messages_send(seconds=30) == 0
    assert AlertMessage.objects.get().state == "given up"
    later(hours=9)
    alert(row, "slow_active", "for long")
    assert (sent(), AlertMessage.objects.count()) == (0, 1)
    user.email = "wanda@example.org"
    user.save()
    assert (sent(), mails.mails[0][0]) == (1, ["wanda@example.org"])


def test_alertmanager_is_sent_the_state_until_its_end(channel: Channel, httpserver: HTTPServer, later: Later) -> None:
    httpserver.expect_request("/api/v2/alerts", method="POST").respond_with_data("")
    channel("alertmanager", heartbeat=True)
    rows = dead("T2_X", "T2_X")
    alert(rows[0], "slow_active", "for long")
    for _ in range(2):
        alerts_repeat()
        later(minutes=1)
    first, second = (json.loads(request.get_data()) for request, _ in httpserver.log)
    assert [each["labels"] for each in first] == [each["labels"] for each in second]
    both = next(each for each in first if each["labels"]["alertname"] == "effect_dead")
    assert both["labels"] == {
        "alertname": "effect_dead", "installation": both["labels"]["installation"], "severity": "warning", "cause": "T2_X",
        "site": "T2_X",
    }  # fmt: skip
    assert both["annotations"]["runbook_url"] == "https://docs.example.org/runbook#effect_dead"
    assert both["annotations"]["summary"] == "2 requests: effect_dead at T2_X" and both["endsAt"] > both["startsAt"]
    for row in rows:
        alert_off(row, "effect_dead")
    alerts_repeat()
    third = {each["labels"]["alertname"]: each for each in json.loads(httpserver.log[2][0].get_data())}
    assert third["effect_dead"]["endsAt"] in {at.isoformat() for at in Alert.objects.values_list("ended_at", flat=True) if at}
    assert "heartbeat" not in third, "no leader looks after anything"


def test_a_real_alertmanager_has_what_is_open_under_its_silence_and_drops_what_is_over(channel: Channel, tmp_path: Path) -> None:
    with alertmanager(tmp_path) as url:

        def states() -> dict[str, str]:
            listed = requests.get(f"{url}/api/v2/alerts", timeout=9).json()
            return {each["labels"]["cause"]: each["status"]["state"] for each in listed}

        channel("alertmanager", {"code": "effect_*"}, address=url)
        first, second = dead("T2_X", "T2_Y")
        alerts_repeat()
        until(lambda: states() == {"T2_X": "active", "T2_Y": "active"}, states)
        silence = {
            "matchers": [{"name": "site", "value": "T2_X", "isRegex": False, "isEqual": True}],
            "startsAt": timezone.now().isoformat(), "endsAt": (timezone.now() + timedelta(hours=1)).isoformat(),
            "createdBy": "olga", "comment": "known",
        }  # fmt: skip
        assert requests.post(f"{url}/api/v2/silences", json=silence, timeout=9).status_code == 200
        until(lambda: states() == {"T2_X": "suppressed", "T2_Y": "active"}, states)
        alert_off(second, "effect_dead")
        alerts_repeat()
        until(lambda: states() == {"T2_X": "suppressed"}, states)
        alert_off(first, "effect_dead")
        alerts_repeat()
        until(lambda: states() == {}, states)


def test_what_was_given_back_is_sent_again(channel: Channel, mails: MailServer, later: Later) -> None:
    channel("mail")
    dead("T2_X")
    one = Alert.objects.get()
    alert_acknowledge(alert=one, **BY)
    assert sent() == 0
    one.refresh_from_db()
    alert_give_back(alert=one, **BY)
    assert sent() == 1
