"""Run services: start in order, wait until each serves, restart what dies, stop in reverse order.

One supervisor per stack at a time (a lock on its directory). It owns its processes: when it ends, by whatever
means, they end. SIGINT and SIGTERM raise ``Interrupted`` in it, so that every wait ends at once and the stack is
taken down on the way out.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import TextIO

from deploy.stack import process
from deploy.stack.errors import Interrupted, StackError
from deploy.stack.services.base import Service

RESTARTS_ALLOWED = 5
RESTART_WINDOW_SECONDS = 60.0
LOCK_FILE = "supervisor.lock"


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM raise ``Interrupted`` once; later ones are ignored, so that taking down is not cut short."""

    def handler(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@dataclass(slots=True)
class _Running:
    service: Service
    process: subprocess.Popen[bytes]
    started: deque[float] = field(default_factory=deque)


def holder(kind_directory: Path) -> int | None:
    """The pid of the supervisor that runs this stack now, or None."""
    path = kind_directory / LOCK_FILE
    try:
        stream = path.open("r+")
    except FileNotFoundError:
        return None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(stream.read().strip() or 0) or None
    return None


class Supervisor:
    """The running services of one stack. Use as a context manager; leaving it stops everything."""

    def __init__(self, kind_directory: Path, say: Callable[[str], None]) -> None:
        self._directory = kind_directory
        self._say = say
        self._running: list[_Running] = []
        self._lock: TextIO | None = None

    def __enter__(self) -> Supervisor:
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = (self._directory / LOCK_FILE).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise StackError(
                f"the stack in {self._directory} is already running (pid {holder(self._directory)}): stop it first with `make stop`"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock
        for leftover in process.sweep(self._directory):
            self._say(f"ended a process left by an earlier run: {leftover}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            if self._lock is not None:
                self._lock.close()

    def start(self, services: Sequence[Service]) -> None:
        """Start a group of services that do not need each other, then wait until all of them serve."""
        for service in services:
            service.prepare()
            self._running.append(_Running(service, self._spawn(service)))
            self._say(f"{service.name}: starting")
        for running in self._running[-len(services) :] if services else []:
            self._await(running)
            running.service.finish()

    def _spawn(self, service: Service) -> subprocess.Popen[bytes]:
        environment = {**service.environment, process.MARKER: str(self._directory)}
        return process.spawn(service.argv, environment=environment, cwd=service.cwd, log=service.log, stop_signal=service.stop_signal)

    def _await(self, running: _Running) -> None:
        service, begun = running.service, time.monotonic()
        while True:
            if running.process.poll() is not None:
                raise StackError(f"{service.name} ended with code {running.process.returncode} while starting: see {service.log}")
            missing = service.problem()
            if missing is None:
                self._say(f"{service.name}: serving after {time.monotonic() - begun:.1f} s")
                return
            if time.monotonic() - begun > service.start_seconds:
                raise StackError(f"{service.name} did not serve within {service.start_seconds:.0f} s ({missing}): see {service.log}")
            time.sleep(0.1)

    def check(self) -> None:
        """Restart services that died; one that keeps dying ends the stack."""
        for running in self._running:
            code = running.process.poll()
            if code is None:
                continue
            service, now = running.service, time.monotonic()
            running.started.append(now)
            while now - running.started[0] > RESTART_WINDOW_SECONDS:
                running.started.popleft()
            if len(running.started) > RESTARTS_ALLOWED:
                raise StackError(f"{service.name} died {len(running.started)} times within a minute: see {service.log}")
            self._say(f"{service.name} ended with code {code}; starting it again (log: {service.log})")
            service.prepare()
            running.process = self._spawn(service)

    def stop(self) -> None:
        """Stop all services, last started first, then whatever they left."""
        while self._running:
            running = self._running.pop()
            if not process.terminate(running.process, running.service.stop_signal, running.service.stop_seconds):
                self._say(f"{running.service.name} did not stop in {running.service.stop_seconds:.0f} s and was killed")
        for leftover in process.sweep(self._directory):
            self._say(f"ended what a service left: {leftover}")
