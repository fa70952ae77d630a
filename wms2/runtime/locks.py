"""Locks by named key, locked rows, and the type of a fenced transaction.

Key numbers are constants here; changing one lets an old and a new release act at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import IntEnum

import psycopg
import structlog
from django.db import InterfaceError, OperationalError, connection, transaction

from wms2.metrics.series import LOCKS_REFUSED_TOTAL

log = structlog.get_logger(__name__)

#: Opens a transaction in which the caller provably still owns what it writes; raises StaleState otherwise.
Fenced = Callable[[], AbstractContextManager[None]]


class LockKey(IntEnum):
    """Advisory lock numbers (the first of PostgreSQL's two integers is always ``NAMESPACE``). 1 was a former release's."""

    ADMISSION = 2
    LIMITS = 3
    DEPENDENCIES = 4
    ALERTS = 5
    RECONCILE = 16


NAMESPACE = 0x574D5332  # "WMS2"
#: A holder needs milliseconds; a caller that waits longer tries again in the next cycle.
PATIENCE_SECONDS = 2.0
#: What is raised while the database does not answer, or keeps a row locked; other errors are about the rows themselves.
DATABASE_AWAY = (OperationalError, InterfaceError)
#: The answer to a caller that did not get the row.
BEING_CHANGED = "it is being changed just now, and nothing was done; try again in a moment"


@contextmanager
def transaction_lock(key: LockKey) -> Iterator[None]:
    """A transaction that waits for the lock, not for long, and holds it until commit. Raises django.db.OperationalError: not
    given in time (``lock_refused``), or the database does not answer."""
    with transaction.atomic():
        lock_until_commit(key)
        yield


def lock_until_commit(key: LockKey) -> None:
    """The same in the caller's transaction, which is over where the lock is not given: a caller that goes on after that takes
    ``transaction_lock``."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, true); SELECT pg_advisory_xact_lock(%s, %s)",
            [f"{PATIENCE_SECONDS * 1000:.0f}ms", NAMESPACE, int(key)],
        )


def lock_refused(error: BaseException) -> bool:
    """Whether a database error says that another session holds a row or a lock; nothing was written, and later it may be free."""
    return isinstance(error.__cause__, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected)


@contextmanager
def unless_locked(what: str) -> Iterator[None]:
    """One locked row must not stop the cycle: the block ends there, and is done in the next one."""
    try:
        yield
    except OperationalError as error:
        if not lock_refused(error):
            raise
        LOCKS_REFUSED_TOTAL.labels("cycle").inc()
        log.warning("locked by another process, the next cycle tries again", what=what, error=str(error).splitlines()[0])
