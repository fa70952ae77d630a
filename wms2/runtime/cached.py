"""Answers that a process stores and uses again for some seconds, where they cost more than they change."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """Answers by key, never None, of which the newest are stored. Threads may ask at once: each then has an answer, and one
    stays."""

    def __init__(self, most: int = 1) -> None:
        self._stored: dict[Hashable, tuple[T, float]] = {}
        self._most = most

    def get(self, key: Hashable, seconds: float, make: Callable[[], T]) -> T:
        """The answer; made anew where it is older than so many seconds."""
        known = self.known(key)
        return self.put(key, seconds, make()) if known is None else known

    def known(self, key: Hashable) -> T | None:
        """The answer, for one who makes it anew for other reasons too; None where it is too old, or none is stored."""
        stored = self._stored.get(key)
        return stored[0] if stored is not None and time.monotonic() < stored[1] else None

    def put(self, key: Hashable, seconds: float, answer: T) -> T:
        """Store an answer for so many seconds, and return it."""
        self._stored.pop(key, None)
        self._stored[key] = answer, time.monotonic() + seconds
        for old in list(self._stored)[: -self._most]:
            self._stored.pop(old, None)
        return answer
