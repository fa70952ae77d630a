"""Celery's transport to Valkey or Redis, closing what is lost without ending the worker.

When a broker crashes under a worker, kombu 5.7 may forget the connection's address before it closes the channel. A channel with
unacknowledged messages then wants to give them back over a new connection, and ends the worker with ``AttributeError`` in place
of the connection error that Celery recovers from. Nothing need be given back: what a hint stands for, the next tick finds again.
"""

from __future__ import annotations

from typing import Any

from kombu.transport.redis import Channel as RedisChannel
from kombu.transport.redis import Transport as RedisTransport
from redis.exceptions import ConnectionError as RedisConnectionError


class Channel(RedisChannel):
    """A channel that says in the broker's own words that its connection is gone."""

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection.client is None:
            raise RedisConnectionError("the connection to the broker is closed; its unacknowledged messages cannot be given back")
        params: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[no-untyped-call]
        return params


class Transport(RedisTransport):
    """kombu's transport with channels of this module."""

    Channel = Channel
