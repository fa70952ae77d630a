"""Locks by named key: PostgreSQL advisory locks, and the type of a fenced transaction.

Key numbers are constants here; changing one lets an old and a new release act at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import IntEnum

import psycopg
from django.db import connection, connections, transaction

#: Opens a transaction in which the caller provably still owns what it writes; raises StaleState otherwise.
Fenced = Callable[[], AbstractContextManager[None]]


class LockKey(IntEnum):
    """Advisory lock numbers (the first of PostgreSQL's two integers is always ``NAMESPACE``)."""

    LEADER = 1
    ADMISSION = 2


NAMESPACE = 0x574D5332  # "WMS2"


@contextmanager
def session_lock(key: LockKey) -> Iterator[bool]:
    """Try the lock on a connection of its own, which ends with the block: a pooled session would keep it (``model.md`` 4).

    Raises:
        django.db.OperationalError: the database does not answer.
    """
    parameters = connections["default"].get_connection_params()
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    to_django_errors = connections["default"].wrap_database_errors
    with to_django_errors:
        own = psycopg.connect(**parameters, autocommit=True)
    with own:
        with to_django_errors:
            row = own.execute("SELECT pg_try_advisory_lock(%s, %s)", (NAMESPACE, int(key))).fetchone()
        yield bool(row and row[0])


@contextmanager
def transaction_lock(key: LockKey) -> Iterator[None]:
    """A transaction that waits for the lock and holds it until commit."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", (NAMESPACE, int(key)))
        yield
