"""Servers that misbehave in one chosen way, for what no HTTP library would do; servers of ours as processes; ports."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack

from tests.support.places import ROOT

Behaviour = Callable[[socket.socket], None]


def free_ports(number: int) -> list[int]:
    """So many that servers may take."""
    with ExitStack() as held:
        return [held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(number)]


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def listens(port: int) -> bool:
    """Whether a server of this machine does at this port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Program:
    """A module of ours as a process of its own, which says in its first line where it serves."""

    def __init__(self, *arguments: str) -> None:
        argv = [sys.executable, "-m", *arguments]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, f"{arguments[0]} did not start: {line!r}"
        self.url = found.group(0)

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(30) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()


class RawServer:
    """A TCP server that does with each connection what it was told."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._behave, args=(connection,), daemon=True).start()

    def _behave(self, connection: socket.socket) -> None:
        try:
            self._behaviour(connection)
        except OSError:
            return  # the other side has gone, which is what these tests are about

    def close(self) -> None:
        # shutdown wakes the thread in accept(); close alone does not
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()
        self._thread.join(5)


def read_request(connection: socket.socket) -> bytes:
    """One HTTP request as bytes, body included."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    while lengths and len(body) < lengths[0]:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
