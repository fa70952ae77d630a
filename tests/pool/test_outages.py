"""The broker or the database is away for a while: what the web answers meanwhile, and that all goes on by itself afterwards.

Worker, beat and web reach them by ways of this test's own, so that nothing is taken away from others.
"""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import Group, User
from rest_framework.authtoken.models import Token

from requests_app.models import LEADER_LEASE, Lease, Request, RequestStatus
from tests.support.faults import fault
from tests.support.outcomes import assert_completed_once, ended, imported, status
from tests.support.rows import request_row
from tests.support.servers import free_port, listens
from tests.support.stack import Worker, celery_beat, celery_worker, web
from tests.support.stalling import Stalling, stalling_ways
from tests.support.waiting import until
from wms2.identities.grants import OPERATORS

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
#: Longer than every limit of a connection to the broker, and than a hint is worth anything (60 s).
BROKER_SECONDS = 65.0
DATABASE_SECONDS = 20.0


class Asking:
    """A client that reads a page, lists requests and changes a priority, one after the other, for as long as the block lasts."""

    def __init__(self, port: int, request: Request, token: str) -> None:
        self._base, self.request, self._token = f"http://127.0.0.1:{port}", request, token
        self._over = threading.Event()
        self.answers: Counter[int] = Counter()
        self.without_a_time = 0
        self.slowest_seconds = 0.0
        self.priority = 0

    def once(self) -> None:
        """One of each."""
        self.priority += 1
        body = f'{{"priority": {self.priority}, "reason": "for the test"}}'.encode()
        path = f"/api/v1/requests/{self.request.request_name}"
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


@dataclass(frozen=True, slots=True)
class Service:
    """A worker, a beat and a web, as in production, and their ways to database and broker."""

    worker: Worker
    asking: Asking
    to_database: Stalling
    to_broker: Stalling


@pytest.fixture(name="service")
def _service(ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that answers."""
    user = User.objects.create_user("olga")
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    port = free_port()
    request = request_row(RequestStatus.HELD, hold_code="operator", hold_reason="for the test")
    asking = Asking(port, request, Token.objects.create(user=user).key)
    place = tmp_path_factory.mktemp("o")  # a socket's path must be short
    with (
        stalling_ways(place) as (to_database, to_broker, there),
        celery_worker("one", **there) as running,
        celery_beat(place, **there),
        web(port, **there) as serving,
    ):
        running.wait(lambda: cycled() != "", seconds=60)
        serving.wait(lambda: listens(port), seconds=60)
        asking.once()
        assert asking.answers == {200: 3}
        yield Service(running, asking, to_database, to_broker)


def cycled() -> str:
    """When the last cycle ended."""
    row = Lease.objects.filter(name=LEADER_LEASE).first()
    return str(row.data.get("cycle_ended_at", "")) if row else ""


def goes_on() -> None:
    """Cycles end again."""
    before = cycled()
    until(lambda: cycled() > before, "another cycle", seconds=120)


@fault(
    "database away from the web",
    done="every session with PostgreSQL is ended, and nobody gets in for a while",
    spec="docs/design/control.md, Truth",
    afterwards="503 with Retry-After and nothing else; then answers as ever, and cycles go on by themselves",
)
@fault(
    "broker away under load",
    done="nobody reaches Valkey for longer than every limit of a connection, while DAGs run and registrations are due",
    spec="docs/design/control.md, Truth",
    afterwards="pages, REST and verbs answered as ever, DAGs run on; workers and beats come back by themselves: COMPLETED once",
)
def test_the_web_says_that_the_database_is_away_and_the_broker_costs_time_and_nothing_else(service: Service) -> None:
    _database_away(service.asking, service.to_database)
    _broker_away(service.asking, service.to_broker, service.worker)


def _database_away(asking: Asking, to_database: Stalling) -> None:
    with asking.all_the_time() as answers:
        until(lambda: answers[200] > 5, "answers")
        with to_database.gone():
            time.sleep(DATABASE_SECONDS)
        before = answers[200]
        until(lambda: answers[200] > before + 5, "answers again")
    assert set(answers) == {200, 503}, answers
    assert asking.without_a_time == 0
    goes_on()


def _broker_away(asking: Asking, to_broker: Stalling, running: Worker) -> None:
    requests = [imported(events=20), imported(events=20)]
    running.wait(lambda: status(requests[0]) == RequestStatus.ACTIVE, seconds=120)
    with to_broker.gone(), asking.all_the_time() as answers:
        requests.append(imported(events=20))
        time.sleep(BROKER_SECONDS)
        assert not all(ended(request) for request in requests)
    assert set(answers) == {200}, answers
    asking.request.refresh_from_db()
    assert asking.request.priority == asking.priority
    print(f"slowest answer: {asking.slowest_seconds:.2f} s of {sum(answers.values())}")
    back = time.monotonic()
    running.wait(lambda: all(ended(request) for request in requests), seconds=240)
    print(f"away for {BROKER_SECONDS:g} s; all completed {time.monotonic() - back:.0f} s after it was back")
    for request in requests:
        assert_completed_once(request)
