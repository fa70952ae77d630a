"""The database as the release after this one may leave it: expanded, with words that this one does not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.apps import apps
from django.db import connection, models

from tests.support.former_release import APPS, tables

WORD = "later"


@contextmanager
def expanded() -> Iterator[None]:
    """For the length of the block each table of ours has columns that this release does not know."""
    _alter("ADD COLUMN later_number integer, ADD COLUMN later_words text NOT NULL DEFAULT ''")
    try:
        yield
    finally:
        _alter("DROP COLUMN later_number, DROP COLUMN later_words")


def _alter(how: str) -> None:
    with connection.cursor() as cursor:
        for table in tables():
            cursor.execute(f'ALTER TABLE "{table}" {how}')


def worded() -> list[str]:
    """Columns with a choice of words, as ``app.Model.field``."""
    every = (model for name in APPS for model in apps.get_app_config(name).get_models())
    tables = (model for model in every if model._meta.managed)
    fields = (field for model in tables for field in model._meta.concrete_fields if isinstance(field, models.CharField))
    return [f"{field.model._meta.label}.{field.name}" for field in fields if field.choices]


def a_row_has_a_later_word(column: str) -> models.Model:
    """One that is there. Within a transaction that is rolled back: the rules of the table go with it."""
    label, _, name = column.rpartition(".")
    model = apps.get_model(label)
    row = model._default_manager.exclude(**{name: ""}).first() or model._default_manager.first()
    assert row is not None, f"no row of {label}"
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what waits for the commit keeps the table from being altered
        cursor.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'c'", [model._meta.db_table]
        )
        for (rule,) in cursor.fetchall():
            cursor.execute(f'ALTER TABLE "{model._meta.db_table}" DROP CONSTRAINT "{rule}"')
    model._default_manager.filter(pk=row.pk).update(**{name: WORD})
    return row
