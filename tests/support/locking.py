"""Others at the database: one that is paused in a transaction, one that acts in a session of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection, connections


@contextmanager
def paused(statement: str, *parameters: object) -> Iterator[None]:
    """Another session has said this in a transaction, and says nothing more until the end of the block."""
    given = connection.get_connection_params()
    place = {name: given[name] for name in ("host", "port", "user", "dbname") if given.get(name)}
    with psycopg.connect(**place) as session:
        session.execute(statement, parameters)
        yield
        session.rollback()


def aside(act: Callable[[], object]) -> threading.Thread:
    """Somebody else does it from now on, in a thread and a database session of its own."""

    def run() -> None:
        try:
            act()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
