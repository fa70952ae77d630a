"""Ten times as many imports as may be made, side by side, against a web server of several threads and processes."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token

from deploy.simulators import client as simulator_client
from deploy.simulators import seed
from deploy.stack.environment import with_limits
from requests_app.models import Request, RequestStatus
from sites_app.models import Site
from tests.support.places import ROOT
from tests.support.rows import request_row
from tests.support.simulators import Simulators
from tests.support.stack import database_url

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT, WINDOW_SECONDS, TRIES = 4, 4, 6


class Web:
    """gunicorn, as an installation runs it."""

    def __init__(self, place: Path, **settings: str) -> None:
        environment = {**os.environ, "WMS2_DATABASE_URL": database_url(), "PORT": "0", "WMS2_WEB_PROCESSES": "2", **settings}
        argv = [sys.executable, "-m", "gunicorn", "--config", "python:deploy.run.web", "wms2.wsgi:application"]
        self._log = place / "web.log"
        with self._log.open("w") as stream:
            self._process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=stream, stderr=stream)
        for _ in range(600):
            if found := re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", self._log.read_text()):
                self.port = int(found.group(1))
                return
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            time.sleep(0.1)
        raise AssertionError(self._log.read_text()[-2000:])

    def ask(self, method: str, path: str, token: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
        connection.request(method, f"/api/v1/{path}", json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        reported = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return reported

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    world = Simulators(tmp_path)
    seed.apply(simulator_client.Caller(world.url, login="seed"), ROOT / "deploy/demo/seed.json")
    running = Web(
        tmp_path,
        WMS2_REQMGR2_URL=f"{world.url}/reqmgr2/data",
        WMS2_CONFIGCACHE_URL=f"{world.url}/couchdb",
        **with_limits(
            os.environ,
            rate_limit_window_seconds=WINDOW_SECONDS,
            rate_limit_submit=LIMIT,
            rate_limit_act=20,
            rate_limit_read=100,
        ),
    )
    yield running
    running.stop()
    world.stop()


@pytest.mark.dear("data: the only flood of imports against a web server of several processes")
def test_no_request_of_a_flood_is_lost_or_stored_twice_and_others_are_served(web: Web) -> None:
    for name in ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue"):
        Site.objects.create(name=name)
    flooder, other = (Token.objects.create(user=User.objects.create_superuser(name)).key for name in ("olga", "otto"))
    text = (ROOT / "deploy/demo/requests/stepchain_scratch.json").read_text()
    running = request_row(RequestStatus.ACTIVE)
    refusals: list[tuple[int, str]] = []
    flooding, others = threading.Event(), list[int]()

    def submit(number: int) -> tuple[int, int]:
        for tried in range(1, TRIES + 1):
            document = json.loads(text.replace('"PsiToMuMu"', f'"Flood{number}"'))  # datasets of its own
            body = {"document": document, "request_name": f"flood_{number}", "submit": False}
            status, headers, _ = web.ask("POST", "requests", flooder, body)
            if status not in (429, 503):
                return status, tried
            refusals.append((status, headers["retry-after"]))
            flooding.set()
            time.sleep(int(headers["retry-after"]))
        return status, tried

    with ThreadPoolExecutor(10 * LIMIT) as pool:
        asked = [pool.submit(submit, number) for number in range(10 * LIMIT)]
        flooding.wait(120)
        others += [web.ask("GET", f"requests/{running.request_name}", other)[0] for _ in range(3)]
        others += [web.ask("DELETE", f"requests/{request_row(RequestStatus.HELD).request_name}?reason=x", other)[0]]
        done = [each.result() for each in asked]
    assert {status for status, _ in done} == {201}
    names = list(Request.objects.filter(request_name__startswith="flood_").values_list("request_name", flat=True))
    assert sorted(names) == sorted(f"flood_{number}" for number in range(10 * LIMIT))
    assert {int(seconds) > 0 for _, seconds in refusals} == {True}
    assert 429 in {status for status, _ in refusals}
    assert others == [200, 200, 200, 202], "another's calls, and stops, are served meanwhile"
    running.refresh_from_db()
    assert running.status == RequestStatus.ACTIVE
