"""Keeping a lease alive beside the work that it is held for, however long an outside call takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import structlog
from django.db import connections

from wms2.adapters import caller
from wms2.adapters.caller import HeldLease, working_under
from wms2.runtime import clock

log = structlog.get_logger(__name__)
#: A lease is renewed so many times in its life.
_BEATS = 3


@contextmanager
def lease_kept_alive(
    renew: Callable[[], bool], *, life_seconds: float, expires_at: datetime | None = None, **about: str
) -> Iterator[None]:
    """Call ``renew`` from a thread at a third of the lease's life until the block ends, or the lease is lost: ``renew`` says so,
    or its life has passed since the last renewal that succeeded was begun.

    The work is stopped at the next outside call (``wms2.adapters.caller``) or fenced write; the caller judges the time by
    itself, so that a process that was stopped, or is cut off from the database, calls nothing any more. The thread has a
    database session while it renews, and none in between. ``about`` goes into the log.

    Args:
        expires_at: of the lease as it was taken; None: it was taken just now.
    """
    begun = caller.since_boot()
    left_seconds = life_seconds if expires_at is None else (expires_at - clock.now()).total_seconds()
    lease, stop = HeldLease(begun + left_seconds), threading.Event()

    def keep() -> None:
        pause = min(life_seconds, left_seconds) / _BEATS
        while not stop.wait(max(pause, 0.0)):
            asked, pause = caller.since_boot(), life_seconds / _BEATS
            if lease.is_set():
                log.warning("lease ran out, the work under it is stopped", **about)
                return
            still_held = _renewed(renew, about)
            if still_held:
                lease.renewed(asked + life_seconds)
            elif still_held is not None:
                lease.set()
                return

    keeper = threading.Thread(target=keep, name="lease-keeper", daemon=True)
    keeper.start()
    try:
        with working_under(lease):
            yield
    finally:
        stop.set()
        keeper.join()


def _renewed(renew: Callable[[], bool], about: dict[str, str]) -> bool | None:
    """None: not known. Any error may be over before the lease's life is: nothing ends the thread."""
    try:
        try:
            return renew()
        finally:
            connections["default"].close()
    except Exception as error:
        log.warning("lease not renewed, trying again", error=str(error), exc_info=True, **about)
        return None
