"""The process ``stream`` on the test's database, to which the web leads while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from django.conf import settings
from django.db import connection

from tests.support import stack
from tests.support.servers import free_port
from wms2.conf import conf

#: Far longer than an answer takes: it only ends a test that would hang.
PATIENCE = 60


@dataclass(frozen=True)
class Stream:
    """A running one."""

    address: str
    worker: stack.Worker

    def standing(self) -> dict[str, Any]:
        """What it says of itself."""
        found: dict[str, Any] = requests.get(f"{self.address}/livez", timeout=PATIENCE).json()
        return found

    @property
    def readers(self) -> int:
        """How many it has."""
        return int(self.standing()["readers"])


def own_settings() -> dict[str, str]:
    """What a process needs for it to belong to the test's web server."""
    return {"WMS2_SECRET_KEY": settings.SECRET_KEY, "WMS2_DATABASE_URL": stack.database_url()}


@contextmanager
def streaming(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Iterator[Stream]:
    """A running one; skips without the test stack."""
    if reason := stack.missing():
        pytest.skip(reason)
    port = free_port()
    with stack.stream(port, **own_settings(), **environment) as worker:
        found = Stream(f"http://127.0.0.1:{port}", worker)
        worker.wait(lambda: "listens to the feed" in worker.tail() and _answers(found), seconds=30)
        monkeypatch.setenv("WMS2_STREAM_URL", f"{found.address}/stream")
        conf.cache_clear()
        try:
            yield found
        finally:
            conf.cache_clear()


def sessions() -> int:
    """How many of the database's sessions are those of processes ``stream``."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", ["wms2-stream"])
        return int(cursor.fetchone()[0])


def _answers(found: Stream) -> bool:
    try:
        return bool(found.standing()["database"] == "ok")
    except requests.ConnectionError:
        return False
