"""Somebody who is paused in a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection


@contextmanager
def paused(statement: str, *parameters: object) -> Iterator[None]:
    """Another session has said this in a transaction, and says nothing more until the end of the block."""
    given = connection.get_connection_params()
    place = {name: given[name] for name in ("host", "port", "user", "dbname") if given.get(name)}
    with psycopg.connect(**place) as session:
        session.execute(statement, parameters)
        yield
        session.rollback()
