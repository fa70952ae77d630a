"""The one clock by which leases, graces and expiries are judged: the database's.

Hosts' clocks differ; two of them once took one lease for running and for expired at the same time. Call it as ``clock.now()``.
Moments that are only shown may come from the host.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone


def now() -> datetime:
    """The moment at the database, aware UTC; one question.

    Raises:
        django.db.OperationalError: the database does not answer.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment.astimezone(UTC)


def in_sql() -> Any:
    """The same for a query that judges by itself, with no question before it."""
    return Now()


def skew_seconds() -> float:
    """How far this host's clock is ahead of the database's, good to half of the question's way there and back."""
    before = timezone.now()
    there = now()
    after = timezone.now()
    return (before + (after - before) / 2 - there).total_seconds()
