"""The process ``stream`` beside a web server, both real, on the test's database."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User
from django.db import connection
from rest_framework.authtoken.models import Token

from requests_app.feed import emit_event, newest, publish
from requests_app.models import Event, RequestStatus
from tests.support.rows import request_row
from tests.support.streams import PATIENCE, sessions, streaming
from wms2.metrics.series import STREAMS_TOTAL
from wms2.stream import application, tickets
from wms2.stream.ring import Behind, Ring, item


@pytest.fixture
def stream(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address."""
    with streaming(monkeypatch, WMS2_STREAM_READERS="30") as running:
        yield running.address


@pytest.fixture
def reader(live_server: Any) -> Iterator[requests.Session]:
    with requests.Session() as made:
        made.headers["Authorization"] = f"Token {Token.objects.create(user=User.objects.create_user('rita')).key}"
        yield made


def lines(answer: requests.Response) -> Iterator[str]:
    return answer.iter_lines(chunk_size=1, decode_unicode=True)


def next_event(found: Iterator[str]) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(next(line for line in found if line.startswith("data: ")).removeprefix("data: "))
    return shown


def test_readers_share_one_session_and_get_what_they_asked_for_from_where_they_were(
    stream: str, reader: requests.Session, live_server: Any
) -> None:
    address = f"{live_server.url}/api/v1/events/stream"
    request = request_row(RequestStatus.QUEUED)
    emit_event("before", request, number=1)
    begin = newest()
    with ExitStack() as open_:

        def opened(query: str, **headers: str) -> Iterator[str]:
            answer = open_.enter_context(reader.get(address + query, stream=True, timeout=PATIENCE, headers=headers))
            assert (answer.status_code, answer.url.partition("?")[0]) == (200, f"{stream}/stream"), answer.text
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            return lines(answer)

        many = [opened("") for _ in range(20)]
        of_request, of_kind = opened(f"?request={request.request_name}"), opened("?kind=wanted,other")
        again = opened("", **{"Last-Event-ID": str(begin - 1)})
        assert sessions() == 1
        assert requests.get(f"{stream}/livez", timeout=PATIENCE).json()["readers"] == 23
        emit_event("unwanted")
        emit_event("wanted", request, text="ü\u2028")
        # it gives places by itself: no life cycle runs here
        assert [next_event(found)["kind"] for found in (of_request, of_kind, again)] == ["wanted", "wanted", "before"]
        got = [(next_event(found), next_event(found)) for found in many]
        assert got == [got[0]] * 20
        same = reader.get(f"{live_server.url}/api/v1/events?after={begin}", timeout=PATIENCE).json()["events"]
        assert list(got[0]) == same, "as the web shows them"
        with pytest.raises(AssertionError, match="takes 30 readers"):
            for _ in range(8):
                opened("")
    assert reader.get(f"{address}?after={begin + 99}", timeout=PATIENCE).json()["code"] == "events_gone"

    # only a ticket of the web's opens it
    assert requests.get(f"{live_server.url}/api/v1/events/stream", timeout=PATIENCE).status_code == 401
    led = reader.get(f"{live_server.url}/api/v1/events/stream?after=0&kind=a", timeout=PATIENCE, allow_redirects=False)
    address, _, ticket = led.headers["Location"].partition("?ticket=")
    assert (led.status_code, led.headers["Cache-Control"]) == (307, "no-store")
    other = tickets.signed(0, (), None, "another key")
    for wrong in ("", "x", "x.y", "ü.ü", ticket[:-1], f"A{ticket}", other):
        refused = requests.get(address, params={"ticket": wrong}, timeout=PATIENCE)
        assert (refused.status_code, refused.json()["code"]) == (403, "ticket_refused"), wrong
    assert requests.post(f"{address}?ticket={ticket}", timeout=PATIENCE).status_code == 405


def test_an_expired_ticket_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = tickets.signed(7, ("a",), None, "key")
    assert tickets.opened(given, "key")[:3] == (7, ("a",), None)
    late = time.time() + tickets.SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: late)
    with pytest.raises(tickets.TicketRefused, match="expired"):
        tickets.opened(given, "key")


def test_what_left_the_ring_is_read_from_the_database_and_an_older_copy_ends_the_streams(
    stream: str, reader: requests.Session, live_server: Any
) -> None:
    Event.objects.bulk_create(Event(kind="many", data={"number": number}) for number in range(3000))
    last = newest()
    address = f"{live_server.url}/api/v1/events/stream?after={last - 3000}"
    with reader.get(address, stream=True, timeout=PATIENCE) as answer:
        found = lines(answer)
        assert [next_event(found)["data"]["number"] for _ in range(3000)] == [*range(3000)]
        with connection.cursor() as cursor:
            cursor.execute("UPDATE event_feed SET last = 5")
        assert any(line.startswith(": this stream ends (behind)") for line in found)


def test_while_the_database_is_away_readers_stay_and_then_go_on(stream: str, reader: requests.Session, live_server: Any) -> None:
    with reader.get(f"{live_server.url}/api/v1/events/stream", stream=True, timeout=PATIENCE) as answer:
        found = lines(answer)
        assert next(found) == "retry: 2000"
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'wms2-stream'")
        emit_event("after")
        publish()
        assert next_event(found)["kind"] == "after"


def test_the_ring_is_bounded_and_who_fell_out_of_it_is_sent_back() -> None:
    ring = Ring(most_events=3, most_bytes=10**6)
    ring.clear(10)
    moment = datetime(2026, 11, 27, tzinfo=UTC)
    ring.add(item(place, "kind", None, moment, None, {}) for place in range(11, 16))
    assert [each.position for each in ring.behind(12, 10)] == [13, 14, 15]
    with pytest.raises(Behind):
        ring.behind(11, 10)
    small = Ring(most_events=10**6, most_bytes=500)
    small.clear(0)
    small.add(item(place, "kind", None, moment, None, "x" * 150) for place in range(1, 6))
    assert [each.position for each in small.behind(small.begin, 10)] == [4, 5]


def test_a_reader_that_reads_nothing_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is full: what is sent waits, and no longer than ``SEND_SECONDS``."""
    monkeypatch.setattr(application, "SEND_SECONDS", 0.01)
    stream = application.Stream("", "key", most=1)
    stream.ring.clear(10)
    query = f"ticket={tickets.signed(10, (), None, 'key')}".encode()
    statuses, counted = [], STREAMS_TOTAL.labels("silent")._value.get()

    async def read_nothing() -> None:
        async def never(message: Any = None) -> Any:
            if message is not None and message["type"] == "http.response.start":
                statuses.append(message["status"])
                return
            await asyncio.Event().wait()

        await stream({"type": "http", "path": "/stream", "method": "GET", "query_string": query}, never, never)

    for _ in range(2):  # the second has the place of the first
        asyncio.run(read_nothing())
    assert (statuses, stream.readers) == ([200, 200], 0)
    assert STREAMS_TOTAL.labels("silent")._value.get() == counted + 2
