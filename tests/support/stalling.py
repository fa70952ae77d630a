"""A way to the database or the broker that can be cut, with or without either end being told, and processes that go that way."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from django.db import connection

from tests.support.places import ROOT
from tests.support.stack import database_url


class Stalling:
    """Passes bytes between the socket ``here`` and the server's, until ``stall``; after ``go_on`` again."""

    def __init__(self, here: Path, server: str) -> None:
        self._here, self._server = here, server
        self._connections: set[socket.socket] = set()
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(here))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._open.clear()

    def go_on(self) -> None:
        """What was kept back passes."""
        self._open.set()

    @contextmanager
    def gone(self) -> Iterator[None]:
        """For the length of the block nobody gets through: who is connected is cut off and told so, nobody else gets in."""
        aside = self._here.rename(self._here.with_suffix(".aside"))
        try:
            self._cut_off()
            yield
        finally:
            aside.rename(self._here)

    def close(self) -> None:
        self._open.set()
        self._listener.close()

    def _cut_off(self) -> None:
        for each in tuple(self._connections):
            with suppress(OSError):  # it was closed by its own end
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._connections |= {client, server}
            if not self._here.exists():  # it was about to get in
                self._cut_off()
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._open.wait()
                sink.sendall(data)
            self._open.wait()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()
        self._connections -= {source}


class Other:
    """Another process of WMS2 on this test's database, led by lines on its standard input."""

    def __init__(self, program: str, *, host: str = "", **environment: str) -> None:
        parameters = connection.get_connection_params()
        url = f"postgresql://{parameters['user']}@/{parameters['dbname']}?host={host or parameters['host']}"
        start = f"import django; django.setup()\n{program}"
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", start], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "WMS2_DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "wms2.settings", **environment},
        )  # fmt: skip

    def hears(self) -> str:
        """The next line that is ours; log lines are passed over. A process that says nothing for a minute is ended."""
        assert self.process.stdout is not None
        ending = threading.Timer(60, self.process.kill)
        ending.start()
        try:
            for line in self.process.stdout:
                if line.startswith("> "):
                    return line[2:].strip()
        finally:
            ending.cancel()
        raise AssertionError(f"the other process ended with {self.process.wait(10)}")

    def goes_on(self) -> None:
        """Let it pass its next ``input()``."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def other(program: str, *, host: str = "", **environment: str) -> Iterator[Other]:
    """Such a process for the length of the block."""
    made = Other(program, host=host, **environment)
    try:
        yield made
    finally:
        made.close()


def stalling(directory: Path) -> AbstractContextManager[Stalling]:
    """Such a way from a socket in ``directory`` to the test's PostgreSQL, for the length of the block."""
    parameters = connection.get_connection_params()
    socket_name = f".s.PGSQL.{parameters.get('port') or 5432}"
    return _between(directory / socket_name, f"{parameters['host']}/{socket_name}")


@contextmanager
def stalling_ways(directory: Path) -> Iterator[tuple[Stalling, Stalling, dict[str, str]]]:
    """Such ways to the database and the broker, and the settings of processes that go them."""
    broker = os.environ["WMS2_BROKER_URL"]
    server = re.search(r"//(/[^?]*)", broker)
    assert server is not None, "the stack's own broker has a socket"
    with stalling(directory) as to_database, _between(directory / "broker", server[1]) as to_broker:
        there = {
            "WMS2_DATABASE_URL": database_url(str(directory)),
            "WMS2_BROKER_URL": broker.replace(server[1], str(directory / "broker")),
        }
        yield to_database, to_broker, there


@contextmanager
def _between(here: Path, server: str) -> Iterator[Stalling]:
    """A way for the length of the block."""
    made = Stalling(here, server)
    try:
        yield made
    finally:
        made.close()
