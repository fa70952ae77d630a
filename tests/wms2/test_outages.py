"""The broker or the database is away for a while: what the web answers meanwhile, and that all goes on by itself afterwards."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from rest_framework.authtoken.models import Token

from requests_app.installation import installation_claim
from requests_app.models import LEADER_LEASE, Lease, Request, RequestStatus
from tests.support import services
from tests.support.faults import fault
from tests.support.rows import request_row
from tests.support.stack import celery_beat, celery_worker, web
from wms2.api.permissions import OPERATORS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone, pytest.mark.slow]
#: Longer than every limit of a connection to the broker, and than a hint is worth anything (60 s).
BROKER_SECONDS = 75.0
DATABASE_SECONDS = 20.0


class Asking:
    """A client that reads a page, lists requests and changes a priority, one after the other, for as long as the block lasts."""

    def __init__(self, port: int, request: Request, token: str) -> None:
        self._base, self._request, self._token = f"http://127.0.0.1:{port}", request, token
        self._over = threading.Event()
        self.answers: Counter[int] = Counter()
        self.without_a_time = 0
        self.slowest_seconds = 0.0
        self.priority = 0

    def once(self) -> None:
        """One of each."""
        self.priority += 1
        body = f'{{"priority": {self.priority}, "reason": "for the test"}}'.encode()
        path = f"/api/v1/requests/{self._request.request_name}"
        for method, address, data in (("GET", "/login/", None), ("GET", "/api/v1/requests", None), ("PATCH", path, body)):
            headers = {"Authorization": f"Token {self._token}", "Content-Type": "application/json"}
            question = urllib.request.Request(self._base + address, data=data, method=method, headers=headers)
            began = time.monotonic()
            try:
                with urllib.request.urlopen(question, timeout=60) as answer:
                    code = answer.status
            except urllib.error.HTTPError as error:
                code = error.code
                self.without_a_time += "Retry-After" not in error.headers
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            self.answers[code] += 1

    def _keep_on(self) -> None:
        while not self._over.is_set():
            self.once()
            self._over.wait(0.5)

    @contextmanager
    def all_the_time(self) -> Iterator[Counter[int]]:
        """Answers by code."""
        self.answers.clear()
        thread = threading.Thread(target=self._keep_on)
        thread.start()
        try:
            yield self.answers
        finally:
            self._over.set()
            thread.join()
            self._over.clear()


@pytest.fixture(name="asking")
def _asking(tmp_path: Path) -> Iterator[Asking]:
    """While a worker, a beat and a web run, as in production."""
    installation_claim()
    user = User.objects.create_user("olga")
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    request = request_row(RequestStatus.HELD, hold_code="operator", hold_reason="for the test")
    asking = Asking(port, request, Token.objects.create(user=user).key)
    with celery_worker("one") as running, celery_beat(tmp_path), web(port) as serving:
        running.wait(lambda: cycled() != "", seconds=60)
        serving.wait(lambda: _serves(port), seconds=60)
        asking.once()
        assert asking.answers == {200: 3}
        yield asking


def _serves(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def cycled() -> str:
    """When the last cycle ended."""
    row = Lease.objects.filter(name=LEADER_LEASE).first()
    return str(row.data.get("cycle_ended_at", "")) if row else ""


def goes_on() -> None:
    """Cycles end again."""
    before = cycled()
    services.until(lambda: cycled() > before, "another cycle", seconds=120)


@fault(
    "broker away",
    done="nobody reaches Valkey for longer than every limit of a connection",
    spec="docs/design/control.md, Truth",
    afterwards="pages, REST and verbs answered as ever; cycles go on by themselves",
)
def test_while_the_broker_is_away_pages_and_verbs_are_answered_and_afterwards_cycles_go_on(asking: Asking) -> None:
    with services.valkey_away(), asking.all_the_time() as answers:
        time.sleep(BROKER_SECONDS)
    assert set(answers) == {200}, answers
    assert Request.objects.get().priority == asking.priority
    print(f"slowest answer: {asking.slowest_seconds:.2f} s of {sum(answers.values())}")
    goes_on()


@fault(
    "database away from the web",
    done="every session with PostgreSQL is ended, and nobody gets in for a while",
    spec="docs/design/control.md, Truth",
    afterwards="503 with Retry-After and nothing else; then answers as ever, and cycles go on by themselves",
)
def test_while_the_database_is_away_everything_is_503_with_a_time_to_come_back_and_afterwards_all_goes_on(asking: Asking) -> None:
    with asking.all_the_time() as answers:
        services.until(lambda: answers[200] > 5, "answers")
        with services.postgres_away():
            time.sleep(DATABASE_SECONDS)
        before = answers[200]
        services.until(lambda: answers[200] > before + 5, "answers again")
    assert set(answers) == {200, 503}, answers
    assert asking.without_a_time == 0
    goes_on()
