"""The ASGI application of the process ``stream``: any address with a ticket is a stream, ``/livez`` says how it stands."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import psycopg
import structlog

from wms2.metrics.series import READERS_REFUSED_TOTAL, STREAMS_TOTAL
from wms2.stream.database import Database
from wms2.stream.ring import Behind, Ring
from wms2.stream.tickets import Ticket, TicketRefused, opened

#: A stream ends after this, and its reader comes back over the web, which judges it anew.
LIFE_SECONDS = 600.0
#: Something is written so often, so that what stands between does not take the stream for dead.
HEARTBEAT_SECONDS = 15.0
#: A reader that takes nothing for so long has gone.
SEND_SECONDS = 60.0
#: Events that are written together: what waits in a connection is little.
TOGETHER = 100
#: Connections leave cycles behind, which Python alone would collect after thousands of them.
COLLECTED_AFTER = 100
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_HEADERS = [(b"cache-control", b"no-store"), (b"access-control-allow-origin", b"*"), (b"x-content-type-options", b"nosniff")]
_STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"), *_HEADERS]
log = structlog.get_logger(__name__)


class Stream:
    """One process's streams: a ring, a session that fills it, readers."""

    def __init__(self, url: str, secret: str, most: int) -> None:
        self._secret, self._most = secret, most
        self.ring = Ring()
        self.database = Database(url, self.ring)
        self.readers = self._ended = 0
        self._stops = False
        self._following: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End all streams: their readers come back to the next process."""
        self._stops = True
        self.ring.call()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._following = asyncio.create_task(self.database.follow())
        self._following.add_done_callback(_end_with_it)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._following.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        tickets = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [""])
        if scope["path"] == "/livez":
            said = {"status": "ok", "readers": self.readers, "place": self.ring.last, "database": self.database.away or "ok"}
            await _reply(send, 200, said)
        elif scope["method"] != "GET":
            await _problem(send, 405, "method_not_allowed", "streams of events are read with GET")
        elif not self.ring.feed:
            await _problem(send, 503, "unavailable", f"the database has not answered yet: {self.database.away}")
        elif self._stops or self.readers >= self._most:
            READERS_REFUSED_TOTAL.inc()
            await _problem(send, 503, "too_many_readers", f"this process takes {self._most} readers; come back after Retry-After")
        else:
            try:
                ticket = opened(tickets[0], self._secret)
            except TicketRefused as refusal:
                await _problem(send, 403, "ticket_refused", f"{refusal}: begin at /api/v1/events/stream, which leads here")
            else:
                await self._serve(ticket, receive, send)

    async def _serve(self, ticket: Ticket, receive: Receive, send: Send) -> None:
        """Write until the stream ends or its reader leaves."""
        self.readers += 1
        writing = asyncio.create_task(self._write(ticket, send))
        leaving = asyncio.create_task(_left(receive))
        why = "failed"
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            why = writing.result() if writing.done() else "left"
        finally:
            self.readers -= 1
            STREAMS_TOTAL.labels(why).inc()
            self._ended += 1
            if self._ended % COLLECTED_AFTER == 0:
                gc.collect()
            writing.cancel()
            leaving.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)

    async def _write(self, ticket: Ticket, send: Send) -> str:
        """The whole answer; why it ended."""
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        why = "life"
        try:
            async for part in self._parts(ticket):
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            why = "stopped" if self._stops else why
        except TimeoutError:
            return "silent"
        except Behind:
            why = "behind"
        except (psycopg.Error, OSError):
            why = "database"
        last = f": this stream ends ({why}); go on with the last id\n\n".encode()
        await send({"type": "http.response.body", "body": last, "more_body": False})
        return why

    async def _parts(self, ticket: Ticket) -> AsyncIterator[bytes]:
        """A line with nothing but an id says where to go on, if nothing that the reader wants has come for some time."""
        began, sent_at, place, feed = time.monotonic(), 0.0, ticket.after, self.ring.feed
        yield b"retry: 2000\n"
        if place < self.ring.begin:
            async for found, reached in self.database.behind(ticket, place):
                place = reached
                yield b"".join(each.sent for each in found)
        while not self._stops and (now := time.monotonic()) - began < LIFE_SECONDS:
            if self.ring.feed != feed:
                raise Behind
            news, behind = self.ring.news, self.ring.behind(place, TOGETHER)
            place = behind[-1].position if behind else place
            if part := b"".join(each.sent for each in behind if each.is_for(ticket)) or self._heartbeat(now - sent_at, place):
                sent_at = now
                yield part
            if len(behind) < TOGETHER:
                await _first_of(news, HEARTBEAT_SECONDS)

    def _heartbeat(self, silent_seconds: float, place: int) -> bytes:
        if silent_seconds < HEARTBEAT_SECONDS:
            return b""
        return b": the database does not answer\n\n" if self.database.away else b": nothing new\nid: %d\n\n" % place


async def _first_of(news: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await news.wait()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _reply(send: Send, status: int, body: object, *more: tuple[bytes, bytes]) -> None:
    text = json.dumps(body).encode()
    media_type = b"application/json" if status == 200 else b"application/problem+json"
    headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(text)), *more, *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def _problem(send: Send, status: int, code: str, detail: str) -> None:
    """As ``wms2.api.problems`` has it, which stands on Django."""
    title = HTTPStatus(status).phrase
    body = {"type": f"urn:wms2:problem:{code}", "title": title, "status": status, "detail": detail, "code": code}
    more = [(b"retry-after", b"5")] if status == 503 else []
    await _reply(send, status, body | {"field": None, "hint": None}, *more)


def _end_with_it(following: asyncio.Task[None]) -> None:
    """Without what fills the ring there are no streams: an error that is not of the database's ends the process."""
    if not following.cancelled() and (error := following.exception()):
        log.error("the feed cannot be followed", exc_info=error)
        os._exit(1)  # gunicorn starts another one


def from_environment() -> Stream:
    """With the settings that all processes have; called by ``deploy.run.stream``."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    given = os.environ
    return Stream(given["WMS2_DATABASE_URL"], given["WMS2_SECRET_KEY"], int(given.get("WMS2_STREAM_READERS") or 1000))
