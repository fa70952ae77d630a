"""Who wants to know about calls to outside services: a registry of observers, so that metrics need no adapter to import Django.

Owns: timing a call and naming its outcome. Not here: Prometheus (``wms2.metrics`` registers an observer).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wms2.errors import CircuitOpen, NotFoundInService, ServiceRejected, ServiceUnavailable

Observer = Callable[[str, str, str, float], None]
"""``(service, operation, outcome, seconds)``; outcome is one of ``OUTCOMES``. An observer must be quick and must not raise."""

TIMEOUT_CODE = "timeout"
"""``ServiceError.code`` of a call that was given up after its time limit; the outcome ``timeout`` is told by it."""

OUTCOMES = ("ok", "timeout", "unavailable", "circuit_open", "not_found", "rejected", "error")

_observers: list[Observer] = []


def add_observer(observer: Observer) -> None:
    """Have ``observer`` told of every call from now on (once, however often it is added)."""
    if observer not in _observers:
        _observers.append(observer)


def remove_observer(observer: Observer) -> None:
    """Forget an observer; nothing happens if it is unknown."""
    if observer in _observers:
        _observers.remove(observer)


def on_call(service: str, operation: str, outcome: str, seconds: float) -> None:
    """Tell all observers of one call."""
    for observer in tuple(_observers):
        observer(service, operation, outcome, seconds)


def outcome_of(error: BaseException) -> str:
    """The outcome's name for a failed call. ``error`` means a fault of our own, not of the service."""
    if isinstance(error, CircuitOpen):
        return "circuit_open"
    if isinstance(error, ServiceUnavailable):
        return "timeout" if error.code == TIMEOUT_CODE else "unavailable"
    if isinstance(error, NotFoundInService):
        return "not_found"
    return "rejected" if isinstance(error, ServiceRejected) else "error"


@contextmanager
def observed(service: str, operation: str) -> Iterator[None]:
    """Time the block and report its outcome; the error goes on."""
    started_at = time.monotonic()
    try:
        yield
    except BaseException as error:
        on_call(service, operation, outcome_of(error), time.monotonic() - started_at)
        raise
    on_call(service, operation, "ok", time.monotonic() - started_at)
