"""Several short lists by one statement, for pages that show a little of everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import JSONField

from wms2.conf import Conf, conf
from wms2.runtime.sql import sql_rows

#: What was composed, of this process, and with which settings, by what composes it.
_composed: dict[Callable[[], CombinedQuery], tuple[Conf, CombinedQuery]] = {}


def composed_once(compose: Callable[[], CombinedQuery]) -> Callable[[], CombinedQuery]:
    """For lists without a moment of their own: composed when first asked for, then stored by the process."""

    @wraps(compose)
    def composed() -> CombinedQuery:
        settings, stored = conf(), _composed.get(compose)
        if stored is None or stored[0] != settings:
            stored = _composed[compose] = settings, compose()
        return stored[1]

    return composed


class CombinedQuery:
    """Lists that are read together. Made once and asked often it is composed once, which costs more than the database's answer:
    what differs from time to time are then marks in place of values.
    """

    def __init__(self, **parts: Any) -> None:
        self._parts, statements, given = parts, [], list[Any]()
        for name, rows in parts.items():
            try:
                sql, values = (rows if rows._fields is not None else rows.select_related(None)).query.sql_with_params()
            except EmptyResultSet:
                continue
            statements.append(f"SELECT %s, (SELECT jsonb_agg(to_jsonb(part)) FROM ({sql}) part)")  # noqa: S608
            given += [name, *values]
        self._statement, self._given = " UNION ALL ".join(statements), given

    def rows(self, marks: Mapping[Any, Any] = MappingProxyType({})) -> dict[str, list[Any]]:
        """The rows of each part in its order; ``marks``: mark -> the value that it stands for."""
        found: dict[str, list[Any]] = {name: [] for name in self._parts}
        given = [marks.get(each, each) if isinstance(each, Hashable) else each for each in self._given]
        for name, lines in sql_rows(self._statement, given):
            known = json.loads(lines) if isinstance(lines, str) else lines
            found[name] = [_row(self._parts[name], line) for line in known or ()]
        return found


def read_combined(**parts: Any) -> dict[str, list[Any]]:
    """The rows of each part in its order, in one statement: instances with their annotations, or dicts of ``values()``.

    Columns must have names of their own, so nothing is read of related rows; large columns are left out by ``only`` or ``defer``.
    """
    return CombinedQuery(**parts).rows()


def _row(rows: Any, line: dict[str, Any]) -> Any:
    """An instance, or a dict, with the types that the columns have."""
    fields = {field.column: field for field in rows.model._meta.concrete_fields}
    typed = {name: _typed(fields.get(name) or rows.query.annotations[name].output_field, value) for name, value in line.items()}
    if rows._fields is not None:
        return typed
    columns = [field for column, field in fields.items() if column in line]
    made = rows.model.from_db(rows.db, [field.attname for field in columns], [typed[field.column] for field in columns])
    for name in line.keys() - fields.keys():
        setattr(made, name, typed[name])
    return made


def _typed(field: Any, value: Any) -> Any:
    return value if value is None or isinstance(field, JSONField) else getattr(field, "target_field", field).to_python(value)
