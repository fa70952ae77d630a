"""Text that PostgreSQL can hold: what comes from outside may have NUL or half a surrogate pair, also in what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def storable(value: Any) -> Any:
    """The same value, with what neither text nor JSON columns take replaced in all texts and keys."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {storable(key): storable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [storable(each) for each in value]
    return value
