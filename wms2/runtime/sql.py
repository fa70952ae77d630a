"""Statements in SQL, where the ORM has no words for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

from wms2.runtime.locks import Fenced


def sql_rows(statement: str, values: Sequence[Any] | Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """What the statement returns; none of one that returns nothing."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description is not None else []


def sql_fenced(fenced: Fenced, statement: str, **values: Any) -> int:
    """Only while the caller still leads; how many rows it has changed."""
    with fenced(), connection.cursor() as cursor:
        cursor.execute(statement, values)
        return int(cursor.rowcount)
