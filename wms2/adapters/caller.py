"""How every outside service is called: timed into the metrics, through its circuit, repeated while it does not answer, and not at
all once a lease under which the caller works is lost.

Not here: when calling stops altogether (``wms2.runtime.circuits``), retries over hours, which are rows
(``Effect.next_attempt_at``, ``Request.next_attempt_at``), and what a failure means (``wms2.errors``). docs/design/control.md,
Retries.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from wms2.errors import CircuitOpen, LeaseLost, NotFoundInService, NotNow, ServiceError, ServiceRejected, ServiceUnavailable
from wms2.metrics.series import EXTERNAL_CALL_SECONDS
from wms2.runtime.circuits import CircuitBreaker

T = TypeVar("T")

#: How often a call that may be repeated is made at most.
TRIES = 3
_BASE_SECONDS, _CAP_SECONDS = 0.5, 30.0
#: Of the leases under which this thread works, each set once it is lost. Threads that work for it get a copy of its context.
LEASES_LOST: ContextVar[tuple[threading.Event, ...]] = ContextVar("leases_lost", default=())
TIMEOUT_CODE = "timeout"
"""``ServiceError.code`` of a call that was given up after its time limit; the outcome ``timeout`` follows from it."""


def since_boot() -> float:
    """Seconds on a clock that all processes of this host share, that no setting of its time changes, and that goes on while
    they or the host are stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class HeldLease(threading.Event):
    """A lease that this process has. Set once it is lost: another process was given it, its time is over by this host's own
    clock, whatever keeps it from being renewed, or the work under it has ended (docs/design/control.md, Leases)."""

    def __init__(self, ends_at: float) -> None:
        super().__init__()
        self._ends_at = ends_at

    def is_set(self) -> bool:
        return super().is_set() or since_boot() >= self._ends_at

    def renewed(self, ends_at: float) -> None:
        """It now lasts until then, by ``since_boot`` from before the renewal was asked for."""
        self._ends_at = ends_at


@contextmanager
def working_under(lease: HeldLease) -> Iterator[None]:
    """Inside, nothing outside is called once the lease is lost; nor afterwards, by threads that were begun inside."""
    before = LEASES_LOST.set((*LEASES_LOST.get(), lease))
    try:
        yield
    finally:
        LEASES_LOST.reset(before)
        lease.set()


@contextmanager
def undoing() -> Iterator[None]:
    """Inside, calls are made though the lease is lost: only for what undoes a call of one's own that came too late."""
    before = LEASES_LOST.set(())
    try:
        yield
    finally:
        LEASES_LOST.reset(before)


def _stop_if_lost() -> None:
    """Right before each call outside. Raises LeaseLost: a lease under which this thread works is lost."""
    if any(lost.is_set() for lost in LEASES_LOST.get()):
        raise LeaseLost("not called: the lease has run out, or another process has it by now")


class Caller:
    """Calls to one service at one place (host, URL or schedd)."""

    def __init__(self, service: str, place: str) -> None:
        self.breaker = CircuitBreaker(service, place)

    def call(self, operation: str, fn: Callable[[], T], tries: int = TRIES) -> T:
        """What ``fn`` returns; errors are its own, and ``CircuitOpen``. More than one of ``tries`` only if it may be repeated."""

        def asked() -> T:
            _stop_if_lost()  # the circuit was asked for meanwhile
            return fn()

        def once() -> T:
            with observed(self.breaker.service, operation):
                return self.breaker.call(asked, operation)

        return retry_call(once, tries=tries)


@contextmanager
def observed(service: str, operation: str) -> Iterator[None]:
    """Time the block and report its outcome; the error goes on."""
    started_at, outcome = time.monotonic(), "error"  # of our own, unless the service is seen to be at fault
    try:
        yield
        outcome = "ok"
    except ServiceError as error:
        outcome = outcome_of(error)
        raise
    finally:
        EXTERNAL_CALL_SECONDS.labels(service, operation, outcome).observe(time.monotonic() - started_at)


def outcome_of(error: ServiceError) -> str:
    """The outcome's name for a failed call. ``error`` means a fault of our own, not of the service."""
    if isinstance(error, CircuitOpen):
        return "circuit_open"
    if isinstance(error, ServiceUnavailable):
        return "timeout" if error.code == TIMEOUT_CODE else "unavailable"
    if isinstance(error, NotFoundInService):
        return "not_found"
    return "rejected" if isinstance(error, ServiceRejected) else "error"


def retry_call(fn: Callable[[], T], *, tries: int = TRIES) -> T:
    """Call ``fn`` until it returns, at most ``tries`` times, with a pause between two tries.

    Only ``ServiceUnavailable`` is worth another try, and not as ``CircuitOpen`` or ``NotNow``: the first was not even tried, the
    second would hear the same again. Only for calls that may be made twice; a submission never is.

    Raises:
        LeaseLost: a lease under which the caller works is lost; nothing was called.
        Exception: what the last try raised.
    """
    for attempt in range(1, tries):
        _stop_if_lost()
        try:
            return fn()
        except (CircuitOpen, NotNow):
            raise
        except ServiceUnavailable:
            pause(attempt)
    _stop_if_lost()
    return fn()


def pause(attempt: int) -> None:
    """Sleep after failed attempt number ``attempt``."""
    time.sleep(jittered_seconds(attempt))


def jittered_seconds(attempt: int) -> float:
    """A pause after failed attempt number ``attempt`` (from 1): uniform in 0 .. min(cap, base * 2^(attempt-1)), "full jitter"."""
    # Spreads the load; nothing secret depends on it.
    return random.uniform(0.0, min(_CAP_SECONDS, _BASE_SECONDS * 2.0 ** (attempt - 1)))  # noqa: S311
