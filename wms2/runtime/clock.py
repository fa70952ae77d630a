"""The one clock by which leases, graces and expiries are judged: the database's.

Hosts' clocks differ; two of them once took one lease for running and for expired at the same time. Call it as ``clock.now()``.
Moments that are only shown may come from the host.
"""

from __future__ import annotations

import random
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

#: An answer is counted on for so long, if it came so quickly: the result is that much behind at most, and never ahead.
_CACHE_SECONDS, _QUICK_SECONDS = 1.0, 0.002
#: The newest such answer, and when it came by ``_elapsed``; at most one.
_answers: deque[tuple[datetime, float]] = deque(maxlen=1)


def now() -> datetime:
    """The moment at the database, aware UTC; one question a second at most. Raises django.db.OperationalError: the database does
    not answer."""
    for moment, came in tuple(_answers):
        if (since := _elapsed() - came) < _CACHE_SECONDS:
            return moment + timedelta(seconds=since)
    return _asked()


def _asked() -> datetime:
    before = _elapsed()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0].astimezone(UTC)
    came = _elapsed()
    if came - before < _QUICK_SECONDS:
        _answers.append((moment, came))
    return moment


def _elapsed() -> float:
    """Seconds that no setting of the host's clock changes, and that pass while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def in_sql() -> Any:
    """The same for a query that judges by itself, with no question before it."""
    return Now()


def in_plain_sql() -> str:
    """The same in a plain statement."""
    return "statement_timestamp()"


def pause(first: timedelta, longest: timedelta, failures: int) -> timedelta:
    """Until the next try after so many failures in a row before this one: twice as long each time, up to a quarter more or less.

    What fails together, because a service is out, must not come back together.
    """
    whole = min(first * (1 << min(failures, 20)), longest)
    return whole * random.uniform(0.75, 1.25)  # noqa: S311


def skew_seconds() -> float:
    """How far this host's clock is ahead of the database's, good to half of the question's way there and back."""
    before = timezone.now()
    there = _asked()
    after = timezone.now()
    return (before + (after - before) / 2 - there).total_seconds()
