"""Several short lists by one statement, for pages that show a little of everything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import wraps
from itertools import count
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import JSONField

from wms2.conf import Conf, conf
from wms2.runtime.sql import sql_rows

#: What was composed, of this process, and with which settings, by what composes it.
_composed: dict[Callable[[], CombinedQuery], tuple[Conf, CombinedQuery]] = {}
#: Of prepared statements, each with a name of its own: one whose first execution failed stays in its session.
_numbers = count()


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
    what differs from time to time are then marks in place of values. From the second time on the database does not plan it anew
    either: a session's first execution prepares it.

    Columns must have names of their own, so nothing is read of related rows; large columns are left out by ``only`` or ``defer``.
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
        self._is_repeated = False
        self._prepared = WeakKeyDictionary[Any, str]()

    def rows(self, marks: Mapping[Any, Any] = MappingProxyType({})) -> dict[str, list[Any]]:
        """The rows of each part in its order, instances with their annotations or dicts of ``values()``; ``marks``: mark -> the
        value that it stands for."""
        found: dict[str, list[Any]] = {name: [] for name in self._parts}
        for name, lines in self._execute(marks) if self._is_repeated else sql_rows(self._statement, self._values(marks)):
            known = json.loads(lines) if isinstance(lines, str) else lines
            found[name] = [_row(self._parts[name], line) for line in known or ()]
        self._is_repeated = True
        return found

    def _values(self, marks: Mapping[Any, Any]) -> list[Any]:
        return [marks[each] if _is_mark(each, marks) else each for each in self._given]

    def _execute(self, marks: Mapping[Any, Any]) -> Sequence[tuple[Any, ...]]:
        """As a prepared statement of this session; where it is not there yet, it is prepared in the same round trip."""
        connection.ensure_connection()
        session, is_mark = connection.connection, [_is_mark(each, marks) for each in self._given]
        values = [marks[each] for each, marked in zip(self._given, is_mark, strict=True) if marked]
        execution = f"({', '.join(['%s'] * len(values))})" if values else ""
        name, prepare = self._prepared.get(session), ""
        if name is None:
            name, numbers, kinds = f"combined_{next(_numbers)}", count(1), iter(is_mark)
            numbered = re.sub(
                "%%|%s", lambda place: f"${next(numbers)}" if place[0] == "%s" and next(kinds) else place[0], self._statement
            )
            prepare = f"PREPARE {name} AS {numbered}; "
            values = [each for each, marked in zip(self._given, is_mark, strict=True) if not marked] + values
        with connection.cursor() as cursor:
            cursor.execute(f"{prepare}EXECUTE {name}{execution}", values)
            if prepare:
                cursor.nextset()
            self._prepared[session] = name
            return list(cursor.fetchall())


def _is_mark(value: Any, marks: Mapping[Any, Any]) -> bool:
    return isinstance(value, Hashable) and value in marks


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
