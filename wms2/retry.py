"""One way to repeat a failed call: full-jitter retries.

Owns: how often and how long a call to an outside service is repeated within seconds. Not here: when calling stops altogether
(``wms2.circuits``), retries over hours, which are rows (``Effect.next_attempt_at``, ``Request.next_attempt_at``), and what a
failure means (``wms2.errors``). docs/design/control.md, Retries.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
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
