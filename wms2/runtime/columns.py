"""Rows read together with single columns of the rows that belong to them."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def rows_with(model: type[Row], *names: str) -> QuerySet[Row]:
    """Rows with these columns of rows that belong to them, or all of these, by one statement; large ones stay in the database."""
    others = {name.rpartition("__")[0] or name for name in names}
    own = (field.name for field in model._meta.concrete_fields)
    return model._default_manager.select_related(*others).only(*own, *names)
