"""A limit for a whole conversation over a socket: the sockets' own time limits begin anew with each byte that comes, so that a
server which sends one now and then would keep its caller for ever.

When the time is over the connection is shut down, below whatever reads from it; that fails then, and ``over`` says why.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_LIMIT: ContextVar[TimeLimit | None] = ContextVar("time_limit", default=None)


class TimeLimit:
    """For the length of a block; sockets that it ``covers`` end with it."""

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._guards: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> TimeLimit:
        self._before = _LIMIT.set(self)
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._timer.cancel()
        _LIMIT.reset(self._before)
        with self._lock:
            while self._guards:
                self._guards.pop().close()

    def covers(self, connected: socket.socket) -> None:
        """By a descriptor of its own: that of a connection is given on where TLS begins."""
        with self._lock:
            self._guards.append(connected.dup())
        if self.over:
            self._end()

    def _end(self) -> None:
        self.over = True
        with self._lock:
            for guard in self._guards:
                with suppress(OSError):  # it has ended by itself
                    guard.shutdown(socket.SHUT_RDWR)


def limited_session() -> requests.Session:
    """Without proxies and credentials of the environment; its connections are covered by the limit that it is used under."""
    session = requests.Session()
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())
    return session


def _covered(connected: socket.socket) -> socket.socket:
    if (limit := _LIMIT.get()) is not None:
        limit.covers(connected)
    return connected


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _covered(super()._new_conn())


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _covered(super()._new_conn())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        super().init_poolmanager(*arguments, **named)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
