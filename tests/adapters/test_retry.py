"""Retries and circuit breakers, with an injected clock: nothing here sleeps."""

from __future__ import annotations

import threading

import pytest

from wms2.errors import CircuitOpen, NotFoundInService, ServiceRejected, ServiceUnavailable
from wms2.retry import BreakerState, CircuitBreaker, jittered_seconds, retry_call


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Script:
    """A call whose outcomes are written down beforehand; counts how often it was made."""

    def __init__(self, *outcomes: object) -> None:
        self.outcomes, self.calls = list(outcomes), 0

    def __call__(self) -> object:
        self.calls += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def unavailable() -> ServiceUnavailable:
    return ServiceUnavailable("dbs", "block", "connection refused", "connection")


def rejected() -> ServiceRejected:
    return ServiceRejected("dbs", "block", "no such parameter", 118)


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
    "error", [rejected(), NotFoundInService("dbs", "block", "gone"), CircuitOpen("dbs", "block", "open"), KeyError("bug")]
)
def test_refusals_open_circuits_and_our_own_faults_are_not_repeated(error: Exception) -> None:
    script = Script(error, "never asked")
    with pytest.raises(type(error)):
        retry_call(script, retryable=(ServiceUnavailable, ServiceRejected), sleep=lambda _: None)
    assert script.calls == 1


def test_other_classes_are_retried_when_named() -> None:
    script = Script(OSError("disk"), "answer")
    assert retry_call(script, retryable=(OSError,), sleep=lambda _: None) == "answer"


def test_a_single_try_never_sleeps() -> None:
    def sleep(_: float) -> None:
        raise AssertionError("slept")

    with pytest.raises(ServiceUnavailable):
        retry_call(Script(unavailable()), tries=1, sleep=sleep)
    with pytest.raises(ValueError, match="tries"):
        retry_call(Script("x"), tries=0)


def test_pauses_are_jittered_and_capped() -> None:
    assert all(0 <= jittered_seconds(3, 0.5, 30) <= 2.0 for _ in range(200))
    assert all(jittered_seconds(5000, 0.5, 30) <= 30 for _ in range(200))
    assert len({jittered_seconds(9, 0.5, 30) for _ in range(20)}) > 10


def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker("htcondor:schedd@host", clock=clock)
    for _ in range(3):
        with pytest.raises(ServiceUnavailable):
            breaker.call(Script(unavailable()))
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_three_failures_open_the_circuit_and_the_service_is_left_alone() -> None:
    clock = Clock()
    breaker = opened(clock)
    script = Script("never asked")
    with pytest.raises(CircuitOpen) as caught:
        breaker.call(script, "dagmans")
    assert script.calls == 0
    assert (caught.value.service, caught.value.operation, caught.value.code) == ("htcondor", "dagmans", "circuit_open")
    assert "schedd@host" in caught.value.detail


def test_after_the_pause_one_good_probe_closes_the_circuit() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 9.9
    with pytest.raises(CircuitOpen):
        breaker.call(Script("too early"))
    clock.now += 0.1
    assert breaker.call(Script("answer")) == "answer"
    assert breaker.state is BreakerState.CLOSED
    with pytest.raises(ServiceUnavailable) as caught:
        breaker.call(Script(unavailable()))
    assert not isinstance(caught.value, CircuitOpen)
    assert breaker.state is BreakerState.CLOSED, "old failures are forgotten"


def test_a_failed_probe_opens_it_for_another_pause() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 10
    with pytest.raises(ServiceUnavailable):
        breaker.call(Script(unavailable()))
    clock.now += 9
    with pytest.raises(CircuitOpen):
        breaker.call(Script("too early"))


def test_only_one_probe_goes_through_at_a_time() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 10
    entered, leave = threading.Event(), threading.Event()

    def probe() -> str:
        entered.set()
        assert leave.wait(10)
        return "answer"

    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(breaker.call(probe)))
    thread.start()
    assert entered.wait(10)
    with pytest.raises(CircuitOpen, match="being probed"):
        breaker.call(Script("second"))
    leave.set()
    thread.join(10)
    assert answers == ["answer"] and breaker.state is BreakerState.CLOSED


def test_failures_older_than_the_window_do_not_count() -> None:
    clock = Clock()
    breaker = CircuitBreaker("dbs", clock=clock)
    for _ in range(5):
        with pytest.raises(ServiceUnavailable):
            breaker.call(Script(unavailable()))
        clock.now += 16
    assert breaker.state is BreakerState.CLOSED


def test_a_refusal_shows_that_the_service_is_there() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 10
    with pytest.raises(ServiceRejected):
        breaker.call(Script(rejected()))
    assert breaker.state is BreakerState.CLOSED


def test_a_fault_of_our_own_in_the_probe_lets_the_next_call_probe() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 10
    with pytest.raises(KeyError):
        breaker.call(Script(KeyError("bug")))
    assert breaker.call(Script("answer")) == "answer"


def test_the_late_answer_of_an_earlier_call_does_not_close_the_circuit() -> None:
    clock = Clock()
    breaker = CircuitBreaker("dbs", clock=clock)

    def slow() -> str:
        for _ in range(3):
            with pytest.raises(ServiceUnavailable):
                breaker.call(Script(unavailable()))
        return "late answer"

    assert breaker.call(slow) == "late answer"
    assert breaker.state is BreakerState.OPEN


def test_retries_stop_at_the_moment_the_circuit_opens() -> None:
    breaker = CircuitBreaker("dbs", failures=2, clock=Clock())
    script = Script(unavailable(), unavailable(), "never asked")
    with pytest.raises(CircuitOpen):
        retry_call(lambda: breaker.call(script), sleep=lambda _: None)
    assert script.calls == 2
