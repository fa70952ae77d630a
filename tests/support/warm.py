"""Processes of WMS2 without the seconds that Django takes to start: forked from one that has everything imported.

Each process of a test run has one such server, from the first worker it starts to its end. A forked worker is what ``manage.py``
in a new process would be: a session of its own, its environment, its log, its own exit; it has no connection and no thread of
another's. What differs in settings that are read when Django starts cannot be had that way (``READ_AT_START``).
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from deploy.stack.process import spawn

READ_AT_START = (
    "DJANGO_SETTINGS_MODULE", "PROMETHEUS_MULTIPROC_DIR", "WMS2_ALLOWED_HOSTS", "WMS2_BROKER_URL", "WMS2_DATABASE_URL",
    "WMS2_DEBUG", "WMS2_ENVIRONMENT", "WMS2_INSTANCE", "WMS2_LOG_FORMAT", "WMS2_LOG_LEVEL", "WMS2_METRICS_ROOT",
    "WMS2_SECRET_KEY",
)  # fmt: skip
#: Celery's clock reads these at once, too.
READ_BY_BEAT = ("WMS2_CYCLE_SECONDS", "WMS2_REQMGR2_POLL_SECONDS")
#: What processes import only when they run.
_IMPORTED = (
    "requests_app.management.commands.lifecycle_tick", "wms2.urls", "celery.__main__", "celery.apps.beat", "celery.apps.worker",
    "celery.bin.celery", "celery.concurrency.prefork",
)  # fmt: skip
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Order:
    """A process to fork: ``manage.py`` or ``-m celery`` and its arguments, all of its environment, and where it says what."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    log: str


@dataclass(slots=True)
class Spent:
    """What forked processes that have ended took of the processor, with those that they had waited for."""

    cpu_seconds: float = 0.0


spent = Spent()


class Forked:
    """A forked process, as ``subprocess.Popen`` has its own."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._said = connection.makefile("r")
        self.pid = int(self._said.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended; None: it has not."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            # of a process whose server is gone as well, nothing is known
            code, cpu = (self._said.readline() or f"{-signal.SIGKILL} 0").split()
            self.returncode = int(code)
            spent.cpu_seconds += float(cpu)
            self._connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not within ``timeout`` seconds.
        """
        if self.returncode is None and not select.select([self._connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class Server:
    """The process that forks, as its client sees it."""

    def __init__(self, environment: Mapping[str, str], cwd: Path) -> None:
        self._environment = dict(environment)
        self._directory = tempfile.TemporaryDirectory(prefix="wms2-warm-")
        self._path = f"{self._directory.name}/socket"
        argv = (sys.executable, "-m", "tests.support.warm", self._path)
        self._process = spawn(argv, environment=environment, cwd=cwd, stop_signal=signal.SIGKILL)
        deadline = time.monotonic() + _START_SECONDS
        while not Path(self._path).exists():
            assert self._process.poll() is None and time.monotonic() < deadline, "no process to fork from"
            time.sleep(0.02)

    def fits(self, order: Order) -> bool:
        """Whether such a process can be had by forking."""
        names = (*READ_AT_START, *(READ_BY_BEAT if "beat" in order.arguments else ()))
        same = all(order.environment.get(name, "") == self._environment.get(name, "") for name in names)
        return same and self._process.poll() is None

    def start(self, order: Order) -> Forked:
        """Fork a process."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        connection.sendall(json.dumps(asdict(order)).encode() + b"\n")
        return Forked(connection)


def _serve(path: str) -> Order:
    """Wait for orders, and return in each forked process, which has become what its own says."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".begun")
    listener.listen(16)
    Path(path + ".begun").rename(path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for the forked ones are waited for by nobody
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            order = Order(**json.loads(connection.makefile("r").readline()))
            child = os.fork()
            if child == 0:
                _become(order)
                connection.sendall(f"{os.getpid()}\n".encode())  # it can be killed with its children, and has a log
                connection.close()
                return order
            _, status, used = os.wait4(child, 0)
            try:
                connection.sendall(f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}\n".encode())
            finally:
                os._exit(0)
        connection.close()


def _become(order: Order) -> None:
    """This process is from now on what was ordered."""
    os.setsid()
    with Path(order.log).open("ab") as log, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.cwd)
    sys.argv = [argument for argument in order.arguments if argument != "-m"]


def main(path: str) -> None:
    """Import everything, then fork on order."""
    import django

    django.setup()
    for module in _IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()
    order = _serve(path)
    if order.arguments[0] == "-m":
        runpy.run_module(order.arguments[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(order.arguments[0], run_name="__main__")


_server = SimpleNamespace(of=None)


def forked(order: Order) -> Forked | None:
    """A process of this order; None where it cannot be had by forking."""
    if order.arguments[0] != "manage.py" and order.arguments[:2] != ("-m", "celery"):
        return None
    if _server.of is None:
        _server.of = Server(order.environment, Path(order.cwd))
    return _server.of.start(order) if _server.of.fits(order) else None


if __name__ == "__main__":
    main(sys.argv[1])
