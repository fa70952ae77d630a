"""``lifecycle_tick --loop`` outlives the database's restarts."""

from __future__ import annotations

import psycopg
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from requests_app.installation import installation_claim
from requests_app.management.commands import lifecycle_tick
from requests_app.models import Request


@pytest.fixture(autouse=True)
def _our_database(transactional_db: None) -> None:
    installation_claim()  # it starts on no other


def end_our_session(*, force: bool = True) -> None:
    """As a restart of the server does. In place of a cycle."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    parameters = connection.get_connection_params()
    with psycopg.connect(host=parameters["host"], user=parameters["user"], dbname="postgres", autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))


@pytest.mark.django_db(transaction=True)
def test_a_pass_that_loses_its_database_session_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle_tick, "POLL_SECONDS", 0.01)
    asked: list[int] = []

    def cycle(*, force: bool) -> None:
        asked.append(Request.objects.count())
        if len(asked) == 2:
            raise KeyboardInterrupt
        end_our_session()

    monkeypatch.setattr(lifecycle_tick, "run_cycle", cycle)
    with pytest.raises(KeyboardInterrupt):
        call_command("lifecycle_tick", loop=True)
    assert asked == [0, 0]


@pytest.mark.django_db(transaction=True)
def test_one_pass_alone_tells_that_the_database_went_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle_tick, "run_cycle", end_our_session)
    with pytest.raises(OperationalError):
        call_command("lifecycle_tick")
    connection.close()
