"""Keeping a lease alive beside the work that it is held for, however long an outside call takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from django.db import DatabaseError, connections

from wms2.adapters.caller import LEASES_LOST

log = structlog.get_logger(__name__)
#: A lease is renewed so many times in its life.
_BEATS = 3


@contextmanager
def kept_alive(renew: Callable[[], bool], *, life_seconds: float, **about: str) -> Iterator[None]:
    """Call ``renew`` from a thread at a third of the lease's life until the block ends, or it says that the lease is lost.

    Whoever works under a lost lease is stopped at the next outside call (``wms2.adapters.caller``) or fenced write. The thread
    has a database session while it renews, and none in between. ``about`` goes into the log.
    """
    stop, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not stop.wait(life_seconds / _BEATS):
            try:
                if not renew():
                    lost.set()
                    return
            except DatabaseError as error:
                log.warning("lease not renewed, trying again", error=str(error), **about)
            finally:
                connections["default"].close()

    keeper = threading.Thread(target=keep, name="lease-keeper", daemon=True)
    keeper.start()
    under = LEASES_LOST.set((*LEASES_LOST.get(), lost))
    try:
        yield
    finally:
        LEASES_LOST.reset(under)
        stop.set()
        keeper.join()
