"""A faulty network between WMS2 and an HTTP service: answers 500, delays, hangs, refuses, or drops the answer after acting.

One proxy stands in front of one base URL. A fault is armed for requests that match, for so many times, and is counted:

    with FaultProxy("http://127.0.0.1:8080") as proxy:
        fault = proxy.arm(Fault.DROP_AFTER_ACTING, method="POST", path=r"/files", times=1)
        ...
        assert fault.hits == 1
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Fault(Enum):
    """What goes wrong."""

    ERROR_500 = "answers 500 and does not act"
    ERROR_400 = "answers 400 and does not act"
    REFUSE = "closes the connection and does not act"
    DELAY = "acts and answers after a pause"
    HANG = "never answers and does not act"
    DROP_AFTER_ACTING = "acts, then closes the connection instead of answering"
    HANG_AFTER_ACTING = "acts and never answers"


@dataclass
class Armed:
    """One fault in waiting. ``times`` None: until disarmed."""

    fault: Fault
    method: str
    path: re.Pattern[str]
    times: int | None
    seconds: float
    body: re.Pattern[str]
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, method: str, path: str, body: str) -> bool:
        """Whether this request is hit; counts it."""
        if self.method not in ("*", method) or not self.path.search(path) or not self.body.search(body):
            return False
        with self.lock:
            if self.times is not None and self.hits >= self.times:
                return False
            self.hits += 1
            return True


class FaultProxy:
    """Forwards to ``target`` and does what is armed."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.armed: list[Armed] = []
        self.log: list[tuple[str, str, str]] = []
        self.stopping = threading.Event()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> FaultProxy:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def arm(
        self,
        fault: Fault,
        *,
        method: str = "*",
        path: str = "",
        body: str = "",
        times: int | None = None,
        seconds: float = 1.0,
    ) -> Armed:
        """Let matching requests go wrong, newest first. ``seconds``: a delay's length; a hang's, if above 1."""
        armed = Armed(fault, method, re.compile(path), times, seconds, re.compile(body))
        self.armed.insert(0, armed)
        return armed

    def sent(self, method: str, end: str) -> int:
        """How often a call was made to a path that ends so."""
        return sum(each == method and path.partition("?")[0].endswith(end) for each, path, _ in self.log)

    def fault_for(self, method: str, path: str, body: str) -> Armed | None:
        """The fault that takes this request, if any."""
        return next((armed for armed in list(self.armed) if armed.takes(method, path, body)), None)

    def disarm(self) -> None:
        """All is well again."""
        self.armed.clear()


class _Handler(BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """The proxy's own log is ``owner.log``."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        armed = self.owner.fault_for(self.command, self.path, body.decode("utf-8", "replace"))
        self.owner.log.append((self.command, self.path, armed.fault.name if armed else ""))
        fault = armed.fault if armed else None
        if fault in (Fault.ERROR_500, Fault.ERROR_400):
            status = 500 if fault is Fault.ERROR_500 else 400
            self._answer(status, [("Content-Type", "text/plain")], b"the proxy was told to fail")
        elif fault is Fault.REFUSE:
            self._hang_up()
        elif fault is Fault.HANG and armed is not None:
            self._hang(armed)
        else:
            if fault is Fault.DELAY and armed is not None:
                time.sleep(armed.seconds)
            status, headers, answer = self._forward(body)
            if fault is Fault.DROP_AFTER_ACTING:
                self._hang_up()
            elif fault is Fault.HANG_AFTER_ACTING and armed is not None:
                self._hang(armed)
            else:
                self._answer(status, headers, answer)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection(self.owner.host, self.owner.port, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_HEADERS}
            upstream.request(self.command, self.path, body=body or None, headers=headers)
            answer = upstream.getresponse()
            return answer.status, [(k, v) for k, v in answer.getheaders() if k.lower() not in HOP_HEADERS], answer.read()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _hang(self, armed: Armed) -> None:
        self.owner.stopping.wait(armed.seconds if armed.seconds > 1 else 3600)
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
