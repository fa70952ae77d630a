"""Counts that processes keep together in the broker, and each for itself while that is silent. Owns the fallback, no meaning.

Losing what is kept this way must cost little: nothing here is state of work, which is in PostgreSQL.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

import redis

T = TypeVar("T")
_BROKER_SECONDS = 0.5
_BROKER_PAUSE_SECONDS = 5.0
#: Keys that a process remembers by itself; the oldest go first.
_MOST_KEPT = 10_000

log = logging.getLogger(__name__)


class Counts(Protocol):
    """Whole numbers by key, each with an end."""

    def add(self, key: str, seconds: float, by: int = 1, *, anew: bool = False) -> tuple[int, float]:
        """Change a number; what it is then, and for how long. The first change begins the ``seconds``; ``anew``: each does."""

    def read(self, *keys: str) -> list[tuple[int, float]]:
        """Each number, and for how long it is kept; zeros when it is not there."""

    def drop(self, *keys: str) -> None:
        """Forget them."""

    def list_name(self, name: str, seconds: float) -> None:
        """Have it among the names, at least for so long."""

    def names(self) -> list[str]:
        """Those that were listed; finding them must not cost a look at every key of the broker."""


class Kept(Protocol):
    """Where counts are kept. Thread-safe; never raises by itself."""

    def ask(self, fn: Callable[[Counts], T]) -> T:
        """What ``fn`` returns of the counts."""


@dataclass(slots=True)
class KeptHere:
    """In this process alone."""

    clock: Callable[[], float] = time.monotonic
    _kept: dict[str, tuple[int, float]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def ask(self, fn: Callable[[Counts], T]) -> T:
        with self._lock:
            return fn(self)

    def add(self, key: str, seconds: float, by: int = 1, *, anew: bool = False) -> tuple[int, float]:
        ((number, left),) = self.read(key)
        if not left:
            self._kept.pop(key, None)
        left = seconds if anew or not left else left
        self._kept[key] = (number + by, self.clock() + left)
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return number + by, left

    def read(self, *keys: str) -> list[tuple[int, float]]:
        now = self.clock()
        kept = (self._kept.get(key, (0, 0.0)) for key in keys)
        return [(number, until - now) if until > now else (0, 0.0) for number, until in kept]

    def drop(self, *keys: str) -> None:
        for key in keys:
            self._kept.pop(key, None)

    def list_name(self, name: str, seconds: float) -> None:
        self._names.add(name)

    def names(self) -> list[str]:
        return list(self._names)


@dataclass(frozen=True, slots=True)
class _InBroker:
    client: Any  # redis-py's types allow bytes, which it never gives here
    prefix: str

    def add(self, key: str, seconds: float, by: int = 1, *, anew: bool = False) -> tuple[int, float]:
        """In one transaction, so that no count is ever left without an end."""
        name, life = f"{self.prefix}:{key}", int(seconds * 1000)
        with self.client.pipeline(transaction=True) as pipe:
            pipe.set(name, 0, px=life, nx=True).incrby(name, by)
            if anew:
                pipe.pexpire(name, life)
            _, number, *_, left = pipe.pttl(name).execute()
        return int(number), max(0, left) / 1000

    def read(self, *keys: str) -> list[tuple[int, float]]:
        with self.client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.get(f"{self.prefix}:{key}").pttl(f"{self.prefix}:{key}")
            found = pipe.execute()
        return [(int(number or 0), max(0, left) / 1000) for number, left in zip(found[::2], found[1::2], strict=True)]

    def drop(self, *keys: str) -> None:
        self.client.delete(*(f"{self.prefix}:{key}" for key in keys))

    def list_name(self, name: str, seconds: float) -> None:
        with self.client.pipeline(transaction=True) as pipe:
            pipe.sadd(f"{self.prefix}:names", name).pexpire(f"{self.prefix}:names", int(seconds * 1000)).execute()

    def names(self) -> list[str]:
        return list(self.client.smembers(f"{self.prefix}:names"))


class KeptTogether:
    """In Valkey or Redis, for all processes of an installation; its own clock counts the seconds.

    While it does not answer, and for some seconds after, this process counts for itself.

    Args:
        url: the broker's, in kombu's form.
        prefix: of the keys; tells installations on one broker apart.
        what: is kept, for the log line of a silent broker.
    """

    def __init__(self, url: str, prefix: str, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        client = redis.Redis.from_url(
            redis_url(url), decode_responses=True, socket_timeout=_BROKER_SECONDS, socket_connect_timeout=_BROKER_SECONDS
        )
        self._shared, self._alone = _InBroker(client, prefix), KeptHere(clock)
        self._what, self._clock, self._silent_until = what, clock, 0.0

    def ask(self, fn: Callable[[Counts], T]) -> T:
        if self._clock() >= self._silent_until:
            try:
                return fn(self._shared)
            except redis.RedisError as error:
                self._silent_until = self._clock() + _BROKER_PAUSE_SECONDS
                log.warning("%s are counted by this process alone, the broker does not answer: %s", self._what, error)
        return self._alone.ask(fn)


def redis_url(broker_url: str) -> str:
    """kombu's ``redis+socket:///path?virtual_host=0`` in redis-py's words; others are the same in both."""
    parts = urlsplit(broker_url)
    if parts.scheme != "redis+socket":
        return broker_url
    database = parse_qs(parts.query).get("virtual_host", ["0"])[0].lstrip("/")
    return f"unix://{parts.path}?db={database or 0}"
