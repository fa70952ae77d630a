"""How every outside service is called: timed into the metrics, through its circuit, repeated while it does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from wms2.circuits import CircuitBreaker
from wms2.errors import CircuitOpen, NotFoundInService, ServiceError, ServiceRejected, ServiceUnavailable
from wms2.metrics import EXTERNAL_CALL_SECONDS
from wms2.retry import TRIES, retry_call

T = TypeVar("T")

TIMEOUT_CODE = "timeout"
"""``ServiceError.code`` of a call that was given up after its time limit; the outcome ``timeout`` is told by it."""


class Caller:
    """Calls to one service at one place (host, URL or schedd)."""

    def __init__(self, service: str, place: str) -> None:
        self.breaker = CircuitBreaker(service, place)

    def call(self, operation: str, fn: Callable[[], T], tries: int = TRIES) -> T:
        """What ``fn`` returns; errors are its own, and ``CircuitOpen``. More than one of ``tries`` only if it may be repeated."""

        def once() -> T:
            with observed(self.breaker.service, operation):
                return self.breaker.call(fn, operation)

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
