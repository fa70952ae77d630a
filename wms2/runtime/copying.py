"""Many rows at a few microseconds each: PostgreSQL's COPY, in the transaction that is open.

Of a model only its columns are used: defaults and validation are the caller's. The database's constraints and triggers hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection, models

from wms2.runtime.sql import sql_rows


def copy_rows(model: type[models.Model], fields: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows with these fields; JSON as text, times aware. The rows may come from an iterator that asks the database nothing.
    Raises django.db.IntegrityError: the database refuses them, and none is written."""
    quote = connection.ops.quote_name
    known = {field.name: field.column for field in model._meta.concrete_fields if field.column}
    columns = ", ".join(quote(known[name]) for name in fields)
    statement = f"COPY {quote(model._meta.db_table)} ({columns}) FROM STDIN"
    with connection.cursor() as cursor, connection.wrap_database_errors:
        opened: Any = cursor
        with opened.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)


def reserved_ids(model: type[models.Model], number: int) -> list[int]:
    """Values of ``id`` for rows that are to be copied."""
    statement = "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)"
    return [key for (key,) in sql_rows(statement, [model._meta.db_table, number])]
