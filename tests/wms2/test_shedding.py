"""Which calls are refused when a web process has too much to do, and which never are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.test import APIClient

from requests_app.models import RequestStatus
from tests.support.calls import Clock
from tests.support.problems import problem
from tests.support.rest_clients import client_of
from tests.support.rows import request_row
from wms2.conf import WEB_THREADS, conf
from wms2.web import shedding
from wms2.web.shedding import ASK_SECONDS, EASED, MEAN_SECONDS, SLOW_SECONDS, Call, Load, call_of

#: By the end of an address and the method: what operators count on.
EXPECTED = {
    ("livez", "GET"): Call.HEALTH,
    ("livez", "HEAD"): Call.HEALTH,
    ("api/v1/events", "HEAD"): Call.POLL,
    ("readyz", "GET"): Call.HEALTH,
    ("api/v1/health", "GET"): Call.HEALTH,
    ("api/v1/metrics", "GET"): Call.HEALTH,
    ("api/v1/requests", "POST"): Call.SUBMIT,
    ("api/v1/requests", "GET"): Call.READ,
    ("api/v1/requests/<name:request_name>", "GET"): Call.RESULT,
    ("api/v1/requests/<name:request_name>", "DELETE"): Call.STOP,
    ("api/v1/requests/<name:request_name>/stop", "POST"): Call.STOP,
    ("api/v1/requests/<name:request_name>/hold", "POST"): Call.STOP,
    ("api/v1/requests/<name:request_name>/fail", "POST"): Call.STOP,
    ("api/v1/requests/<name:request_name>/release", "POST"): Call.ACT,
    ("api/v1/requests/<name:request_name>/errors", "GET"): Call.READ,
    ("api/v1/dags/<uuid:pk>/nodes", "GET"): Call.READ,
    ("api/v1/dags/<uuid:pk>/hold", "POST"): Call.STOP,
    ("api/v1/dags/<uuid:pk>/release", "POST"): Call.ACT,
    ("api/v1/sites/<name:pk>/drain", "POST"): Call.STOP,
    ("api/v1/sites/<name:pk>/enable", "POST"): Call.ACT,
    ("api/v1/service/<name:pk>/stop-new-work", "POST"): Call.STOP,
    ("api/v1/service/<name:pk>/allow-new-work", "POST"): Call.ACT,
    ("api/v1/events", "GET"): Call.POLL,
    ("api/v1/events/stream", "GET"): Call.STREAM,
    ("api/v1/schema/", "GET"): Call.READ,
    ("dags/<uuid:pk>/logs/", "GET"): Call.READ,
    ("requests/<name:request_name>/", "GET"): Call.READ,
}


def routes(patterns: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        place = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, place)
        else:
            assert isinstance(pattern, URLPattern)
            yield place, pattern.callback


def test_every_route_has_a_class_for_every_method_and_those_that_matter_the_right_one() -> None:
    found = {
        (place, method): call_of(view, method)
        for place, view in routes(get_resolver().url_patterns)
        for method in ("GET", "HEAD", "POST", "PATCH", "DELETE")
    }
    assert {each: found[each] for each in EXPECTED} == EXPECTED
    assert all(isinstance(call, Call) for call in found.values())


def test_no_declaration_names_an_action_that_its_view_does_not_have() -> None:
    for place, view in routes(get_resolver().url_patterns):
        seen = getattr(view, "cls", None)
        declared = getattr(seen, "calls", {})
        assert all(hasattr(seen, name) for name in declared), place


def test_each_call_names_a_rate_of_the_settings() -> None:
    assert all(hasattr(conf().limits, f"rate_limit_{call.rate}") for call in Call if call.rate)


def test_busy_threads_for_some_seconds_are_a_load_and_idle_ones_end_it() -> None:
    clock = Clock()
    load = Load(database=lambda: 0.0, clock=clock)
    found = []
    for seconds, threads in ((0, WEB_THREADS), (5 * MEAN_SECONDS, 0), (0.1 * MEAN_SECONDS, -WEB_THREADS)):
        clock.now += seconds
        load.change(threads)
        found.append(load.is_too_high())
    assert found == [False, True, True], "a moment is none; it goes on until the threads are idle"
    clock.now += 0.1 * MEAN_SECONDS
    load.change(0)
    assert load.is_too_high(), "it was just so"
    clock.now += 5 * MEAN_SECONDS
    load.change(0)
    assert not load.is_too_high()


@given(st.lists(st.floats(0, 2 * SLOW_SECONDS), max_size=50))
def test_a_slow_database_is_a_load_which_ends_only_well_below_what_led_to_it(seconds: list[float]) -> None:
    clock, answers = Clock(), iter(seconds)
    load, high = Load(database=lambda: next(answers), clock=clock), False
    for answer in seconds:
        clock.now += ASK_SECONDS
        limit = SLOW_SECONDS * (EASED if high else 1)
        high = load.is_too_high()
        assert high == (answer >= limit)


class Judged(Load):
    """A load that is given."""

    def __init__(self, high: bool) -> None:
        super().__init__()
        self.high = high

    def is_too_high(self) -> bool:
        return self.high


@pytest.mark.django_db
@pytest.mark.parametrize("high", [False, True])
def test_an_overloaded_process_refuses_all_but_stops_results_and_health(monkeypatch: pytest.MonkeyPatch, high: bool) -> None:
    operator = client_of(User.objects.create_superuser("olga"))
    held, queued = request_row(RequestStatus.HELD), request_row(RequestStatus.QUEUED)
    address = f"/api/v1/requests/{held.request_name}"
    monkeypatch.setattr(shedding, "_load", Judged(high))
    refused = {
        "errors": operator.get(f"{address}/errors"),
        "list": operator.get("/api/v1/requests"),
        "release": operator.post(f"{address}/release", {"reason": "x"}),
    }
    served = {
        "result": operator.get(address),
        "hold": operator.post(f"/api/v1/requests/{queued.request_name}/hold", {"reason": "x"}),
        "abort": operator.delete(f"/api/v1/requests/{queued.request_name}?reason=x"),
        "health": APIClient().get("/livez"),
        "metrics": operator.get("/api/v1/metrics"),
    }
    assert {name for name, answer in served.items() if answer.status_code >= 300} == set()
    for answer in refused.values():
        if high:
            problem(answer, 503, "overloaded")
            assert int(answer["Retry-After"]) > 0
        else:
            assert answer.status_code < 300


@pytest.mark.django_db
def test_a_page_that_is_refused_says_so_to_people_and_the_admin_is_never(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("olga"))
    monkeypatch.setattr(shedding, "_load", Judged(high=True))
    answer = client.get("/")
    assert (answer.status_code, answer["Retry-After"]) == (503, "10")
    assert b"Too much at once" in answer.content
    assert client.get("/admin/").status_code == 200
    assert Client().get("/login/").status_code == 200
