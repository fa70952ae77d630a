"""When calling a service stops for a while: circuit breakers over failures in a row, known to all processes.

Owns: counting, the pause, the single probe after it, and where that is kept: in the broker, so that one worker's time-outs spare
the others theirs; in the process while the broker is silent. Losing it costs a few calls, never work. ADR 0047.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

from wms2.broker_kept import BrokerKept
from wms2.errors import CircuitOpen, NotNow, ServiceRejected, ServiceUnavailable

T = TypeVar("T")

FAILURES = 3
PAUSE_SECONDS = 10.0
#: A probe that was not heard of for so long has died; longer than any call may take.
PROBE_SECONDS = 120.0
#: A failure is forgotten after this if nothing was called since.
_REMEMBERED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Failures in a row so far, and what is left of the pause after the last of them (0: over, or none)."""

    failures: int = 0
    pause_seconds: float = 0.0


class Circuits(Protocol):
    """Where the standing of circuits is kept. Thread-safe; never raises."""

    def standing(self, name: str) -> Standing:
        """Of one circuit."""

    def failed(self, name: str, opens_at: int, pause_seconds: float) -> None:
        """One more failure in a row; with ``opens_at`` of them the pause begins."""

    def answered(self, name: str, below: int | None = None) -> None:
        """Forget the failures; with ``below`` only while there are fewer."""

    def take_probe(self, name: str) -> bool:
        """Whether the caller is the one that may probe now."""

    def give_probe_back(self, name: str) -> None:
        """The probe told nothing: the next call may be it."""

    def all(self) -> dict[str, Standing]:
        """Circuits with failures."""

    def clear(self) -> None:
        """Forget everything."""


@dataclass(slots=True)
class _Kept:
    failures: int = 0
    open_until: float = 0.0
    probe_until: float = 0.0


@dataclass(slots=True)
class LocalCircuits:
    """In this process alone."""

    clock: Callable[[], float] = time.monotonic
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def standing(self, name: str) -> Standing:
        with self._lock:
            return self._standing(self._kept.get(name, _Kept()))

    def _standing(self, kept: _Kept) -> Standing:
        return Standing(kept.failures, max(0.0, kept.open_until - self.clock()))

    def failed(self, name: str, opens_at: int, pause_seconds: float) -> None:
        with self._lock:
            kept = self._kept.setdefault(name, _Kept())
            kept.failures, kept.probe_until = kept.failures + 1, 0.0
            if kept.failures >= opens_at:
                kept.open_until = self.clock() + pause_seconds

    def answered(self, name: str, below: int | None = None) -> None:
        with self._lock:
            if below is None or self._kept.get(name, _Kept()).failures < below:
                self._kept.pop(name, None)

    def take_probe(self, name: str) -> bool:
        with self._lock:
            kept = self._kept.setdefault(name, _Kept())
            if kept.probe_until > self.clock():
                return False
            kept.probe_until = self.clock() + PROBE_SECONDS
            return True

    def give_probe_back(self, name: str) -> None:
        with self._lock:
            self._kept.setdefault(name, _Kept()).probe_until = 0.0

    def all(self) -> dict[str, Standing]:
        with self._lock:
            return {name: self._standing(kept) for name, kept in self._kept.items()}

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


