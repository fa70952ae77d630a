"""The database's clock, asked once a second at most."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from wms2.runtime import clock

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock._answers.clear()
    monkeypatch.setattr(clock, "_QUICK_SECONDS", 10.0)  # however busy the machine is


def test_it_goes_on_between_two_questions(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        first = clock.now()
        time.sleep(0.01)
        later = clock.now()
    assert 0.01 <= (later - first).total_seconds() < 1


def test_it_is_asked_again_after_a_second(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any) -> None:
    clock.now()
    elapsed = clock._elapsed
    monkeypatch.setattr(clock, "_elapsed", lambda: elapsed() + 1)
    with django_assert_num_queries(1):
        clock.now()


def test_an_answer_that_took_long_is_not_counted_on(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any) -> None:
    monkeypatch.setattr(clock, "_QUICK_SECONDS", 0.0)
    with django_assert_num_queries(2):
        clock.now()
        clock.now()


def test_the_skew_is_measured_anew(django_assert_num_queries: Any) -> None:
    clock.now()
    with django_assert_num_queries(1):
        clock.skew_seconds()


def test_what_failed_together_comes_back_at_different_moments_later_each_time() -> None:
    first, longest = timedelta(minutes=1), timedelta(hours=1)
    once, twice = ({clock.pause(first, longest, failures) for _ in range(20)} for failures in (0, 1))
    assert len(once) > 10 and first * 0.75 <= min(once) and max(once) <= first * 1.25 < min(twice)
    assert clock.pause(first, longest, 10_000) <= longest * 1.25
