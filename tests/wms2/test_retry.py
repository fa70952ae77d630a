"""Retries: nothing here sleeps."""

from __future__ import annotations

import pytest

from tests.support.calls import Script, rejected, unavailable
from wms2.adapters.caller import jittered_seconds, retry_call
from wms2.errors import CircuitOpen, NotFoundInService, NotNow, ServiceUnavailable


@pytest.fixture(name="paused", autouse=True)
def _paused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The failed attempts after which there was a pause."""
    paused: list[int] = []
    monkeypatch.setattr("wms2.adapters.caller.pause", paused.append)
    return paused


def test_a_call_that_recovers_is_repeated_until_it_answers(paused: list[int]) -> None:
    script = Script(unavailable(), unavailable(), "answer")
    assert retry_call(script) == "answer"
    assert script.calls == 3
    assert paused == [1, 2]


def test_the_last_failure_is_raised_after_three_tries() -> None:
    last = unavailable()
    script = Script(unavailable(), unavailable(), last, "too late")
    with pytest.raises(ServiceUnavailable) as caught:
        retry_call(script)
    assert caught.value is last
    assert script.calls == 3


@pytest.mark.parametrize(
    "error",
    [
        rejected(),
        NotFoundInService("dbs", "block", "gone"),
        NotNow("rucio", "tape_rule", "blocked for writing"),
        CircuitOpen("dbs", "block", "open"),
        KeyError("bug"),
    ],
)
def test_refusals_open_circuits_and_our_own_faults_are_not_repeated(error: Exception) -> None:
    script = Script(error, "never asked")
    with pytest.raises(type(error)):
        retry_call(script)
    assert script.calls == 1


def test_a_single_try_never_sleeps(paused: list[int]) -> None:
    with pytest.raises(ServiceUnavailable):
        retry_call(Script(unavailable()), tries=1)
    assert not paused


def test_pauses_are_jittered_and_capped() -> None:
    assert all(0 <= jittered_seconds(1) <= 0.5 for _ in range(200))
    assert all(0 <= jittered_seconds(3) <= 2.0 for _ in range(200))
    assert all(jittered_seconds(60) <= 30 for _ in range(200))
    assert len({jittered_seconds(9) for _ in range(20)}) > 10
