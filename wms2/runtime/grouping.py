"""Rows by what several of them have in common. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(rows: Iterable[V], key: Callable[[V], K]) -> defaultdict[K, list[V]]:
    """By key, in their order; an empty list for a key that no row has."""
    found = defaultdict[K, list[V]](list)
    for row in rows:
        found[key(row)].append(row)
    return found
