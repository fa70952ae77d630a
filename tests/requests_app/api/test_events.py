"""The feed over REST: asked, waited for, streamed, taken up again; over a real web server where waiting matters."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from requests_app import feed
from requests_app.api import events as api
from requests_app.feed import emit_event, newest, publish
from requests_app.models import Event, RequestStatus
from tests.support.problems import problem
from tests.support.rows import request_row
from wms2.conf import conf

#: Far longer than anything here takes: it only ends a test that would hang.
PATIENCE = 60


@pytest.fixture
def address(live_server: Any) -> str:
    return f"{live_server.url}/api/v1/events"


@pytest.fixture
def session(transactional_db: None) -> Iterator[requests.Session]:
    with requests.Session() as made:
        token = Token.objects.create(user=User.objects.create_user("rita"))
        made.headers["Authorization"] = f"Token {token.key}"
        yield made


@pytest.fixture
def one_reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(feed, "conf", lambda: conf().model_copy(update={"feed_readers": 1}))
    feed._readers.cache_clear()
    yield
    feed._readers.cache_clear()


def streamed(session: requests.Session, url: str, number: int, **headers: str) -> list[dict[str, Any]]:
    """So many events of a stream, which is then left."""
    found = []
    with session.get(url, stream=True, timeout=PATIENCE, headers=headers) as answer:
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["X-Accel-Buffering"] == "no"
        ids, lines = [], answer.iter_lines(chunk_size=1, decode_unicode=True)
        while len(found) < number:
            name, _, value = next(lines).partition(": ")
            if name == "id":
                ids.append(int(value))
            if name == "data":
                found.append(json.loads(value))
                assert found[-1]["id"] == ids[-1]
    return found


@pytest.mark.django_db
def test_a_page_of_events_says_where_to_go_on(reader: APIClient) -> None:
    request = request_row(RequestStatus.QUEUED)
    for number in range(3):
        emit_event("alert", request, code=f"c{number}")
    first = reader.get("/api/v1/events?limit=2").json()
    assert [event["data"]["code"] for event in first["events"]] == ["c0", "c1"]
    assert first["events"][0] | {"at": ""} == {
        "id": 1, "at": "", "kind": "alert", "request": request.request_name, "data": {"code": "c0"},
    }  # fmt: skip
    assert (first["last_id"], first["oldest_id"]) == (2, 0)
    second = reader.get("/api/v1/events?after=2&limit=2").json()
    assert [event["id"] for event in second["events"]] == [3]
    assert reader.get("/api/v1/events?after=3").json() == {"events": [], "last_id": 3, "oldest_id": 0}
    assert len(reader.get(f"/api/v1/events?request={request.request_name}&kind=alert,alert_over").json()["events"]) == 3
    assert reader.get("/api/v1/events?kind=alert_over").json()["last_id"] == 3


@pytest.mark.django_db
def test_what_is_not_kept_any_more_is_said_to_be_gone(reader: APIClient) -> None:
    for _ in range(4):
        emit_event("test")
    publish()
    Event.objects.filter(position__lte=2).delete()
    for path in ("/api/v1/events?after=1", "/api/v1/events/stream?after=1"):
        reported = problem(reader.get(path), 410, "events_gone")
        assert "2 is the oldest id" in reported["detail"]
    assert [event["id"] for event in reader.get("/api/v1/events").json()["events"]] == [3, 4]
    problem(reader.get("/api/v1/events?after=99"), 410, "events_gone")


@pytest.mark.django_db
@pytest.mark.parametrize("asked", ["after=-1", "after=x", "kind=", "kind=A%20b", "wait=61", "limit=501", "until=3"])
def test_what_cannot_be_asked_is_refused(reader: APIClient, asked: str) -> None:
    assert reader.get(f"/api/v1/events?{asked}").status_code == 400


@pytest.mark.django_db
def test_a_last_id_of_any_length_is_no_number_to_count_with(reader: APIClient) -> None:
    for last in ("0" * 20 + "9" * 5000, "9" * 5000, "0" * 20 + "1"):
        problem(reader.get("/api/v1/events/stream", headers={"Last-Event-ID": last}), 400, "invalid", field="Last-Event-ID")


@pytest.mark.django_db
def test_only_who_is_signed_in_reads_it(nobody: APIClient, reader: APIClient) -> None:
    for path in ("/api/v1/events", "/api/v1/events/stream"):
        assert nobody.get(path).status_code == 401
    assert nobody.get("/api/v1/events/stream", headers={"Accept": "text/event-stream"}).status_code == 401
    assert reader.get("/api/v1/events?request=nobody_knows_it").status_code == 404


@pytest.mark.django_db
def test_a_reader_that_takes_nothing_keeps_its_thread_a_minute_at_most(reader: APIClient) -> None:
    """The web server's socket: what cannot be sent within that ends the stream."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader.get("/api/v1/events/stream", **{"gunicorn.socket": ours}).close()
        assert ours.gettimeout() == api.SEND_SECONDS


