"""Keys of a later release in JSON columns: what it adds to what it keeps, which this release must leave alone (ADR 0028).

Columns are found from the models, and a request's rows by their foreign keys, so that a new column is among them by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import cycle
from typing import Any

from django.apps import apps
from django.db import IntegrityError, connection, models, transaction
from django.db.models import Value

from requests_app.models import Request
from tests.support.former_release import APPS

_AT_LEAVES = object()
KEY, VALUE = "of_a_later_release", {"mode": "later", "numbers": [1]}
#: Keys of records; those of maps (runs, sites, steps, roles, files) are data, and say nothing of a release.
_RECORD = re.compile(r"[a-z][a-z0-9_]*")


def json_columns() -> list[models.JSONField[Any, Any]]:
    """Of all tables of ours."""
    every = (model for name in APPS for model in apps.get_app_config(name).get_models())
    return [field for model in every if model._meta.managed for field in _columns(model)]


def later_keys_everywhere() -> set[str]:
    """Into all rows; the columns, as ``Model.column``, in which there was a record."""
    return {name for field in json_columns() for name in _put(field, field.model._base_manager.all())}


def later_keys_of(request: Request) -> set[str]:
    """The same of one request's row and all rows that belong to it."""
    return {
        name
        for field in json_columns()
        if (path := _way_to_request(field.model)) is not None
        for name in _put(field, field.model._base_manager.filter(**{path: request.pk}))
    }


def otherwise_everywhere(forms: Sequence[Any]) -> None:
    """One row of each column as no release has written it: the forms one after the other, and where they end the stored one with
    null, text or a number at its leaves."""
    leaves = cycle((None, "text", -1))
    whole = cycle((*forms, *[_AT_LEAVES] * 3))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for field in json_columns():
            row = field.model._base_manager.order_by("pk").values_list("pk", field.attname).last()
            if row is not None:
                form = next(whole)
                changed = _with_leaves(row[1], next(leaves)) if form is _AT_LEAVES else form
                with suppress(IntegrityError), transaction.atomic():  # what the table itself refuses
                    field.model._base_manager.filter(pk=row[0]).update(**{field.attname: Value(changed, field)})


def _with_leaves(stored: Any, leaf: Any) -> Any:
    if isinstance(stored, dict):
        return {name: _with_leaves(value, leaf) for name, value in stored.items()}
    return [_with_leaves(each, leaf) for each in stored] if isinstance(stored, list) else leaf


def _columns(model: type[models.Model]) -> list[models.JSONField[Any, Any]]:
    return [field for field in model._meta.concrete_fields if isinstance(field, models.JSONField)]


def _put(field: models.JSONField[Any, Any], rows: models.QuerySet[Any]) -> Iterator[str]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger: nothing has changed that anybody acts on
        for pk, stored in list(rows.values_list("pk", field.attname)):
            changed = with_key(stored)
            if changed != stored:
                field.model._base_manager.filter(pk=pk).update(**{field.attname: changed})
            if KEY in str(changed):
                yield f"{field.model.__name__}.{field.name}"


def with_key(stored: Any) -> Any:
    """With the key in each record, and in what is empty at the top: a record or a map, which nobody can see."""
    return {KEY: VALUE} if stored == {} else _with_key(stored)


def _with_key(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_with_key(each) for each in stored]
    if not isinstance(stored, dict) or not stored:
        return stored
    changed = {name: value if name == KEY else _with_key(value) for name, value in stored.items()}
    return changed | {KEY: VALUE} if all(map(_RECORD.fullmatch, stored)) else changed


@cache
def _way_to_request(model: type[models.Model]) -> str | None:
    """The shortest way by foreign keys, as a lookup of the request's key."""
    ways: list[tuple[type[models.Model], str]] = [(model, "")]
    for here, way in ways:
        if here is Request:
            return f"{way}pk"
        for field in here._meta.concrete_fields:
            there = field.related_model
            if there is not None and len(way.split("__")) < 5 and there not in {each for each, _ in ways}:
                ways.append((there, f"{way}{field.name}__"))  # type: ignore[arg-type]
    return None
