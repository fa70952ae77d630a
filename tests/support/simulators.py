"""The simulated services as a process of their own, and a proxy that breaks chosen calls between them and the adapters."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.support.places import ROOT
from tests.support.servers import RawServer, read_request

WRITER = "/dbs/prod/global/DBSWriter"
READER = "/dbs/prod/global/DBSReader"


class Simulators:
    """ReqMgr2, ConfigCache, DBS and CRIC under one URL."""

    def __init__(self, state_dir: Path, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "deploy.simulators", "serve", "--state", str(state_dir), "--port", "0", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"simulators did not start: {line!r}"
        self.url, self.port = found.group(0), int(found.group(1))

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """One plain HTTP call, for setting the scene."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers={"Content-Type": content_type})
        with urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text.strip() else None

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(30) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()


class Fate(Enum):
    """What happens to one call on its way."""

    PASS = "passed on"
    LOSE_ANSWER = "acted on, answer lost"
    HANG = "acted on, answer never comes"
    FAIL = "not acted on, HTTP 500"


Plan = Callable[[str, str], Fate]
"""``(method, path)`` -> fate, asked once per call."""


class Proxy:
    """Passes calls on to the simulators, except where the plan says otherwise. ``calls`` lists what came by."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._port, self._host = port, host
        self.calls: list[tuple[str, str]] = []
        self.plan: Plan = lambda method, path: Fate.PASS
        self._server = RawServer(self._handle)
        self.url = self._server.url

    def sent(self, method: str, api: str) -> int:
        """How often a call was made."""
        return sum(m == method and path.split("?")[0].endswith(api) for m, path in self.calls)

    def once(self, method: str, api: str, *fates: Fate) -> None:
        """Give the next matching calls these fates, one each; all others pass."""
        left = list(fates)

        def plan(seen_method: str, path: str) -> Fate:
            matches = seen_method == method and path.split("?")[0].endswith(api)
            return left.pop(0) if matches and left else Fate.PASS

        self.plan = plan

    def _handle(self, connection: socket.socket) -> None:
        request = read_request(connection)
        method, path = request.split(b"\r\n", 1)[0].decode().split(" ")[:2]
        self.calls.append((method, path))
        fate = self.plan(method, path)
        if fate is Fate.FAIL:
            connection.sendall(b"HTTP/1.1 500 Broken\r\nContent-Length: 6\r\nConnection: close\r\n\r\nbroken")
            connection.close()
            return
        answer = self._forward(request)
        if fate is Fate.HANG:
            time.sleep(30)
        if fate is Fate.PASS:
            connection.sendall(answer)
        connection.close()

    def _forward(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        with socket.create_connection((self._host, self._port), timeout=30) as upstream:
            upstream.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            answer = b""
            while chunk := upstream.recv(65536):
                answer += chunk
        # Said to the client too: it must not send the next call on a connection that is about to be closed.
        head, _, rest = answer.partition(b"\r\n")
        return head + b"\r\nConnection: close\r\n" + rest

    def close(self) -> None:
        self._server.close()
