"""The one clock by which leases, graces and expiries are judged: the database's.

Hosts' clocks differ; two of them once took one lease for running and for expired at the same time. Call it as ``clock.now()``.
Moments that are only shown may come from the host.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connection


def now() -> datetime:
    """The moment at the database, aware UTC; one question.

    Raises:
        django.db.OperationalError: the database does not answer.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment.astimezone(UTC)
