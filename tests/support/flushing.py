"""What a test of several transactions leaves in its database is removed, at the cost of what it left.

Django's own way truncates each table, also those in which nothing is, and has permissions and content types made anew. A table of
a few rows is emptied by DELETE at a quarter of what TRUNCATE costs: without foreign keys and triggers, which takes a superuser's
session; on another server's database, and where numbers are to begin anew, it is TRUNCATE. The few rows that every migration
makes sure of are kept from the first time, and put back by the same statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.core.management.commands import flush
from django.core.management.sql import emit_post_migrate_signal
from django.db import connections
from django.db.backends.postgresql.operations import DatabaseOperations
from django.utils import timezone

#: They follow from the models alone; no test changes them.
_KEPT = {"django_content_type", "auth_permission"}
_MOMENT = re.compile(r'"\d{4}-\d\d-\d\dT[^"]*"')
#: What every migration makes sure of, by table; a table -> its rows, as JSON, once they have been made anew in this process.
_MADE = ("auth_group", "resources", "worker_pools")
_made: dict[str, str] = {}
#: Whether the last flush has put them back.
_put_back = False


def cheaply() -> None:
    """Flush only tables that have rows, from now on and in this process."""
    DatabaseOperations.sql_flush = _sql_flush  # type: ignore[method-assign, assignment]
    flush.emit_post_migrate_signal = _after_flush  # type: ignore[attr-defined]


def filled_sql(tables: Sequence[str]) -> str:
    """A query for those of them that have rows."""
    return " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT FROM \"{table}\")" for table in tables)


def _sql_flush(
    operations: Any, style: Any, tables: Sequence[str], *, reset_sequences: bool = False, allow_cascade: bool = False
) -> list[str]:
    global _put_back  # noqa: PLW0603
    _put_back = False
    emptied = [name for name in sorted(tables) if name not in _KEPT]
    with operations.connection.cursor() as cursor:
        cursor.execute(f"SELECT current_setting('is_superuser') UNION ALL {filled_sql(emptied)}")
        (superuser,), *rows = cursor.fetchall()
    filled = [operations.quote_name(name) for (name,) in rows]
    if not filled:
        return []
    if superuser == "on" and not reset_sequences:
        deleted = "".join(f"DELETE FROM {table}; " for table in filled)
        _put_back = _made.keys() <= set(tables) and bool(_made)
        made = "".join(map(_insert, _made.items())) if _put_back else ""
        return [f"SET LOCAL session_replication_role = replica; {deleted}{made}"]
    restart = " RESTART IDENTITY" if reset_sequences else ""
    # those that refer to them are emptied with them; the two that are kept refer to none of them
    return [f"TRUNCATE {', '.join(filled)}{restart} CASCADE;"]


def _insert(kept: tuple[str, str]) -> str:
    """Made now, like the rows of a migration."""
    table, rows = kept
    now = f'"{timezone.now().isoformat()}"'
    return f'INSERT INTO "{table}" SELECT * FROM jsonb_populate_recordset(NULL::"{table}", \'{_MOMENT.sub(now, rows)}\'); '


def _after_flush(verbosity: int, interactive: bool, db: str, **options: Any) -> None:
    """What follows a migration, unless the flush has put that back itself."""
    if _put_back:
        return
    emit_post_migrate_signal(verbosity, interactive, db, **options)
    with connections[db].cursor() as cursor:
        for table in () if _made else _MADE:
            cursor.execute(f'SELECT jsonb_agg(to_jsonb(made))::text FROM "{table}" made')
            _made[table] = cursor.fetchone()[0].replace("'", "''")
