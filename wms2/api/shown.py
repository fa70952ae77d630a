"""Rows as JSON with nothing built for each of them: a serializer is built once a process, and a list's columns come as they are.

DRF builds a serializer's fields anew for each answer, and those of a nested one for each row: most of the time of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any


@cache
def _built(serializer: Any) -> Any:
    """Its fields are bound at the first use and only read afterwards, by any thread."""
    return serializer()


def shown(serializer: Any, row: Any) -> Any:
    """The JSON of one thing, by a serializer that needs no context."""
    return _built(serializer).to_representation(row)


@cache
def columns_of(serializer: Any) -> Mapping[str, str]:
    """Names in the JSON -> columns that are shown as the database has them. Computed fields name theirs (``computed_from``, or
    ``column`` of the field)."""
    computed: Mapping[str, str] = getattr(serializer, "computed_from", {})
    return {
        name: computed.get(name) or getattr(field, "column", "") or "__".join(field.source_attrs)
        for name, field in _built(serializer).fields.items()
    }
