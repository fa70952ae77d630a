"""The whole database at a moment, table by table, to tell what an operation has changed."""

from __future__ import annotations

from collections.abc import Collection

from django.apps import apps
from django.db import connection

from wms2.work.resources import resources_ensure
from wms2.work.workers import pools_ensure

OURS = ("wms2", "requests_app", "dags_app", "outputs_app", "sites_app")
#: Written by every operation, refused or not; and by every operation that is not refused, also where there is nothing to do.
AUDIT, WAKES = "audit_entries", "wakes"
#: What a thread of an evaluation in progress renews beside the test.
_RENEWED = ("expires_at", "due_at")

_TOLD_APART = {"events": " WHERE kind <> 'audit'"}


def tables() -> list[str]:
    """All tables of WMS2, without views."""
    models = (model for label in OURS for model in apps.get_app_config(label).get_models(include_auto_created=True))
    return sorted(model._meta.db_table for model in models if model._meta.managed)


def snapshot() -> dict[str, str]:
    """Table -> digest of its rows, without the audit, and what the feed tells of it."""
    parts = [
        f"SELECT '{table}', md5(coalesce(string_agg(row, '' ORDER BY row), '')) FROM "
        f"(SELECT (to_jsonb(t) - '{{{','.join(_RENEWED)}}}'::text[])::text AS row "
        f'FROM "{table}" t{_TOLD_APART.get(table, "")}) rows'
        for table in tables()
        if table not in (AUDIT, WAKES)
    ]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts))
        return dict(cursor.fetchall())


def changed(before: dict[str, str], *, but: Collection[str] = ()) -> list[str]:
    """Tables whose rows have changed since."""
    now = snapshot()
    return [table for table in before if now[table] != before[table] and table not in but]


def wipe() -> None:
    """A database as it is after its migrations."""
    names = ", ".join(f'"{table}"' for table in tables())
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
    resources_ensure()
    pools_ensure()
