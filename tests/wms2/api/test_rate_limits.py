"""Rates of each identity: counted by all processes together, refused honestly, and never in the way when the broker is silent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from rest_framework.test import APIClient

from tests.support.limits import set_limits
from tests.support.problems import problem
from tests.support.rest_clients import client_of
from wms2.api import rate_limits
from wms2.api.rate_limits import RateLimits
from wms2.conf import conf
from wms2.runtime import in_force
from wms2.runtime.shared_counts import Broker, redis_url

_names = itertools.count()


@pytest.fixture
def limits() -> Iterator[RateLimits]:
    prefix = f"wms2:test:rate:{time.time_ns()}"
    yield RateLimits(Broker(settings.CELERY_BROKER_URL, prefix, "rates are not limited"))
    client = redis.Redis.from_url(redis_url(settings.CELERY_BROKER_URL))
    if kept := client.keys(f"{prefix}:*"):
        client.delete(*kept)


def window(monkeypatch: pytest.MonkeyPatch, seconds: int = 1, **rates: int) -> None:
    limits = {f"rate_limit_{name}": rates.get(name, 0) for name in ("submit", "read", "act", "streams")}
    set_limits(monkeypatch, rate_limit_window_seconds=seconds, **limits)


def ask(limits: RateLimits, identity: str, limit: int) -> rate_limits.Answer:
    said = limits.ask("read", identity, limit, conf().limits.rate_limit_window_seconds)
    assert said is not None
    return said


@examples(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.integers(1, 6), calls=st.integers(1, 30))
def test_no_more_get_through_than_may_and_each_refusal_has_a_place_of_its_own(limits: RateLimits, limit: int, calls: int) -> None:
    identity = f"someone-{next(_names)}"
    said = [ask(limits, identity, limit) for _ in range(calls)]
    waits = [each.wait for each in said if each.wait]
    assert len(waits) == max(0, calls - limit)
    ends = [round(wait / conf().limits.rate_limit_window_seconds + 0.499) for wait in waits]
    assert all(ends.count(end) <= limit for end in ends), "no window is promised to more than fit"


def test_side_by_side_they_count_as_one(limits: RateLimits) -> None:
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda _: ask(limits, "many", 10), range(80)))
    assert sum(not each.wait for each in said) == 10


def test_whoever_waits_as_long_as_told_gets_through(limits: RateLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    window(monkeypatch)
    for _ in range(2):
        ask(limits, "one", 2)
    waits = [ask(limits, "one", 2).wait for _ in range(4)]
    began = time.monotonic()
    for wait in waits:
        time.sleep(max(0.0, wait - (time.monotonic() - began)))
        assert ask(limits, "one", 2).wait == 0


def test_identities_and_kinds_do_not_count_against_each_other(limits: RateLimits) -> None:
    assert ask(limits, "a", 1).wait == 0
    assert ask(limits, "a", 1).wait > 0
    assert ask(limits, "b", 1).wait == 0
    said = limits.ask("act", "a", 1, conf().limits.rate_limit_window_seconds)
    assert said is not None
    assert said.wait == 0


def test_nothing_is_kept_for_ever(limits: RateLimits) -> None:
    for _ in range(5):
        ask(limits, "a", 1)
    client = redis.Redis.from_url(redis_url(settings.CELERY_BROKER_URL))
    keys = client.keys(f"{limits.broker.prefix}:*")
    assert [0 < client.pttl(key) <= 60_000 for key in keys] == [True]


@pytest.mark.django_db
def test_over_rest_it_is_told_what_is_left_and_when_it_goes_on(limits: RateLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    window(monkeypatch, 10, read=2)
    rate_limits.use(limits)
    reader, other = (client_of(User.objects.create_user(name)) for name in ("rita", "otto"))
    answers = [reader.get("/api/v1/sites") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer["RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]
    assert answers[0]["RateLimit-Limit"] == "2, 2;w=10"
    problem(answers[2], 429, "rate_limited")
    assert 1 <= int(answers[2]["Retry-After"]) <= 10
    assert other.get("/api/v1/sites").status_code == 200
    assert {reader.get(path).status_code for path in ("/livez", "/api/v1/metrics") for _ in range(3)} == {200}
    assert "RateLimit-Limit" not in reader.get("/livez")


@pytest.mark.django_db
def test_operators_change_a_rate_while_it_runs(limits: RateLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    window(monkeypatch, 10, read=1)
    rate_limits.use(limits)
    reader = client_of(User.objects.create_user("rita"))
    assert [reader.get("/api/v1/sites").status_code for _ in range(2)] == [200, 429]
    monkeypatch.setattr(in_force, "_changed", lambda: {"rate_limit_read": 0})
    in_force.forget()
    assert [reader.get("/api/v1/sites").status_code for _ in range(2)] == [200, 200]
    assert "rate_limit_read" in {limit["name"] for limit in reader.get("/api/v1/admission/config").json()["limits"]}


@pytest.mark.django_db
def test_pages_count_as_reads_and_say_so_to_people(limits: RateLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    window(monkeypatch, 10, read=1)
    rate_limits.use(limits)
    client = Client()
    client.force_login(User.objects.create_user("rita"))
    assert [client.get("/").status_code, client.get("/").status_code] == [200, 429]
    assert b"Too much at once" in client.get("/").content
    somebody = {"REMOTE_ADDR": "192.0.2.1"}
    for page in ("/login/", "/admin/login/", "/admin/"):
        rate_limits.use(RateLimits(Broker(settings.CELERY_BROKER_URL, f"{limits.broker.prefix}:{page}", "")))
        assert Client().get(page, **somebody).status_code in (200, 302), "each address by itself"
        assert Client().get(page, **somebody).status_code == 429
        assert Client().get(page, REMOTE_ADDR="192.0.2.2").status_code in (200, 302)
        assert Client().post(page, {"username": "rita", "password": "x"}, **somebody).status_code != 429, "it has its own brake"
        assert Client().get("/livez", **somebody).status_code == 200


@pytest.mark.django_db
def test_while_the_broker_is_silent_nobody_waits(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    window(monkeypatch, 10, read=1)
    rate_limits.use(RateLimits(Broker(f"redis://127.0.0.1:{closed_port}/0", "wms2:test", "rates are not limited")))
    reader: APIClient = client_of(User.objects.create_user("rita"))
    before = rate_limits.RATE_LIMITS_OPEN_TOTAL._value.get()
    answers = [reader.get("/api/v1/sites") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert rate_limits.RATE_LIMITS_OPEN_TOTAL._value.get() == before + 3
