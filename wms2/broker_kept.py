"""What processes know together through the broker, and each for itself while the broker is silent. Owns the fallback, no data.

Losing what is kept this way must cost little: nothing here is state of work, which is in PostgreSQL.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis

T = TypeVar("T")
_BROKER_SECONDS = 0.5
_BROKER_PAUSE_SECONDS = 5.0

log = logging.getLogger(__name__)


class BrokerKept:
    """In Valkey or Redis, for all processes of an installation; its own clock counts the seconds.

    Args:
        url: the broker's, in redis-py's form.
        prefix: of the keys; tells installations on one broker apart.
        what: is kept, for the log line of a silent broker.
    """

    def __init__(self, url: str, prefix: str, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client: Any = redis.Redis.from_url(  # its types allow bytes, which it never gives here
            url, decode_responses=True, socket_timeout=_BROKER_SECONDS, socket_connect_timeout=_BROKER_SECONDS
        )
        self._prefix, self._what, self._clock = prefix, what, clock
        self._silent_until = 0.0

    def _ask(self, shared: Callable[[], T], alone: Callable[[], T]) -> T:
        """What the broker says; ``alone`` decides while it does not answer, and for some seconds after."""
        if self._clock() >= self._silent_until:
            try:
                return shared()
            except redis.RedisError as error:
                self._silent_until = self._clock() + _BROKER_PAUSE_SECONDS
                log.warning("%s are counted by this process alone, the broker does not answer: %s", self._what, error)
        return alone()
