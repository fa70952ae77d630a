"""Leases that are kept alive beside the work."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from wms2.heartbeat import kept_alive


@pytest.mark.django_db
def test_between_two_beats_a_keeper_has_no_database_session() -> None:
    """A plan or a registration has two keepers: it would need three sessions for as long as it lasts."""
    pids: list[int] = []
    enough = threading.Event()

    def renew() -> bool:
        with connection.cursor() as cursor:
            pids.append(cursor.execute("SELECT pg_backend_pid()").fetchone()[0])
        if len(pids) == 3:
            enough.set()
        return True

    with kept_alive(renew, life_seconds=0.1):
        assert enough.wait(60)
    assert len(set(pids)) == len(pids)
