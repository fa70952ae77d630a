"""What is read out of JSON columns while a later release writes there too (ADR 0030): known keys, the others left where they are.

A column that is a record has known keys; one that maps runs, rounds or tasks has numbers for keys. Owns no column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

V = TypeVar("V")


def known(record: type, stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass or pydantic model that a column has; keys of a later release are left out."""
    names = getattr(record, "model_fields", None) or record.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: stored[name] for name in names if name in stored}


def numbered(stored: Mapping[str, V]) -> Iterator[tuple[int, V]]:
    """Number and value of each entry of a column that maps numbers: runs, rounds, tasks; in its order."""
    return ((int(key), value) for key, value in stored.items() if key.isdecimal())
