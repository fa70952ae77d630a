"""The one session with the database: it listens, gives places to what was committed, and fills the ring.

A second session is there while a reader is behind the ring, for all of them one after another. Nothing here holds up readers
while the database is away: they are kept, and hear so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import structlog

from wms2.stream import statements
from wms2.stream.ring import Behind, Item, Ring, item
from wms2.stream.tickets import Ticket

#: The database is looked at so often without a notification: for the process that gives places to what others commit.
CHECK_SECONDS = 1.0
#: Pauses while it is away, and what it may take to answer before it is taken to be away.
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS, ANSWER_SECONDS = 0.5, 15.0, 20.0
#: Events that are read together; and those of before that a new process reads, for readers that come from the last one.
PORTION, MOST_IN_RING = 500, 2000
_SESSION = {
    "autocommit": True,
    "application_name": "wms2-stream",
    "connect_timeout": 5,
    "options": "-c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000 -c client_connection_check_interval=30000",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_FAILURES = (psycopg.Error, OSError, TimeoutError)
_Session = psycopg.AsyncConnection[Any]
log = structlog.get_logger(__name__)


class Database:
    """``away`` says why it does not answer; empty: it does."""

    def __init__(self, url: str, ring: Ring) -> None:
        self._url, self._ring = url, ring
        self._catching_up = asyncio.Lock()
        self.away = "it has not been asked yet"

    async def follow(self) -> None:
        """Fill the ring for ever."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                async with await self._session() as session:
                    await self._begin(session)
                    self.away, pause = "", FIRST_PAUSE_SECONDS
                    log.info("listens to the feed", place=self._ring.last)
                    while True:
                        async with asyncio.timeout(ANSWER_SECONDS):
                            await self._catch_up(session)
                        async for _ in session.notifies(timeout=CHECK_SECONDS, stop_after=1):
                            pass
            except _FAILURES as error:
                self.away = str(error).strip().partition("\n")[0] or type(error).__name__
                log.warning("the database does not answer; readers wait", why=self.away, again_in_seconds=pause)
                self._ring.call()
            await asyncio.sleep(pause)
            pause = min(MOST_PAUSE_SECONDS, 2 * pause)

    async def behind(self, ticket: Ticket, place: int) -> AsyncIterator[tuple[list[Item], int]]:
        """What a reader wants behind a place from which the ring does not go on; with each portion the place that it reaches.

        Raises:
            Behind: some of it is not kept any more: the web says what is.
            psycopg.Error, OSError, TimeoutError: the database does not answer.
        """
        while place < self._ring.begin:
            async with self._catching_up, asyncio.timeout(ANSWER_SECONDS), await self._session() as session:
                rows = await _read(session, place)
                _, removed = await _ends(session)
            if ticket.request is None and place < removed:
                raise Behind
            place = rows[-1].position if rows else self._ring.begin
            yield [each for each in rows if each.is_for(ticket)], place

    async def _session(self) -> _Session:
        return await psycopg.AsyncConnection.connect(self._url, **_SESSION)  # type: ignore[arg-type]

    async def _begin(self, session: _Session) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            await session.execute(f"LISTEN {statements.CHANNEL}")
            await self._catch_up(session)

    async def _catch_up(self, session: _Session) -> None:
        await _publish(session)
        last, removed = await _ends(session)
        if not self._ring.feed or last < self._ring.last:  # the first time, or the database is an older copy
            self._ring.clear(max(removed, last - MOST_IN_RING))
        while self._ring.last < last:
            found = await _read(session, self._ring.last)
            self._ring.add(found)
            if not found:  # the newest were removed since
                break


async def _publish(session: _Session) -> None:
    """As ``requests_app.feed.publish``."""
    (unplaced,) = await (await session.execute(statements.UNPLACED)).fetchone()  # type: ignore[misc]  # a row always
    if not unplaced:
        return
    async with session.transaction():
        await session.execute(statements.FIRST_ROW)
        locked = await (await session.execute(statements.LOCK)).fetchone()
        if locked is None:  # another process is at it, and notifies
            return
        placed = await session.execute(statements.PLACE, {"last": locked[0], "portion": statements.PORTION})
        if placed.rowcount:
            await session.execute(statements.CALL, {"placed": placed.rowcount, "channel": statements.CHANNEL})


async def _read(session: _Session, after: int) -> list[Item]:
    rows = await session.execute(statements.BEHIND, {"after": after, "most": PORTION})
    return [item(*row) for row in await rows.fetchall()]


async def _ends(session: _Session) -> tuple[int, int]:
    row = await (await session.execute(statements.ENDS)).fetchone()
    return (row[0], row[1]) if row else (0, 0)