def test_a_reader_that_waits_is_answered_when_something_comes(address: str, session: requests.Session) -> None:
    emit_event("before")
    last = session.get(address, timeout=PATIENCE).json()["last_id"]
    empty = session.get(f"{address}?after={last}&wait=1", timeout=PATIENCE).json()
    assert empty == {"events": [], "last_id": last, "oldest_id": 0}, "and with nothing when nothing does"
    with session.get(f"{address}/stream?after={last}", stream=True, timeout=PATIENCE) as waiting:
        emit_event("while it waits")
        publish()  # as the life cycle's poll does
        lines = waiting.iter_lines(chunk_size=1, decode_unicode=True)
        data = next(line for line in lines if line.startswith("data: "))
    assert json.loads(data.removeprefix("data: "))["kind"] == "while it waits"


def test_a_stream_that_was_lost_goes_on_with_the_last_id(address: str, session: requests.Session) -> None:
    emit_event("of yesterday")
    emit_event("first")
    seen = streamed(session, f"{address}/stream?after=1", 1)
    for number in range(5):
        emit_event("away", number=number)
    seen += streamed(session, f"{address}/stream?after=1", 5, **{"Last-Event-ID": str(seen[-1]["id"])})
    assert [event["id"] for event in seen] == [2, 3, 4, 5, 6, 7], "Last-Event-ID before the address's own"


def test_a_filtered_stream_tells_by_heartbeats_how_far_it_is(
    address: str, session: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "HEARTBEAT_SECONDS", 0.05)
    emit_event("other")
    emit_event("other")
    with session.get(f"{address}/stream?after=0&kind=wanted", stream=True, timeout=PATIENCE) as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        assert next(line for line in lines if line.startswith("id: ")) == "id: 2"


@pytest.mark.usefixtures("one_reader")
def test_readers_that_wait_leave_threads_for_others(
    address: str, session: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "HEARTBEAT_SECONDS", 0.05)  # so soon a web server notices that its reader has gone
    with session.get(f"{address}/stream", stream=True, timeout=PATIENCE) as first:
        assert next(first.iter_lines(chunk_size=1)) == b"retry: 2000"
        for path in ("/stream", "?after=0&wait=30"):
            refused = session.get(address + path, timeout=PATIENCE)
            assert refused.json()["code"] == "too_many_readers"
            assert refused.headers["Retry-After"]
        emit_event("test")
        assert len(session.get(f"{address}?wait=30", timeout=PATIENCE).json()["events"]) == 1, "which does not wait"
    while session.get(f"{address}?after=1&wait=1", timeout=PATIENCE).status_code == 503:
        pass


def printed(*options: str) -> list[str]:
    out = StringIO()
    call_command("events", *options, stdout=out)
    return [json.loads(line)["kind"] for line in out.getvalue().splitlines()]


@pytest.mark.django_db
def test_the_command_prints_what_is_kept_and_goes_on_behind_an_id() -> None:
    request = request_row(RequestStatus.QUEUED)
    emit_event("first", request)
    last = newest()
    emit_event("second")
    assert [kind for kind in printed() if kind in ("first", "second")] == ["first", "second"]
    assert printed("--after", str(last)) == printed("--kind", "second") == ["second"]
    assert "first" in printed("--request", request.request_name) and "second" not in printed("--request", request.request_name)
    with pytest.raises(CommandError, match="no request"):
        printed("--request", "nobody")
    with pytest.raises(CommandError):
        printed("--after", str(last + 1000))


@pytest.mark.django_db(transaction=True)
def test_the_command_follows_what_comes() -> None:
    emit_event("before")
    newest()

    class Out(StringIO):
        """Ends the command, as an interrupt does, once it has printed something."""

        def write(self, text: str) -> int:
            super().write(text)
            raise KeyboardInterrupt

    def later() -> None:
        emit_event("after")
        connections.close_all()

    out, thread = Out(), threading.Timer(0.5, later)
    thread.start()
    call_command("events", "--follow", stdout=out)
    thread.join()
    assert json.loads(out.getvalue())["kind"] == "after"
