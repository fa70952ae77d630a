"""The newest events, rendered once and shared by all readers of a process: the only buffer there is, and it is bounded.

A reader has nothing but its place. One that is so slow that its place has left the ring has to go, and comes back by its id.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from wms2.stream.tickets import Ticket

MOST_EVENTS, MOST_BYTES = 10_000, 16 << 20


class Item(NamedTuple):
    """An event and the bytes that every reader of it gets."""

    position: int
    kind: str
    request: str | None
    sent: bytes

    def is_for(self, ticket: Ticket) -> bool:
        """Whether a reader asked for it."""
        return (not ticket.kinds or self.kind in ticket.kinds) and ticket.request in (None, self.request)


class Behind(Exception):
    """The ring does not reach back so far."""


def item(position: int, kind: str, request: UUID | None, at: datetime, name: str | None, data: Any) -> Item:
    """A row of the feed, as the web shows it."""
    moment = at.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"
    shown = {"id": position, "at": moment, "kind": kind, "request": name, "data": data}
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")  # ends of lines to some readers
    return Item(position, kind, str(request) if request else None, f"id: {position}\ndata: {text}\n\n".encode())


class Ring:
    """Events behind ``begin`` up to ``last``. ``news`` is set when there are more, and another one then stands in its place;
    ``feed`` counts the feeds: a restored database goes on with places of its own."""

    def __init__(self, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self.begin = self.last = 0
        self.feed = 0
        self.news = asyncio.Event()
        self._items: list[Item] = []
        self._bytes = 0
        self._most = most_events, most_bytes

    def clear(self, begin: int) -> None:
        """Start over behind a place; all readers have to ask again."""
        self._items, self._bytes, self.begin, self.last, self.feed = [], 0, begin, begin, self.feed + 1
        self.call()

    def add(self, items: Iterable[Item]) -> None:
        """The next ones; the oldest go."""
        for each in items:
            self._items.append(each)
            self._bytes += len(each.sent)
            self.last = each.position
        self._shorten()
        self.call()

    def call(self) -> None:
        """Wake the readers that wait."""
        called, self.news = self.news, asyncio.Event()
        called.set()

    def behind(self, place: int, most: int) -> Sequence[Item]:
        """So many events behind a place at most.

        Raises:
            Behind: some of them have left the ring.
        """
        if place < self.begin:
            raise Behind
        at = bisect_right(self._items, place, key=itemgetter(0))
        return self._items[at : at + most]

    def _shorten(self) -> None:
        events, most_bytes = self._most
        over = max(0, len(self._items) - events)
        left = self._bytes - sum(len(each.sent) for each in self._items[:over])
        while left > most_bytes:
            left -= len(self._items[over].sent)
            over += 1
        if over:
            self.begin = self._items[over - 1].position
            del self._items[:over]
            self._bytes = left
