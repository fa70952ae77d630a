"""Counts that processes keep together in the broker, and each for itself while that is silent. Owns the fallback, no meaning.

Losing what is kept this way must cost little: nothing here is state of work, which is in PostgreSQL.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import redis
import structlog

T = TypeVar("T")
#: The broker has so long to answer, and is left alone for so long after it did not.
_BROKER_SECONDS, _BROKER_PAUSE_SECONDS = 0.5, 5.0
#: Keys that a process remembers by itself; the oldest go first.
_MOST_COUNTS = 10_000

log = structlog.get_logger(__name__)


class Broker:
    """Valkey or Redis, for all processes of an installation. Thread-safe; never raises by itself.

    Args:
        url: the broker's, in kombu's form.
        prefix: of the keys; distinguishes installations on one broker.
        silent: what becomes of it while the broker does not answer, for the log.
    """

    def __init__(self, url: str, prefix: str, silent: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.client: Any = redis.Redis.from_url(
            redis_url(url), decode_responses=True, socket_timeout=_BROKER_SECONDS, socket_connect_timeout=_BROKER_SECONDS
        )  # its types allow bytes, which it never gives here
        self.prefix, self._silent, self._clock, self._silent_until = prefix, silent, clock, 0.0

    def ask(self, fn: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """What ``fn`` gets of it; while it does not answer, and for some seconds after, ``otherwise``."""
        if self._clock() >= self._silent_until:
            try:
                return fn()
            except redis.RedisError as error:
                self._silent_until = self._clock() + _BROKER_PAUSE_SECONDS
                log.warning(f"{self._silent}, the broker does not answer", error=str(error))
        return otherwise()


class Counts:
    """Whole numbers by key, each with an end; in this process alone."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._counts, self._names = clock, dict[str, tuple[int, float]](), set[str]()

    def add(self, key: str, seconds: float, by: int = 1, *, anew: bool = False) -> tuple[int, float]:
        """Change a number; what it is then, and for how long. The first change begins the ``seconds``; ``anew``: each does."""
        ((number, left),) = self.read(key)
        if not left:
            self._counts.pop(key, None)
        left = seconds if anew or not left else left
        self._counts[key] = (number + by, self._clock() + left)
        while len(self._counts) > _MOST_COUNTS:
            del self._counts[next(iter(self._counts))]
        return number + by, left

    def read(self, *keys: str) -> list[tuple[int, float]]:
        """Each number, and for how long it is kept; zeros when it is not there."""
        now = self._clock()
        counts = (self._counts.get(key, (0, 0.0)) for key in keys)
        return [(number, until - now) if until > now else (0, 0.0) for number, until in counts]

    def drop(self, *keys: str) -> None:
        """Forget them."""
        for key in keys:
            self._counts.pop(key, None)

    def list_name(self, name: str, seconds: float) -> None:
        """Have it among the names, at least for so long."""
        self._names.add(name)

    def names(self) -> list[str]:
        """Those that were listed; finding them must not cost a look at every key of the broker."""
        return list(self._names)


class _InBroker(Counts):
    """The same for all processes; the broker's own clock counts the seconds."""

    def __init__(self, broker: Broker) -> None:
        self._client, self._prefix = broker.client, broker.prefix

    def add(self, key: str, seconds: float, by: int = 1, *, anew: bool = False) -> tuple[int, float]:
        """In one transaction, so that no count is ever left without an end."""
        name, life = f"{self._prefix}:{key}", int(seconds * 1000)
        with self._client.pipeline(transaction=True) as pipe:
            pipe.set(name, 0, px=life, nx=True).incrby(name, by)
            if anew:
                pipe.pexpire(name, life)
            _, number, *_, left = pipe.pttl(name).execute()
        return int(number), max(0, left) / 1000

    def read(self, *keys: str) -> list[tuple[int, float]]:
        with self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.get(f"{self._prefix}:{key}").pttl(f"{self._prefix}:{key}")
            found = pipe.execute()
        return [(int(number or 0), max(0, left) / 1000) for number, left in zip(found[::2], found[1::2], strict=True)]

    def drop(self, *keys: str) -> None:
        self._client.delete(*(f"{self._prefix}:{key}" for key in keys))

    def list_name(self, name: str, seconds: float) -> None:
        with self._client.pipeline(transaction=True) as pipe:
            pipe.sadd(f"{self._prefix}:names", name).pexpire(f"{self._prefix}:names", int(seconds * 1000)).execute()

    def names(self) -> list[str]:
        return [str(name) for name in self._client.smembers(f"{self._prefix}:names")]


class SharedCounts:
    """Where counts are kept: in the broker, if there is one and it answers, else in this process. Thread-safe; never raises."""

    def __init__(self, broker: Broker | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker, self._alone, self._lock = broker, Counts(clock), threading.RLock()

    def ask(self, fn: Callable[[Counts], T]) -> T:
        """What ``fn`` returns of the counts."""
        if self._broker is None:
            return self._ask_alone(fn)
        shared = _InBroker(self._broker)
        return self._broker.ask(lambda: fn(shared), lambda: self._ask_alone(fn))

    def _ask_alone(self, fn: Callable[[Counts], T]) -> T:
        with self._lock:
            return fn(self._alone)


def redis_url(broker_url: str) -> str:
    """kombu's ``redis+socket:///path?virtual_host=0`` in redis-py's words; others are the same in both."""
    parts = urlsplit(broker_url)
    if parts.scheme != "redis+socket":
        return broker_url
    database = parse_qs(parts.query).get("virtual_host", ["0"])[0].lstrip("/")
    return f"unix://{parts.path}?db={database or 0}"
