"""What is read out of JSON columns while a later release writes there too (ADR 0028): known keys, the others left where they are.

A column that is a record has known keys; one that maps runs, rounds or tasks has numbers for keys. Owns no column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

V = TypeVar("V")


def known(record: type, stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass or pydantic model that a column has; keys of a later release are left out."""
    names = getattr(record, "model_fields", None) or record.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: stored[name] for name in names if name in stored}


def mapping(stored: Any) -> dict[str, Any]:
    """A column that is a record or a map; empty where something else was written there."""
    return stored if isinstance(stored, dict) else {}


def records(stored: Any, **keys: type) -> list[dict[str, Any]]:
    """Of a list of records those that have these keys, with values of these types."""
    found = [each for each in stored if isinstance(each, dict)] if isinstance(stored, list) else []
    return [each for each in found if all(isinstance(each.get(name), kind) for name, kind in keys.items())]


def texts(stored: Any) -> list[str]:
    """Of a list its texts."""
    return [each for each in stored if isinstance(each, str)] if isinstance(stored, list) else []


def moment_of(stored: Any) -> datetime | None:
    """A moment with its zone; None where something else was written."""
    try:
        found = datetime.fromisoformat(stored)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None


def number(stored: Any) -> float:
    """A number; 0 where something else was written."""
    return stored if isinstance(stored, int | float) and not isinstance(stored, bool) else 0


def numbered(stored: Mapping[str, V]) -> Iterator[tuple[int, V]]:
    """Number and value of each entry of a column that maps numbers: runs, rounds, tasks; in its order."""
    return ((int(key), value) for key, value in stored.items() if key.isdecimal())