class SharedCircuits(BrokerKept):
    """In Valkey or Redis, for all processes of an installation; its own clock counts the pauses.

    While it does not answer, this process counts for itself.

    Args:
        url: the broker's, in redis-py's form.
        prefix: of the keys; tells installations on one broker apart.
    """

    def __init__(self, url: str, prefix: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(url, prefix, "circuits", clock)
        self._local = LocalCircuits(clock)

    def _key(self, what: str, name: str = "") -> str:
        return f"{self._prefix}:{what}:{name}"

    def standing(self, name: str) -> Standing:
        def shared() -> Standing:
            with self._client.pipeline(transaction=False) as pipe:
                failures, left = pipe.get(self._key("failures", name)).pttl(self._key("open", name)).execute()
            return Standing(int(failures or 0), max(0, left) / 1000)

        return self._ask(shared, lambda: self._local.standing(name))

    def failed(self, name: str, opens_at: int, pause_seconds: float) -> None:
        def shared() -> None:
            key = self._key("failures", name)
            with self._client.pipeline(transaction=True) as pipe:
                pipe.incr(key).expire(key, int(_REMEMBERED_SECONDS))
                pipe.delete(self._key("probe", name)).sadd(self._key("names"), name)
                failures = pipe.execute()[0]
            if failures >= opens_at:
                self._client.set(self._key("open", name), 1, px=int(pause_seconds * 1000))

        self._ask(shared, lambda: self._local.failed(name, opens_at, pause_seconds))

    def answered(self, name: str, below: int | None = None) -> None:
        def shared() -> None:
            if below is None or int(self._client.get(self._key("failures", name)) or 0) < below:
                self._forget(name)

        self._ask(shared, lambda: self._local.answered(name, below))

    def _forget(self, *names: str) -> None:
        keys = [self._key(what, name) for name in names for what in ("failures", "open", "probe")]
        with self._client.pipeline(transaction=True) as pipe:
            pipe.delete(*keys).srem(self._key("names"), *names).execute()

    def take_probe(self, name: str) -> bool:
        key, limit = self._key("probe", name), int(PROBE_SECONDS * 1000)
        return self._ask(lambda: bool(self._client.set(key, 1, nx=True, px=limit)), lambda: self._local.take_probe(name))

    def give_probe_back(self, name: str) -> None:
        def shared() -> None:
            self._client.delete(self._key("probe", name))

        self._ask(shared, lambda: self._local.give_probe_back(name))

    def all(self) -> dict[str, Standing]:
        def shared() -> dict[str, Standing]:
            return {name: self.standing(name) for name in sorted(self._client.smembers(self._key("names")))}

        return self._ask(shared, self._local.all)

    def clear(self) -> None:
        def shared() -> None:
            names = self._client.smembers(self._key("names"))
            if names:
                self._forget(*names)

        self._local.clear()
        self._ask(shared, lambda: None)


def redis_url(broker_url: str) -> str:
    """kombu's ``redis+socket:///path?virtual_host=0`` in redis-py's words; others are the same in both."""
    parts = urlsplit(broker_url)
    if parts.scheme != "redis+socket":
        return broker_url
    database = parse_qs(parts.query).get("virtual_host", ["0"])[0].lstrip("/")
    return f"unix://{parts.path}?db={database or 0}"


_circuits: Circuits = LocalCircuits()


def circuits() -> Circuits:
    """Where this process keeps them."""
    return _circuits


def use_circuits(kept: Circuits) -> None:
    """Keep them there from now on."""
    global _circuits  # noqa: PLW0603
    _circuits = kept


class BreakerState(Enum):
    """What a circuit breaker does with the next call."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class CircuitBreaker:
    """Stops calling a service that failed repeatedly; after a pause lets one call through to probe it.

    Only ``ServiceUnavailable`` counts as a failure: a refusal, and a "not now" about one thing, show that the service is there.
    Failures count in a row, however long each takes: three time-outs of 30 s open it as three refused connections do.

    Args:
        service: as in the errors raised.
        place: host, URL or schedd: circuits of different places are apart.
        failures: in a row, that open the circuit.
        pause_seconds: before the probe.
    """

    def __init__(self, service: str, place: str = "", failures: int = FAILURES, pause_seconds: float = PAUSE_SECONDS) -> None:
        self.service, self.name = service, f"{service}:{place}" if place else service
        self._failures, self._pause_seconds = failures, pause_seconds

    @property
    def state(self) -> BreakerState:
        """The state now."""
        standing = circuits().standing(self.name)
        if standing.failures < self._failures:
            return BreakerState.CLOSED
        return BreakerState.OPEN if standing.pause_seconds > 0 else BreakerState.PROBING

    def call(self, fn: Callable[[], T], operation: str = "call") -> T:
        """Run ``fn`` unless the circuit is open.

        Raises:
            CircuitOpen: not tried.
            Exception: what ``fn`` raised.
        """
        standing = circuits().standing(self.name)
        is_probe = self._admit(standing, operation)
        try:
            result = fn()
        except (ServiceRejected, NotNow):
            self._record_answer(standing, is_probe)
            raise
        except CircuitOpen:
            self._forget_probe(is_probe)
            raise
        except ServiceUnavailable:
            circuits().failed(self.name, self._failures, self._pause_seconds)
            raise
        except BaseException:
            # An error of our own says nothing about the service; only free the probe's place.
            self._forget_probe(is_probe)
            raise
        self._record_answer(standing, is_probe)
        return result

    def _admit(self, standing: Standing, operation: str) -> bool:
        """Whether the coming call is the probe; raises CircuitOpen when it may not be made."""
        if standing.failures < self._failures:
            return False
        if standing.pause_seconds > 0:
            detail = f"{self.name} failed {standing.failures} times in a row; next probe in {standing.pause_seconds:.0f} s"
        elif circuits().take_probe(self.name):
            return True
        else:
            detail = f"{self.name} is being probed after repeated failures; not tried"
        raise CircuitOpen(self.service, operation, detail, "circuit_open")

    def _record_answer(self, standing: Standing, is_probe: bool) -> None:
        # Only the probe closes an open circuit: the answer to a slow call that began earlier says nothing about now.
        if is_probe:
            circuits().answered(self.name)
        elif standing.failures:
            circuits().answered(self.name, below=self._failures)

    def _forget_probe(self, is_probe: bool) -> None:
        if is_probe:
            circuits().give_probe_back(self.name)
