"""Circuit breakers: failures in a row, with an injected clock; and what processes tell each other of them."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

import pytest

from tests.support.calls import Clock, Script, rejected, state, unavailable
from wms2.adapters.caller import retry_call
from wms2.errors import CircuitOpen, NotNow, ServiceRejected, ServiceUnavailable
from wms2.runtime.circuits import CircuitBreaker, Circuits, CircuitState, circuits, use_circuits
from wms2.runtime.shared_counts import Broker, SharedCounts, redis_url


@pytest.fixture(name="clock", autouse=True)
def _clock() -> Clock:
    """What the circuits of this process are timed by."""
    clock = Clock()
    use_circuits(SharedCounts(clock=clock))
    return clock


def opened() -> CircuitBreaker:
    breaker = CircuitBreaker("htcondor", "schedd@host")
    for _ in range(3):
        with pytest.raises(ServiceUnavailable):
            breaker.call(Script(unavailable()))
    assert state(breaker) == "open"
    return breaker


def test_three_failures_open_the_circuit_and_the_service_is_left_alone() -> None:
    breaker = opened()
    script = Script("never asked")
    with pytest.raises(CircuitOpen) as caught:
        breaker.call(script, "dagmans")
    assert script.calls == 0
    assert (caught.value.service, caught.value.operation, caught.value.code) == ("htcondor", "dagmans", "circuit_open")
    assert "schedd@host" in caught.value.detail


def test_after_the_pause_one_good_probe_closes_the_circuit(clock: Clock) -> None:
    breaker = opened()
    clock.now += 9.9
    with pytest.raises(CircuitOpen):
        breaker.call(Script("too early"))
    clock.now += 0.1
    assert breaker.call(Script("answer")) == "answer"
    assert state(breaker) == "closed"
    with pytest.raises(ServiceUnavailable) as caught:
        breaker.call(Script(unavailable()))
    assert not isinstance(caught.value, CircuitOpen)
    assert state(breaker) == "closed", "old failures are forgotten"


def test_a_failed_probe_opens_it_for_another_pause(clock: Clock) -> None:
    breaker = opened()
    clock.now += 10
    with pytest.raises(ServiceUnavailable):
        breaker.call(Script(unavailable()))
    clock.now += 9
    with pytest.raises(CircuitOpen):
        breaker.call(Script("too early"))


def test_only_one_probe_goes_through_at_a_time(clock: Clock) -> None:
    breaker = opened()
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
    assert answers == ["answer"] and state(breaker) == "closed"


def test_three_timeouts_that_each_take_their_whole_limit_open_it(clock: Clock) -> None:
    breaker = CircuitBreaker("dbs")

    def hangs() -> None:
        clock.now += 30
        raise ServiceUnavailable("dbs", "block", "no answer within 30 s", "timeout")

    for _ in range(3):
        with pytest.raises(ServiceUnavailable, match="no answer"):
            breaker.call(hangs)
    with pytest.raises(CircuitOpen):
        breaker.call(Script("left alone"))


@pytest.mark.parametrize("answer", ["an answer", rejected(), NotNow("dbs", "block", "locked")])
def test_any_answer_between_failures_begins_the_count_anew(answer: object) -> None:
    breaker = CircuitBreaker("dbs")
    for outcome in [unavailable(), unavailable(), answer] * 3:
        try:
            breaker.call(Script(outcome))
        except (ServiceUnavailable, ServiceRejected) as error:
            assert error is outcome
    assert state(breaker) == "closed"


def test_circuits_of_two_places_are_apart() -> None:
    opened()
    assert CircuitBreaker("htcondor", "other@host").call(Script("answer")) == "answer"


def test_a_refusal_shows_that_the_service_is_there(clock: Clock) -> None:
    breaker = opened()
    clock.now += 10
    with pytest.raises(ServiceRejected):
        breaker.call(Script(rejected()))
    assert state(breaker) == "closed"


def test_a_fault_of_our_own_in_the_probe_lets_the_next_call_probe(clock: Clock) -> None:
    breaker = opened()
    clock.now += 10
    with pytest.raises(KeyError):
        breaker.call(Script(KeyError("bug")))
    assert breaker.call(Script("answer")) == "answer"


def test_the_late_answer_of_an_earlier_call_does_not_close_the_circuit() -> None:
    breaker = CircuitBreaker("dbs")

    def slow() -> str:
        for _ in range(3):
            with pytest.raises(ServiceUnavailable):
                breaker.call(Script(unavailable()))
        return "late answer"

    assert breaker.call(slow) == "late answer"
    assert state(breaker) == "open"


def test_retries_stop_at_the_moment_the_circuit_opens() -> None:
    breaker = CircuitBreaker("dbs")
    script = Script(unavailable(), unavailable(), unavailable(), "never asked")
    with pytest.raises(CircuitOpen):
        retry_call(lambda: breaker.call(script), tries=5)
    assert script.calls == 3


# --- between processes


@pytest.fixture(name="prefix")
def _prefix() -> str:
    """Keys of this test's own on the stack's broker; skips without one."""
    if not os.environ.get("WMS2_BROKER_URL"):
        pytest.skip("no broker: WMS2_BROKER_URL is not set")
    return f"test:{uuid.uuid4().hex}"


def another_process(prefix: str) -> Circuits:
    kept = SharedCounts(Broker(os.environ["WMS2_BROKER_URL"], prefix, "circuits"))
    use_circuits(kept)
    return circuits()


def test_the_failures_of_one_process_spare_the_others_theirs(prefix: str) -> None:
    for _ in range(3):
        another_process(prefix)
        with pytest.raises(ServiceUnavailable):
            CircuitBreaker("dbs", "host").call(Script(unavailable()))
    kept = another_process(prefix)
    with pytest.raises(CircuitOpen, match="3 times in a row"):
        CircuitBreaker("dbs", "host").call(Script("left alone"))
    assert kept.all().keys() == {"dbs:host"}
    kept.clear()
    assert another_process(prefix).all() == {}


def test_after_the_pause_one_process_probes_and_its_answer_is_for_all(prefix: str) -> None:
    first, second = another_process(prefix), another_process(prefix)
    for _ in range(3):
        first.failed("dbs", 3, 0.001)
    while second.status_detail("dbs").pause_seconds > 0:
        pass  # the broker's own clock counts it
    assert second.status_detail("dbs") == CircuitState(3, 0.0)

    def probe() -> str:
        use_circuits(first.counts)
        with pytest.raises(CircuitOpen, match="being probed"):
            CircuitBreaker("dbs").call(Script("second probe"))
        use_circuits(second.counts)
        return "answer"

    assert CircuitBreaker("dbs").call(probe) == "answer"
    assert first.status_detail("dbs") == CircuitState()


def test_an_answer_elsewhere_begins_the_count_anew_while_the_circuit_is_closed(prefix: str) -> None:
    first, second = another_process(prefix), another_process(prefix)
    first.failed("dbs", 3, 10.0)
    second.answered("dbs", below=3)
    assert first.status_detail("dbs") == CircuitState()
    for _ in range(3):
        first.failed("dbs", 3, 10.0)
    second.answered("dbs", below=3)
    assert first.status_detail("dbs").failures == 3, "the answer to a call that began before says nothing about now"


def test_without_a_broker_each_process_counts_for_itself(tmp_path: Path) -> None:
    use_circuits(SharedCounts(Broker(f"unix://{tmp_path}/nobody.sock?db=0", "test", "circuits")))
    breaker = CircuitBreaker("dbs")
    for _ in range(3):
        with pytest.raises(ServiceUnavailable, match="refused"):
            breaker.call(Script(unavailable()))
    with pytest.raises(CircuitOpen):
        breaker.call(Script("left alone"))
    assert circuits().all().keys() == {"dbs"}


@pytest.mark.parametrize(
    ("broker", "plain"),
    [
        ("redis://user:pass@host:6379/1", "redis://user:pass@host:6379/1"),
        ("redis+socket:///run/valkey.sock?virtual_host=2", "unix:///run/valkey.sock?db=2"),
        ("redis+socket:///run/valkey.sock", "unix:///run/valkey.sock?db=0"),
    ],
)
def test_a_brokers_url_in_the_clients_words(broker: str, plain: str) -> None:
    assert redis_url(broker) == plain
