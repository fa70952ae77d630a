"""One way to repeat a failed call and one way to stop calling: full-jitter retries and circuit breakers.

Owns: how often, how long and whether a call to an outside service is repeated within seconds. Not here: retries over hours, which
are rows (``Effect.next_attempt_at``, ``Request.next_attempt_at``), and what a failure means (``wms2.errors``).
Source: ``control-plane.md``, "Keeping the service standing".
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from wms2.errors import CircuitOpen, NotNow, ServiceRejected, ServiceUnavailable

T = TypeVar("T")


def retry_call(
    fn: Callable[[], T],
    *,
    retryable: tuple[type[Exception], ...] = (ServiceUnavailable,),
    tries: int = 3,
    base_seconds: float = 0.5,
    cap_seconds: float = 30.0,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call ``fn`` until it returns, at most ``tries`` times; between two tries sleep a random part of a doubling pause.

    ``CircuitOpen``, ``ServiceRejected`` and ``NotNow`` are never retried, whatever ``retryable`` says: the first was not even
    tried, the others would hear the same again. Only for calls that may be made twice; a submission never is.

    Args:
        fn: the call, without arguments.
        retryable: error classes worth another try.
        tries: upper bound of calls, at least 1.
        base_seconds: upper bound of the first pause; doubles each time.
        cap_seconds: upper bound of any pause.
        sleep: injected by tests.

    Raises:
        Exception: what the last try raised.
    """
    if tries < 1:
        raise ValueError(f"tries is {tries}, need at least 1")
    for attempt in range(1, tries):
        try:
            return fn()
        except (CircuitOpen, NotNow, ServiceRejected):
            raise
        except retryable:
            sleep(jittered_seconds(attempt, base_seconds, cap_seconds))
    return fn()


def jittered_seconds(attempt: int, base_seconds: float, cap_seconds: float) -> float:
    """A pause after failed attempt number ``attempt`` (from 1): uniform in 0 .. min(cap, base * 2^(attempt-1)), "full jitter"."""
    # The exponent is bounded: 2.0 ** 1100 raises OverflowError, and a row may count that many attempts.
    # Spreads the load; nothing secret depends on it.
    return random.uniform(0.0, min(cap_seconds, base_seconds * 2.0 ** min(attempt - 1, 60)))  # noqa: S311


class BreakerState(Enum):
    """What a circuit breaker does with the next call."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class CircuitBreaker:
    """Stops calling a service that failed repeatedly a moment ago; after a pause lets one call through to probe it.

    Thread-safe. One per service, or per schedd for HTCondor. Only ``ServiceUnavailable`` counts as a failure: a refusal shows
    that the service is there. Failures are counted over a window, not in a row: failing every other call opens it too.

    Args:
        name: ``dbs`` or ``htcondor:schedd@host``; the part before the first ``:`` is the service in the errors raised.
        failures: failures within ``window_seconds`` that open the circuit.
        window_seconds: how long a failure is remembered.
        open_seconds: pause before the probe.
        clock: monotonic seconds, injected by tests.
    """

    def __init__(
        self,
        name: str,
        failures: int = 3,
        window_seconds: float = 30.0,
        open_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._failures, self._window_seconds, self._open_seconds = failures, window_seconds, open_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_at: deque[float] = deque(maxlen=failures)
        self._opened_at = 0.0
        self._state = BreakerState.CLOSED

    @property
    def state(self) -> BreakerState:
        """The state now; for metrics and health pages."""
        return self._state

    def call(self, fn: Callable[[], T], operation: str = "call") -> T:
        """Run ``fn`` unless the circuit is open.

        Raises:
            CircuitOpen: not tried.
            Exception: what ``fn`` raised.
        """
        is_probe = self._admit(operation)
        try:
            result = fn()
        except (ServiceRejected, NotNow):
            self._record_answer(is_probe)
            raise
        except CircuitOpen:
            self._forget_probe(is_probe)
            raise
        except ServiceUnavailable:
            self._record_failure(is_probe)
            raise
        except BaseException:
            # An error of our own says nothing about the service; only free the probe's place.
            self._forget_probe(is_probe)
            raise
        self._record_answer(is_probe)
        return result

    def _admit(self, operation: str) -> bool:
        """Whether the coming call is the probe; raises CircuitOpen when it may not be made."""
        with self._lock:
            if self._state is BreakerState.CLOSED:
                return False
            wait_seconds = self._opened_at + self._open_seconds - self._clock()
            if self._state is BreakerState.OPEN and wait_seconds <= 0:
                self._state = BreakerState.PROBING
                return True
            if self._state is BreakerState.PROBING:
                detail = f"{self.name} is being probed after repeated failures; not tried"
            else:
                often = f"{self._failures} times within {self._window_seconds:g} s"
                detail = f"{self.name} failed {often}; next probe in {wait_seconds:.0f} s"
        raise CircuitOpen(self.name.split(":", 1)[0], operation, detail, "circuit_open")

    def _record_failure(self, is_probe: bool) -> None:
        with self._lock:
            now = self._clock()
            self._failed_at.append(now)
            full = len(self._failed_at) == self._failures and now - self._failed_at[0] <= self._window_seconds
            if is_probe or (full and self._state is BreakerState.CLOSED):
                self._state, self._opened_at = BreakerState.OPEN, now

    def _record_answer(self, is_probe: bool) -> None:
        # Only the probe closes the circuit: the answer to a slow call that began earlier says nothing about now.
        if is_probe:
            with self._lock:
                self._state = BreakerState.CLOSED
                self._failed_at.clear()

    def _forget_probe(self, is_probe: bool) -> None:
        if is_probe:
            with self._lock:
                self._state, self._opened_at = BreakerState.OPEN, self._clock() - self._open_seconds
