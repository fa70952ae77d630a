"""Real XRootD servers: one of a test's own, which it may pause, kill and start again, and the stack's, behind a site."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.prefix import installed_version
from deploy.stack import ports, tools
from deploy.stack.paths import layout
from deploy.xrootd.install import PACKAGES
from deploy.xrootd.server import Server
from tests.support.servers import free_port
from tests.support.waiting import until

STOP_SECONDS = 20.0


def prefix() -> Path:
    """Where the programs are; skips where they were not installed."""
    found = tools.prefix(PACKAGES, layout())
    if not installed_version(found):
        pytest.skip(f"no XRootD in {found}: `make setup` installs it")
    return found


class OwnServer:
    """A server below a directory of the test. ``described`` has its addresses; files of ``/store`` lie in ``storage``."""

    def __init__(self, directory: Path) -> None:
        self.described = Server(prefix(), directory / "xrootd", directory / "storage", free_port())
        self.log = directory / "xrootd.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def storage(self) -> Path:
        return self.described.storage

    @property
    def url(self) -> str:
        """``root://127.0.0.1:<port>/``: the prefix of a ``storage.json``."""
        return self.described.url

    def environment(self, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
        """A worker node's: the clients are on PATH, and trust the door of davs."""
        path = f"{self.described.prefix}/bin:{variables.get('PATH', os.defpath)}"
        return {**variables, "PATH": path, "X509_CERT_DIR": str(self.described.authorities)}

    def start(self) -> None:
        self.described.prepare()
        with self.log.open("ab") as log:
            argv = [str(word) for word in self.described.argv]
            self._process = running = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ})
        until(lambda: running.poll() is not None or self.described.problem() is None, lambda: self.log.read_text()[-2000:])
        assert running.poll() is None, self.log.read_text()[-2000:]

    def kill(self) -> None:
        """It is gone, and connections are refused."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    def pause(self) -> None:
        """It accepts connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def of_the_stack() -> Server:
    """The server of the test stack; its files are those of ``T2_DE_DESY``."""
    state = Path(os.environ["WMS2_STATE_DIR"])
    return Server(prefix(), state / "xrootd", state / "storage/T2_DE_DESY", ports.read(state)["xrootd"])


@contextmanager
def away(server: Server) -> Iterator[None]:
    """The stack's server is gone while the block runs; its supervisor brings it back."""
    server.away.touch()
    try:
        os.kill(int((server.directory / "xrootd.pid").read_text()), signal.SIGKILL)
        yield
    finally:
        server.away.unlink()
        until(lambda: server.problem() is None, f"see {server.directory.parent}/logs/xrootd.log")


@contextmanager
def serving(directory: Path) -> Iterator[OwnServer]:
    """A running server, ended with the block."""
    server = OwnServer(directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()
