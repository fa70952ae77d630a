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
from tests.support.problems import problem
from tests.support.rest_clients import client_of
from tests.support.rows import request_row
from wms2 import levels, shedding
from wms2.conf import conf
from wms2.shedding import BUSY, EASED, MEAN_SECONDS, Call, Load, call_of, stage_of

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
    ("api/v1/requests/<name:request_name>/errors", "GET"): Call.EXTRA,
    ("api/v1/dags/<uuid:pk>/nodes", "GET"): Call.EXTRA,
    ("api/v1/dags/<uuid:pk>/hold", "POST"): Call.STOP,
    ("api/v1/dags/<uuid:pk>/release", "POST"): Call.ACT,
    ("api/v1/sites/<name:pk>/drain", "POST"): Call.STOP,
    ("api/v1/sites/<name:pk>/enable", "POST"): Call.ACT,
    ("api/v1/service/<name:pk>/stop-new-work", "POST"): Call.STOP,
    ("api/v1/service/<name:pk>/allow-new-work", "POST"): Call.ACT,
    ("api/v1/events", "GET"): Call.POLL,
    ("api/v1/events/stream", "GET"): Call.STREAM,
    ("api/v1/schema/", "GET"): Call.EXTRA,
    ("dags/<uuid:pk>/logs/", "GET"): Call.EXTRA,
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
    assert all(hasattr(conf(), f"rate_limit_{call.rate}") for call in Call if call.rate)


@given(st.lists(st.floats(0, 1), max_size=50))
def test_a_stage_is_left_only_well_below_what_led_to_it(values: list[float]) -> None:
    stage = 0
    for value in values:
        before, stage = stage, stage_of(stage, value, BUSY)
        assert 0 <= stage <= 3
        if stage > before:
            assert value >= BUSY[stage - 1]
        if stage < before:
            assert value < EASED * BUSY[before - 1]


class Hand:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_busy_threads_for_some_seconds_are_a_load_and_idle_ones_end_it() -> None:
    clock = Hand()
    load = Load(database=lambda: 0.0, clock=clock)
    load.change(conf().web_threads)
    assert load.stage() == 0, "a moment is none"
    clock.now += 5 * MEAN_SECONDS
    load.change(0)
    assert load.stage() == 3
    load.change(-conf().web_threads)
    clock.now += MEAN_SECONDS / 10
    load.change(0)
    assert load.stage() == 3, "it was just so"
    clock.now += 5 * MEAN_SECONDS
    load.change(0)
    assert load.stage() == 0


@pytest.mark.parametrize(("seconds", "stage"), [(0.0, 0), (0.3, 1), (0.6, 2), (5.0, 3)])
def test_a_slow_database_is_a_load(seconds: float, stage: int) -> None:
    assert Load(database=lambda: seconds).stage() == stage


def test_a_strained_service_refuses_what_explains_and_nothing_else() -> None:
    levels.use(lambda: levels.Known(levels.Level.CLOSED))
    assert Load(database=lambda: 0.0).stage() == 1


class Staged(Load):
    """A load of a given stage."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self.given = stage

    def stage(self) -> int:
        return self.given


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("stage", "refused"),
    [(0, set()), (1, {"errors"}), (2, {"errors", "list"}), (3, {"errors", "list", "release"})],
)
def test_what_is_refused_at_each_stage_and_that_stopping_never_is(stage: int, refused: set[str]) -> None:
    operator = client_of(User.objects.create_superuser("olga"))
    held, queued = request_row(RequestStatus.HELD), request_row(RequestStatus.QUEUED)
    address = f"/api/v1/requests/{held.request_name}"
    shedding.use(Staged(stage))
    answers = {
        "errors": operator.get(f"{address}/errors"),
        "list": operator.get("/api/v1/requests"),
        "release": operator.post(f"{address}/release", {"reason": "x"}),
        "result": operator.get(address),
        "hold": operator.post(f"/api/v1/requests/{queued.request_name}/hold", {"reason": "x"}),
        "abort": operator.delete(f"/api/v1/requests/{queued.request_name}?reason=x"),
        "health": APIClient().get("/livez"),
        "metrics": operator.get("/api/v1/metrics"),
    }
    assert {name for name, answer in answers.items() if answer.status_code == 503} == refused
    for name in refused:
        problem(answers[name], 503, "overloaded")
        assert int(answers[name]["Retry-After"]) > 0
    assert all(answers[name].status_code < 300 for name in answers.keys() - refused)


@pytest.mark.django_db
def test_a_page_that_is_refused_says_so_to_people_and_the_admin_is_never() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("olga"))
    shedding.use(Staged(3))
    answer = client.get("/")
    assert (answer.status_code, answer["Retry-After"]) == (503, "10")
    assert b"Too much at once" in answer.content
    assert client.get("/admin/").status_code == 200
    assert Client().get("/login/").status_code == 200
