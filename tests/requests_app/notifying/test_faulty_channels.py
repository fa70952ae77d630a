"""Channels that hang, refuse, accept half or lead elsewhere; processes that send at once, die or are late; clocks that jump."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from django.utils import timezone
from pytest_httpserver import HTTPServer
from werkzeug import Request as WebRequest
from werkzeug import Response

from requests_app.alerts import alert
from requests_app.models import LEADER_LEASE, AlertChannel, AlertMessage, Lease, RequestStatus
from requests_app.notifying import leading, mail, send
from requests_app.notifying.compose import messages_compose
from requests_app.services.alerts import request_watch
from tests.support.alerting import Channel, Later, alerts_repeat, dead, sent
from tests.support.calls import stopping
from tests.support.mail_server import MailServer
from tests.support.rows import request_row
from wms2.adapters import webhooks
from wms2.conf import conf
from wms2.errors import ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.circuits import circuits

pytestmark = pytest.mark.django_db


@contextmanager
def dripping(first: bytes = b"") -> Iterator[int]:
    """A server that sends a byte now and then, for far longer than its clients have time; its port."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                one, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(one,), daemon=True).start()

    def drip(one: socket.socket) -> None:
        with one:
            try:
                one.sendall(first)
                for _ in range(400):
                    if over.wait(0.05):
                        return
                    one.sendall(b"2")
            except OSError:
                return  # it was given up

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)


def problem_of(name: str) -> str:
    row = AlertChannel.objects.get(name=name)
    return row.last_error if row.failing_since is not None else ""


