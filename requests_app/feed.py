"""The event feed: writing, giving places, reading, waiting (ADR 0029).

Ids of rows become visible out of order, since transactions commit out of order. So a reader goes by places: what is committed
is given the next ones by the process that has the feed's row locked until its own commit, and no two do that at once. A place
that can be seen has all those below it visible. An event that was written after another had been committed comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import BoundedSemaphore
from typing import Any, NamedTuple

from django.db import connection, transaction

from requests_app.models import Event, EventFeed, Request
from wms2.conf import conf
from wms2.errors import EventsGone, TooManyReaders
from wms2.metrics.series import READERS_REFUSED_TOTAL
from wms2.stream.statements import CALL, CHANNEL, PLACE, PORTION

#: A reader looks so often even without a notification: only the life cycle's polls and other readers give places.
CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader wants: events of these kinds (none: all) and of one request (None: all and those of none)."""

    kinds: tuple[str, ...] = ()
    request: Request | None = None
    limit: int = 500


class Page(NamedTuple):
    """Events in the order of the feed as (id, at, kind, request's name, data); reading goes on behind ``last_id``."""

    events: Sequence[tuple[Any, ...]]
    last_id: int
    oldest_id: int


def shown(event: tuple[Any, ...]) -> dict[str, Any]:
    """An event of a page, as readers get it."""
    return dict(zip(("id", "at", "kind", "request", "data"), event, strict=True))


def emit_event(kind: str, request: Request | None = None, **data: Any) -> None:
    """Add an event, in the caller's transaction."""
    Event.objects.create(request=request, kind=kind, data=data)


def publish() -> bool:
    """Give committed events their places, and notify the readers; False if nothing was left or another process is at it."""
    if not Event.objects.filter(position=None).exists():
        return False
    with transaction.atomic(), connection.cursor() as cursor:
        EventFeed.objects.bulk_create([EventFeed()], ignore_conflicts=True)  # the first time
        feed = EventFeed.objects.select_for_update(skip_locked=True).first()
        if feed is None:
            return False
        # another statement than the one that locks: it sees what the former holder of the lock has committed
        cursor.execute(PLACE, {"last": feed.last, "portion": PORTION})
        placed = int(cursor.rowcount)
        if placed:
            cursor.execute(CALL, {"placed": placed, "channel": CHANNEL})
    return placed > 0


def newest() -> int:
    """The id to read on from for what comes from now on."""
    while publish():
        pass
    return _feed().last


def read(wanted: Wanted, after: int | None) -> Page:
    """Events behind that id; from the oldest that is kept without one.

    Raises:
        EventsGone: some behind it are not kept any more, or it is not of this feed.
    """
    publish()
    feed = _feed()
    rows = Event.objects.filter(position__lte=feed.last)
    if wanted.kinds:
        rows = rows.filter(kind__in=wanted.kinds)
    if wanted.request is not None:
        rows = rows.filter(request=wanted.request)
    elif after is None:
        after = feed.removed
    rows = rows.filter(position__gt=after or 0).order_by("position")
    found = list(rows.values_list("position", "at", "kind", "request__request_name", "data")[: wanted.limit])
    # looked at after reading, so that nothing was removed in between; the events of one request are kept together
    gone = _feed().removed if wanted.request is None else 0
    if after is not None and not gone <= after <= feed.last:
        raise EventsGone(after, gone, feed.last)
    return Page(found, int(found[-1][0] or 0) if len(found) == wanted.limit else feed.last, gone)


def _feed() -> EventFeed:
    return EventFeed.objects.first() or EventFeed()


@cache
def _readers() -> BoundedSemaphore:
    return BoundedSemaphore(conf().feed_readers)


@contextmanager
def listening() -> Iterator[Callable[[float], object]]:
    """Be one of the process's readers that wait: the value waits so many seconds at most, or until events have places.

    Raises:
        TooManyReaders: as many wait as may, each of which keeps a thread.
    """
    readers = _readers()
    if not readers.acquire(blocking=False):
        READERS_REFUSED_TOTAL.inc()
        raise TooManyReaders(f"{conf().feed_readers} readers wait for events in this process already")
    try:
        connection.ensure_connection()
        session = connection.connection
        session.execute(f"LISTEN {CHANNEL}")
        try:
            yield lambda seconds: list(session.notifies(timeout=min(seconds, CHECK_SECONDS), stop_after=1))
        finally:
            if not session.closed:
                session.execute(f"UNLISTEN {CHANNEL}")
    finally:
        readers.release()
