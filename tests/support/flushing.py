"""What a test of several transactions leaves in its database is removed, at the cost of what it left.

Django's own way truncates each table, also those in which nothing is, and has permissions and content types made anew. A table of
a few rows is emptied by DELETE at a quarter of what TRUNCATE costs: without foreign keys and triggers, which takes a superuser's
session; on another server's database, and where numbers are to begin anew, it is TRUNCATE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.postgresql.operations import DatabaseOperations

#: They follow from the models alone; no test changes them.
_KEPT = {"django_content_type", "auth_permission"}


def cheaply() -> None:
    """Flush only tables that have rows, from now on and in this process."""
    DatabaseOperations.sql_flush = _sql_flush  # type: ignore[method-assign]


def filled_sql(tables: Sequence[str]) -> str:
    """A query for those of them that have rows."""
    return " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT FROM \"{table}\")" for table in tables)


def _sql_flush(
    operations: Any, style: Any, tables: Sequence[str], *, reset_sequences: bool = False, allow_cascade: bool = False
) -> list[str]:
    emptied = [name for name in sorted(tables) if name not in _KEPT]
    with operations.connection.cursor() as cursor:
        cursor.execute(f"SELECT current_setting('is_superuser') UNION ALL {filled_sql(emptied)}")
        (superuser,), *rows = cursor.fetchall()
    filled = [operations.quote_name(name) for (name,) in rows]
    if not filled:
        return []
    if superuser == "on" and not reset_sequences:
        deleted = "".join(f"DELETE FROM {table}; " for table in filled)
        return [f"SET LOCAL session_replication_role = replica; {deleted}"]
    restart = " RESTART IDENTITY" if reset_sequences else ""
    # those that refer to them are emptied with them; the two that are kept refer to none of them
    return [f"TRUNCATE {', '.join(filled)}{restart} CASCADE;"]