def test_a_channel_that_answers_byte_by_byte_is_given_up_and_the_others_get_theirs(
    channel: Channel, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_SECONDS", 0.3)
    monkeypatch.setattr(mail, "_WHOLE_SECONDS", 0.3)
    with dripping(b"HTTP/1.1 200 OK\r\nX-Slow: ") as hook, dripping(b"220-") as server:
        channel("webhook", address=f"http://127.0.0.1:{hook}/")
        channel("mattermost", address=f"http://127.0.0.1:{hook}/")
        channel("mail")
        dead("T2_X")
        monkeypatch.setenv("WMS2_MAIL_SERVER", f"127.0.0.1:{server}")
        conf.cache_clear()
        assert sent() == 0
        assert "no whole answer within 0.3 s" in problem_of("webhook") and "no whole answer" in problem_of("mattermost")
        assert "not done within 0.3 s" in problem_of("mail")


def test_a_mail_server_that_hangs_keeps_workers_for_three_mails_however_many_wait(
    channel: Channel, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "_WHOLE_SECONDS", 0.3)
    for number in range(8):
        channel("mail", name=f"mail{number}")
    dead("T2_X")
    with dripping(b"220-") as server:
        monkeypatch.setenv("WMS2_MAIL_SERVER", f"127.0.0.1:{server}")
        conf.cache_clear()
        assert sent() == 0
    said = [problem_of(f"mail{number}") for number in range(8)]
    assert ["not done within" in each for each in said].count(True) == 3 and all(said)


def test_a_channel_that_fails_for_an_hour_gets_what_came_meanwhile_as_one_message_and_is_on_the_board(
    channel: Channel, httpserver: HTTPServer, later: Later
) -> None:
    answers = [500]
    taken: list[WebRequest] = []

    def take(request: WebRequest) -> Response:
        taken.append(request)
        return Response(status=answers[-1])

    httpserver.expect_request("/webhook", method="POST").respond_with_handler(take)
    hook = channel("webhook")
    for minute in range(60):
        dead(f"T2_{minute}")
        assert sent() == 0
        later(minutes=1)
        circuits().clear()  # which knows another clock
    assert AlertMessage.objects.count() == 1
    assert 8 <= len(taken) <= 16, "pauses grow up to ten minutes"
    hook.refresh_from_db()
    assert hook.failures == len(taken) and "HTTP 500" in problem_of("webhook")
    answers.append(204)
    later(minutes=13)
    assert (sent(), sent()) == (1, 0)
    later(minutes=1, seconds=1)
    assert (sent(), sent()) == (1, 0)
    said = [each.get_json()["data"]["alerts"] for each in taken[-2:]]
    assert [[each["cause"] for each in items] for items in said] == [["T2_0"], [f"T2_{minute}" for minute in range(1, 51)]]
    assert taken[-1].get_json()["data"]["left_out"] == 9
    assert problem_of("webhook") == ""


def test_a_mail_server_that_takes_half_is_not_sent_that_half_again(channel: Channel, mails: MailServer, later: Later) -> None:
    channel("mail", address="one@example.org,two@example.org,three@example.org")
    mails.answers = {"two@example.org": "450 try again", "three@example.org": "550 no such user"}
    dead("T2_X")
    assert sent() == 0
    assert "two@example.org (450 try again)" in (said := problem_of("mail")) and "three@example.org (550 no such user)" in said
    dead("T2_Y")
    later(minutes=1, seconds=1)
    assert sent() == 0, "the next one does not wait for two"
    assert [to for to, _ in mails.mails] == [["one@example.org"]] * 2
    del mails.answers["two@example.org"]
    later(minutes=1)
    assert sent() == 2
    assert [to for to, _ in mails.mails[2:]] == [["two@example.org"]] * 2
    assert len({mail["Message-ID"] for _, mail in mails.mails}) == 2
    dead("T2_Z")
    later(minutes=1, seconds=1)
    assert sent() == 1 and "three@example.org" in problem_of("mail"), "they have it; one address is wrong"
    since = AlertChannel.objects.get().failing_since
    dead("T2_V")
    later(minutes=1, seconds=1)
    assert sent() == 1 and AlertChannel.objects.get().failing_since == since
    mails.answers = {}
    dead("T2_U")
    later(minutes=1, seconds=1)
    assert sent() == 1 and problem_of("mail") == ""


def test_a_mail_that_a_part_has_is_given_up_for_the_others_after_an_hour(
    channel: Channel, mails: MailServer, later: Later
) -> None:
    channel("mail", address="one@example.org,two@example.org")
    mails.answers = {"two@example.org": "452 mailbox full"}
    dead("T2_X")
    for _ in range(7):
        sent()
        later(minutes=13)
    message = AlertMessage.objects.get()
    assert (message.sent_at, message.given_up_at is not None, len(mails.mails)) == (None, True, 1)


def test_an_address_that_cannot_stand_in_a_mail_keeps_no_other_message_waiting(
    channel: Channel, mails: MailServer, later: Later
) -> None:
    odd = get_user_model().objects.create_user("odd", email="odd@example.org\nBcc: all@example.org")
    request = request_row(RequestStatus.ACTIVE)
    request_watch(request=request, actor=odd.username, reason="mine")
    alert(request, "effect_dead", "x")
    sent()
    channel("mail")
    assert sent() == 1
    assert [to for to, _ in mails.mails] == [["ops@example.org"]]
    refused = AlertMessage.objects.get(user=odd)
    assert refused.sent_at is None and "an address is wrong" in refused.last_error


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_an_inner_address_is_not_followed(channel: Channel, httpserver: HTTPServer, status: int) -> None:
    httpserver.expect_request("/webhook").respond_with_data("", status=status, headers={"Location": httpserver.url_for("/inner")})
    httpserver.expect_request("/inner").respond_with_data("secrets")
    channel("webhook")
    dead("T2_X")
    assert sent() == 0
    assert [request.path for request, _ in httpserver.log] == ["/webhook"]
    assert f"HTTP {status}" in problem_of("webhook") and "secrets" not in problem_of("webhook")


@pytest.mark.parametrize(
    "address", ["http://169.254.169.254/latest/", "https://169.254.169.254/", "https://10.0.0.1/", "http://[::ffff:a9fe:a9fe]/"]
)
def test_what_is_not_allowed_any_more_is_not_asked(channel: Channel, address: str) -> None:
    """A row that was written past the form, or whose host has left the setting."""
    channel("webhook", address=address)
    dead("T2_X")
    assert sent() == 0
    assert problem_of("webhook").startswith("the address ")


def test_a_secret_is_read_at_each_try(channel: Channel, httpserver: HTTPServer, later: Later) -> None:
    signatures: list[str] = []

    def take(request: WebRequest) -> Response:
        signatures.append(request.headers["webhook-signature"])
        return Response(status=401 if len(signatures) < 3 else 204)

    httpserver.expect_request("/webhook", method="POST").respond_with_handler(take)
    httpserver.expect_request("/mattermost/xyz123").respond_with_data("gone", status=404)
    httpserver.expect_request("/mattermost/fresh").respond_with_data("ok")
    channel("webhook"), channel("mattermost")
    hook, chat = (Path(conf().alert_secrets[name]) for name in ("hook", "chat"))
    dead("T2_X")
    assert sent() == 0
    old = hook.read_text()
    hook.write_text("")  # in the middle of being written
    chat.write_text("fresh\n")
    later(minutes=1)
    assert sent() == 1
    assert "is empty" in problem_of("webhook") and problem_of("mattermost") == ""
    hook.write_text(old + "whsec_" + "Zm9yIHRoZSBuZXcgb25lLCAzMiBieXRlcyBhcmUgaGVyZQ==\n")
    later(minutes=2)
    assert sent() == 0
    assert signatures[1].split(" ")[0] != signatures[1] and len(signatures[1].split(" ")) == 2, "signed with both"
    hook.write_text(hook.read_text().splitlines()[1])
    later(minutes=5)
    assert sent() == 1
    assert len(signatures[2].split(" ")) == 1


def test_a_process_that_is_late_does_not_take_a_message_from_the_one_that_has_it(
    channel: Channel, mails: MailServer, later: Later
) -> None:
    channel("mail")
    dead("T2_X")
    messages_compose()
    slow = send.message_claim()
    assert slow is not None and send.message_claim() is None
    later(minutes=4)
    other = send.message_claim()
    assert other is not None and (other.pk, other.attempts) == (slow.pk, 2)
    send.message_record(slow, ServiceUnavailable("mail", "send", "late"))
    later(minutes=1)
    assert send.message_claim() is None, "the other one is still at it"
    send.message_record(other, None)
    assert AlertMessage.objects.get().sent_at is not None


@pytest.mark.parametrize("leader", [False, True])
def test_a_process_that_was_stopped_after_it_took_a_message_does_not_send_it(
    channel: Channel, mails: MailServer, monkeypatch: pytest.MonkeyPatch, leader: bool
) -> None:
    """Another has sent it meanwhile."""
    stop, claimed = stopping(monkeypatch), send.message_claim
    channel("mail")
    dead("T2_X")
    messages_compose()

    def stopped(**how: timedelta) -> AlertMessage | None:
        if (found := claimed(**({"overdue": timedelta()} if leader else how))) is not None:
            stop(181)
        return found

    with monkeypatch.context() as once:
        once.setattr(leading if leader else send, "message_claim", stopped)
        if leader:
            alerts_repeat()
        else:
            assert send.messages_send(seconds=30) == 0
    assert mails.mails == []
    AlertMessage.objects.update(claimed_until=None)
    assert sent() == 1


def test_a_clock_that_was_ahead_keeps_nothing_waiting_when_it_is_right_again(
    channel: Channel, mails: MailServer, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    httpserver.expect_request("/webhook").respond_with_data("", status=500)
    ahead = timedelta(0)

    def now() -> datetime:
        return timezone.now() + ahead

    monkeypatch.setattr(clock, "now", now)
    channel("mail"), channel("webhook")
    ahead = timedelta(hours=5)
    dead("T2_X")
    assert sent() == 1  # the other one waits for a moment five hours ahead
    ahead = timedelta(0)
    httpserver.clear()
    httpserver.expect_request("/webhook").respond_with_data("")
    dead("T2_Y")
    assert sent() == 2
    assert len(mails.mails) == 2


def test_a_digest_made_while_the_clock_was_a_day_ahead_does_not_stand_for_the_right_days(
    channel: Channel, mails: MailServer, later: Later
) -> None:
    channel("mail", {"code": "none"}, digest=True)
    later(hours=(31 - timezone.now().hour) % 24 + 24)
    assert sent() == 1
    later(hours=24)
    assert sent() == 1
    AlertMessage.objects.filter(created_at__gt=clock.now() - timedelta(hours=1)).update(
        created_at=clock.now() + timedelta(days=1)
    )
    assert sent() == 1


def test_a_heartbeat_that_arrives_takes_no_channel_off_the_board_whose_messages_do_not(
    channel: Channel, httpserver: HTTPServer, later: Later
) -> None:
    said: list[str] = []

    def take(request: WebRequest) -> Response:
        said.append(request.get_json()["type"])
        return Response(status=400 if said[-1] == "alerts.changed" else 204)

    httpserver.expect_request("/webhook", method="POST").respond_with_handler(take)
    channel("webhook", heartbeat=True)
    cycle = {"cycle_ended_at": timezone.now().isoformat(), "seconds": 0.1}
    lasts = timezone.now() + timedelta(hours=1)
    Lease.objects.update_or_create(name=LEADER_LEASE, defaults={"owner": "here", "expires_at": lasts, "data": cycle})
    dead("T2_X")
    assert sent() == 0
    alerts_repeat()
    assert said == ["alerts.changed", "heartbeat"] and "HTTP 400" in problem_of("webhook")


@pytest.mark.django_db(transaction=True)
def test_two_processes_that_send_at_once_send_each_message_once(channel: Channel, mails: MailServer) -> None:
    for number in range(12):
        channel("mail", name=f"mail{number}", address=f"ops{number}@example.org")
    dead("T2_X")
    assert messages_compose() == 12
    both = threading.Barrier(2)

    def process() -> int:
        both.wait()
        try:
            return send.messages_send(seconds=60)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        arrived = [each.result() for each in [pool.submit(process) for _ in range(2)]]
    assert sum(arrived) == 12
    assert sorted(to for to, _ in mails.mails) == sorted([f"ops{number}@example.org"] for number in range(12))
