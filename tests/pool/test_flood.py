"""Database and broker crash, also among ten times as many imports as may be made: each is stored once, and what runs goes on."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token

from outputs_app.models import Effect, EffectState, OutputFile
from requests_app.models import Request, RequestStatus
from tests.support import services
from tests.support.faults import fault
from tests.support.outcomes import assert_completed_once, ended, imported, status
from tests.support.servers import free_port
from tests.support.stack import celery_beat, celery_worker, small_request, web

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
LIMIT, WINDOW_SECONDS, CLIENTS, TRIES = 5, 2, 50, 12


@dataclass
class Flood:
    """Clients that all import at once, and come again when they are told to."""

    base: str
    token: str
    began: threading.Event = field(default_factory=threading.Event)
    reported: list[tuple[int, int]] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)

    def over_a_crash(self) -> None:
        """All of them; the database crashes when the first was told to come again."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            asked = [pool.submit(self.client, number) for number in range(CLIENTS)]
            assert self.began.wait(120)
            services.postgres_crash()
            self.answers = [each.result() for each in asked]

    def client(self, number: int) -> tuple[int, str]:
        """Import one, until an answer is final: it and its code."""
        body = json.dumps({"document": small_request(events=20), "request_name": f"flood_{number}", "submit": False}).encode()
        for _ in range(TRIES):
            code, headers, answer = self._ask(body)
            if code not in (429, 503):
                return code, answer.get("code", "")
            self.reported.append((code, int(headers["Retry-After"])))
            self.began.set()
            time.sleep(int(headers["Retry-After"]))
        return code, "never"

    def _ask(self, body: bytes) -> tuple[int, Any, dict[str, Any]]:
        headers = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        question = urllib.request.Request(f"{self.base}/api/v1/requests", data=body, method="POST", headers=headers)
        try:
            with urllib.request.urlopen(question, timeout=120) as answer:
                return answer.status, answer.headers, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.headers, json.load(refused)


@fault(
    "flood and PostgreSQL crash",
    done="ten times as many imports as may be made come at once over HTTP; PostgreSQL crashes among them; DAGs run",
    spec="docs/design/control.md, Truth; ADR 0028",
    afterwards="429 or 503 with the time to come again, every import stored once; the DAGs go on: COMPLETED once",
)
@fault(
    "PostgreSQL and Valkey crash",
    done="PostgreSQL crashes three times, Valkey loses everything twice",
    spec="docs/design/control.md, Truth",
    afterwards="costs time and nothing else: COMPLETED once",
)
@pytest.mark.alone
def test_database_and_broker_that_crash_again_and_again_lose_nothing_of_what_runs_nor_of_a_flood(
    ready: None, tmp_path: Path
) -> None:
    port = free_port()
    rates = {"rate_limit_submit": LIMIT, "rate_limit_window_seconds": WINDOW_SECONDS}
    going = [imported(events=20) for _ in range(2)]
    flood = Flood(f"http://127.0.0.1:{port}", Token.objects.create(user=User.objects.create_superuser("olga")).key)
    moments: list[tuple[Callable[[], bool], Callable[[], None]]] = [
        (lambda: status(going[0]) != RequestStatus.SUBMITTED, services.postgres_crash),
        (lambda: status(going[0]) == RequestStatus.ACTIVE, services.valkey_lose_everything),
        (OutputFile.objects.exists, flood.over_a_crash),
        (lambda: Effect.objects.filter(state=EffectState.DONE).exists(), services.valkey_lose_everything),
        (lambda: Effect.objects.filter(state=EffectState.DONE).count() > 3, services.postgres_crash),
    ]
    with celery_worker("one") as running, celery_beat(tmp_path), web(port, **rates) as serving:
        serving.wait(lambda: "Listening at" in serving.log.read_text(), seconds=60)
        for reached, crash in moments:
            running.wait(reached, seconds=120)
            crash()
        running.wait(lambda: all(ended(request) for request in going), seconds=240)
    assert set(flood.answers) <= {(201, ""), (409, "request_exists")}, flood.answers
    stored = Request.objects.filter(request_name__startswith="flood_").order_by("request_name")
    names = sorted(f"flood_{number}" for number in range(CLIENTS))
    assert list(stored.values_list("request_name", "status")) == [(name, RequestStatus.NEW) for name in names]
    codes = {code for code, _ in flood.reported}
    print(f"{len(flood.reported)} told to wait, by {sorted(codes)}, {max(seconds for _, seconds in flood.reported)} s at most")
    assert 429 in codes
    assert all(seconds > 0 for _, seconds in flood.reported)
    for request in going:
        assert_completed_once(request)
