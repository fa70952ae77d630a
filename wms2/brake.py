"""The brake on guessing passwords and tokens: failures are counted by name and address, and beyond a number nothing is judged.

Owns: counting, the wait, and telling of it once. The counts are in the broker, for all processes together; while that is silent
each process counts for itself, so that nobody is locked out for its sake. Losing them costs a few guesses more. Not here: whether
a password is right (Django), what the answer looks like (``wms2.sign_in``, ``wms2.api.tokens``).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from django.dispatch import Signal
from django.http import HttpRequest

from wms2.broker_kept import BrokerKept
from wms2.conf import conf
from wms2.metrics import SIGN_INS_BRAKED_TOTAL

#: Keys that a process remembers by itself; the oldest go first.
_MOST_KEPT = 10_000
#: Sent once for each wait: ``way``, ``name``, ``address``, ``seconds``.
sign_in_braked = Signal()

log = structlog.get_logger(__name__)


class Attempts(Protocol):
    """Where attempts are counted. Thread-safe; never raises."""

    def add(self, key: str, seconds: float) -> tuple[int, float]:
        """One more; how many there are, and for how long they still count. The first one begins the ``seconds``."""

    def take_back(self, key: str, seconds: float) -> None:
        """One less."""

    def forget(self, key: str) -> None:
        """None any more."""


@dataclass(slots=True)
class LocalAttempts:
    """In this process alone."""

    clock: Callable[[], float] = time.monotonic
    _kept: dict[str, tuple[int, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, key: str, seconds: float) -> tuple[int, float]:
        now = self.clock()
        with self._lock:
            number, until = self._kept.get(key, (0, 0.0))
            if until <= now:
                self._kept.pop(key, None)
                number, until = 0, now + seconds
            self._kept[key] = (number + 1, until)
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return number + 1, until - now

    def take_back(self, key: str, seconds: float) -> None:
        with self._lock:
            number, until = self._kept.get(key, (0, 0.0))
            if number:
                self._kept[key] = (number - 1, until)

    def forget(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)


class SharedAttempts(BrokerKept):
    """In Valkey or Redis, for all processes of an installation; its own clock counts the seconds.

    Args:
        url: the broker's, in redis-py's form.
        prefix: of the keys; tells installations on one broker apart.
    """

    def __init__(self, url: str, prefix: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(url, prefix, "failed sign-ins", clock)
        self._local = LocalAttempts(clock)

    def _change(self, key: str, seconds: float, by: int) -> tuple[int, float]:
        """In one transaction, so that no count is ever left without an end."""
        name = f"{self._prefix}:{key}"
        with self._client.pipeline(transaction=True) as pipe:
            pipe.set(name, 0, px=int(seconds * 1000), nx=True).incrby(name, by).pttl(name)
            _, number, left = pipe.execute()
        return int(number), max(0, left) / 1000

    def add(self, key: str, seconds: float) -> tuple[int, float]:
        return self._ask(lambda: self._change(key, seconds, 1), lambda: self._local.add(key, seconds))

    def take_back(self, key: str, seconds: float) -> None:
        def shared() -> None:
            if self._change(key, seconds, -1)[0] < 0:
                self._client.delete(f"{self._prefix}:{key}")

        self._ask(shared, lambda: self._local.take_back(key, seconds))

    def forget(self, key: str) -> None:
        def shared() -> None:
            self._client.delete(f"{self._prefix}:{key}")

        self._ask(shared, lambda: self._local.forget(key))


_attempts: Attempts = LocalAttempts()


def use_attempts(kept: Attempts) -> None:
    """Count there from now on."""
    global _attempts  # noqa: PLW0603
    _attempts = kept


def address_of(request: HttpRequest) -> str:
    """Whose request it is: the peer, or, behind ``proxies_in_front`` proxies, what the outermost of them saw. Empty: unknown."""
    proxies = conf().proxies_in_front
    peer = str(request.META.get("REMOTE_ADDR") or "")
    if not proxies:
        return peer
    hops = [hop.strip() for hop in str(request.META.get("HTTP_X_FORWARDED_FOR", "")).split(",") if hop.strip()]
    return hops[-proxies] if len(hops) >= proxies else peer


def password_tried(name: str, address: str) -> float:
    """Count an attempt before its password is judged; seconds that it has to wait, 0: judge it.

    Attempts, not failures: many at the same moment cannot all come before the first of them has failed.
    """
    knobs = conf()
    by_address = _key("password", address)
    wait = _counted(by_address, knobs.sign_in_failures_per_address, "password", "", address) if address else 0.0
    if wait:
        return wait
    wait = _counted(_key("password", address, name), knobs.sign_in_failures_per_name, "password", name, address)
    if wait and address:  # a name that waits anyway says nothing more about its address
        _attempts.take_back(by_address, knobs.sign_in_window_seconds)
    return wait


def password_right(name: str, address: str) -> None:
    """The attempt was no failure."""
    _attempts.forget(_key("password", address, name))
    if address:
        _attempts.take_back(_key("password", address), conf().sign_in_window_seconds)


def token_wrong(address: str) -> float:
    """Count a token that nobody has; seconds to wait, 0: tell that it is wrong. Tokens that are right never wait."""
    return _counted(_key("token", address), conf().sign_in_failures_per_address, "token", "", address) if address else 0.0


def _counted(key: str, most: int, way: str, name: str, address: str) -> float:
    number, left = _attempts.add(key, conf().sign_in_window_seconds)
    if number <= most:
        return 0.0
    seconds = max(1.0, left)
    SIGN_INS_BRAKED_TOTAL.labels(way).inc()
    if number == most + 1:
        log.warning("sign-ins wait after failures", way=way, name=name[:100], address=address[:100], seconds=round(seconds))
        sign_in_braked.send(None, way=way, name=name, address=address, seconds=round(seconds))
    return seconds


def _key(*parts: str) -> str:
    """Of a fixed length, whatever was typed."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]
