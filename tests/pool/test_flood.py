"""Ten times as many imports as may be made while PostgreSQL is restarted: each is stored once, and what runs goes on."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token

from requests_app.models import Request, RequestStatus
from requests_app.services import request_import
from tests.support import services
from tests.support.faults import fault
from tests.support.outcomes import assert_completed_once, ended, status
from tests.support.stack import celery_beat, celery_worker, small_request, web

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
LIMIT, WINDOW_SECONDS, CLIENTS, TRIES = 5, 2, 50, 12


@dataclass
class Flood:
    """Clients that all import at once, and come again when they are told to."""

    base: str
    token: str
    began: threading.Event = field(default_factory=threading.Event)
    told: list[tuple[int, int]] = field(default_factory=list)

    def client(self, number: int) -> tuple[int, str]:
        """Import one, until an answer is final: it and its code."""
        body = json.dumps({"document": small_request(events=20), "request_name": f"flood_{number}", "submit": False}).encode()
        for _ in range(TRIES):
            code, headers, answer = self._ask(body)
            if code not in (429, 503):
                return code, answer.get("code", "")
            self.told.append((code, int(headers["Retry-After"])))
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
    done="ten times as many imports as may be made come at once over HTTP; PostgreSQL crashes among them; a DAG runs",
    spec="docs/design/control.md, Truth; ADR 0095",
    afterwards="429 or 503 with the time to come again, every import stored once; the DAG goes on: COMPLETED once",
)
@pytest.mark.alone
def test_no_import_of_a_flood_is_lost_or_stored_twice_over_a_restart_and_what_runs_goes_on(ready: None, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rates = {"WMS2_RATE_LIMIT_SUBMIT": str(LIMIT), "WMS2_RATE_LIMIT_WINDOW_SECONDS": str(WINDOW_SECONDS)}
    going = request_import(document=small_request(events=40), request_name=None, actor="tester")
    flood = Flood(f"http://127.0.0.1:{port}", Token.objects.create(user=User.objects.create_superuser("olga")).key)
    with celery_worker("one") as running, celery_beat(tmp_path), web(port, **rates) as serving:
        running.wait(lambda: status(going) == RequestStatus.ACTIVE, seconds=120)
        serving.wait(lambda: "Listening at" in serving.log.read_text(), seconds=60)
        with ThreadPoolExecutor(CLIENTS) as pool:
            asked = [pool.submit(flood.client, number) for number in range(CLIENTS)]
            assert flood.began.wait(120)
            services.postgres_crash()
            answers = [each.result() for each in asked]
        running.wait(lambda: ended(going), seconds=240)
    assert set(answers) <= {(201, ""), (409, "request_exists")}, answers
    stored = Request.objects.exclude(pk=going.pk).order_by("request_name").values_list("request_name", "status")
    assert list(stored) == [(name, RequestStatus.NEW) for name in sorted(f"flood_{number}" for number in range(CLIENTS))]
    codes = {code for code, _ in flood.told}
    print(f"{len(flood.told)} told to wait, by {sorted(codes)}, {max(seconds for _, seconds in flood.told)} s at most")
    assert 429 in codes
    assert all(seconds > 0 for _, seconds in flood.told)
    assert_completed_once(going)
