"""Calls whose outcomes are written down beforehand, and a clock that is told the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from wms2.adapters import caller
from wms2.errors import ServiceRejected, ServiceUnavailable
from wms2.runtime.circuits import FAILURES, CircuitBreaker, circuits


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Script:
    """A call whose outcomes are written down beforehand; counts how often it was made."""

    def __init__(self, *outcomes: object) -> None:
        self.outcomes, self.calls = list(outcomes), 0

    def __call__(self) -> object:
        self.calls += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def stopping(patch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Has this process stopped for so many seconds, by its host's own clock."""
    since_boot, stopped = caller.since_boot, [0.0]
    patch.setattr(caller, "since_boot", lambda: since_boot() + sum(stopped))
    return stopped.append


def overdue() -> datetime:
    """For what shall be due at once: ``wms2.runtime.clock`` may be a few milliseconds behind the host's."""
    return timezone.now() - timedelta(seconds=1)


def unavailable() -> ServiceUnavailable:
    return ServiceUnavailable("dbs", "block", "connection refused", "connection")


def rejected() -> ServiceRejected:
    return ServiceRejected("dbs", "block", "no such parameter", 118)


def state(breaker: CircuitBreaker) -> str:
    """What a circuit breaker does with the next call: closed, open or probing."""
    status_detail = circuits().status_detail(breaker.name)
    if status_detail.failures < FAILURES:
        return "closed"
    return "open" if status_detail.pause_seconds > 0 else "probing"
