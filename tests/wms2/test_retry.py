"""Retries: nothing here sleeps."""

from __future__ import annotations

import pytest

from tests.support.calls import Script, rejected, unavailable
from wms2.errors import CircuitOpen, NotFoundInService, NotNow, ServiceUnavailable
from wms2.retry import jittered_seconds, retry_call


def test_a_call_that_recovers_is_repeated_until_it_answers() -> None:
    slept: list[float] = []
    script = Script(unavailable(), unavailable(), "answer")
    assert retry_call(script, sleep=slept.append) == "answer"
    assert script.calls == 3
    assert len(slept) == 2 and slept[0] <= 0.5 and slept[1] <= 1.0


def test_the_last_failure_is_raised_after_three_tries() -> None:
    last = unavailable()
    script = Script(unavailable(), unavailable(), last, "too late")
    with pytest.raises(ServiceUnavailable) as caught:
        retry_call(script, sleep=lambda _: None)
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
        retry_call(script, sleep=lambda _: None)
    assert script.calls == 1


def test_a_single_try_never_sleeps() -> None:
    def sleep(_: float) -> None:
        raise AssertionError("slept")

    with pytest.raises(ServiceUnavailable):
        retry_call(Script(unavailable()), tries=1, sleep=sleep)
    with pytest.raises(ValueError, match="tries"):
        retry_call(Script("x"), tries=0)


def test_pauses_are_jittered_and_capped() -> None:
    assert all(0 <= jittered_seconds(3) <= 2.0 for _ in range(200))
    assert all(jittered_seconds(60) <= 30 for _ in range(200))
    assert len({jittered_seconds(9) for _ in range(20)}) > 10
