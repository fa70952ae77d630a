"""The leader sends alerts by itself: no worker runs here."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import requests
from django.utils import timezone
from pytest_httpserver import HTTPServer

from requests_app.lifecycle import cycle
from requests_app.lifecycle.cycle import run_cycle
from requests_app.models import LEADER_LEASE, Alert, AlertChannel, AlertMessage, Lease
from requests_app.notifying import leading
from requests_app.notifying.leading import FromLeader
from tests.support.alerting import Channel, Later, dead
from tests.support.mail_server import MailServer
from tests.support.monitoring import alertmanager
from tests.support.waiting import until
from wms2.adapters import webhooks

pytestmark = pytest.mark.django_db
#: A process that begins to lead.
Process = Callable[[], FromLeader]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    def made() -> FromLeader:
        leader = FromLeader()
        monkeypatch.setattr(cycle, "ALERTS", leader)
        return leader

    made()
    return made


def led() -> None:
    """A cycle, and the poll after the calls that it began."""
    run_cycle(force=True)
    cycle.ALERTS.finish()


def test_a_real_alertmanager_has_what_is_open_and_the_heartbeat_from_wherever_the_leader_is(
    channel: Channel, tmp_path: Path, process: Process, later: Later
) -> None:
    with alertmanager(tmp_path) as url:

        def ends() -> dict[str, str]:
            listed = requests.get(f"{url}/api/v2/alerts", timeout=9).json()
            return {each["labels"]["alertname"]: each["endsAt"] for each in listed}

        channel("alertmanager", {"code": "effect_*"}, address=url, heartbeat=True)
        dead("T2_X")
        led()
        until(lambda: ends().keys() == {"effect_dead", "heartbeat"}, ends)
        before = ends()
        process()  # another one of the node: the minute is not over
        led()
        later(minutes=1)
        Lease.objects.filter(name=LEADER_LEASE).update(
            owner="elsewhere", process="elsewhere", expires_at=timezone.now() + timedelta(hours=1)
        )
        process()
        assert not run_cycle(force=True), "a standby"
        cycle.ALERTS.finish()
        assert ends() == before
        Lease.objects.filter(name=LEADER_LEASE).update(expires_at=timezone.now() - timedelta(minutes=1))
        led()
        until(lambda: all(ends()[name] > at for name, at in before.items()), ends)


def test_a_channel_that_does_not_answer_keeps_no_cycle_waiting_and_is_on_the_board_and_an_alert(
    channel: Channel, httpserver: HTTPServer, process: Process, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_SECONDS", 600.0)  # longer than the cycles take here
    httpserver.expect_request("/api/v2/alerts", method="POST").respond_with_data("")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel("alertmanager", address=f"http://127.0.0.1:{silent.getsockname()[1]}/", name="silent")
        channel("alertmanager", name="other")
        dead("T2_X")
        assert run_cycle(force=True), "while the call goes on"
        later(minutes=1, seconds=1)
        cycle.ALERTS._next_at = -1.0
        assert run_cycle(force=True)
    cycle.ALERTS.finish()
    assert AlertChannel.objects.get(name="other").sent_at is not None
    row = AlertChannel.objects.get(name="silent")
    assert (row.failures, row.failing_since is not None) == (1, True), "one call at a time"
    led()
    assert Alert.objects.get(code="channel_failing").subject == "silent"


def test_messages_that_no_worker_takes_are_sent_a_minute_later(
    channel: Channel, mails: MailServer, process: Process, later: Later
) -> None:
    channel("mail")
    dead("T2_X")
    led()
    assert (AlertMessage.objects.count(), mails.mails) == (1, []), "a worker may be about to take it"
    later(minutes=1, seconds=1)
    cycle.ALERTS._next_at = -1.0
    led()
    assert [to for to, _ in mails.mails] == [["ops@example.org"]]
    assert AlertMessage.objects.get().sent_at is not None and AlertChannel.objects.get().sent_at is not None


def test_a_process_that_was_stopped_before_it_called_calls_no_more(
    channel: Channel, httpserver: HTTPServer, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel("alertmanager")
    dead("T2_X")
    monkeypatch.setattr(leading, "_FRESH_SECONDS", -1.0)
    led()
    assert httpserver.log == []
    row = AlertChannel.objects.get()
    assert (row.failures, row.sent_at) == (0, None)
