"""Run services: start in groups, wait until each serves, restart what dies, stop the groups in reverse order.

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
from pathlib import Path
from types import FrameType, TracebackType
from typing import TextIO

from deploy.stack import process
from deploy.stack.errors import Interrupted, StackError
from deploy.stack.services.base import Service
from deploy.stack.steps import each_of, tail

RESTARTS_ALLOWED = 5
RESTART_WINDOW_SECONDS = 60.0
LOCK_FILE = "supervisor.lock"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """A first signal raises ``Interrupted``; later ones are ignored, so that taking down is not cut short."""

    def handler(number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def holder(kind_directory: Path) -> int | None:
    """The pid of the supervisor that runs this stack now, or None."""
    try:
        stream = (kind_directory / LOCK_FILE).open("r+")
    except FileNotFoundError:
        return None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(stream.read().strip() or 0) or None
    return None


class _Process:
    """A started Service."""

    def __init__(self, service: Service, marker: str) -> None:
        self.service = service
        self._marker = marker
        self._deaths: deque[float] = deque()
        self.child = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        service = self.service
        marked = {**service.environment, process.MARKER: self._marker}
        service.log.parent.mkdir(parents=True, exist_ok=True)
        with service.log.open("ab") as log:
            return process.spawn(
                service.argv,
                environment=marked,
                cwd=service.cwd,
                stop_signal=service.stop_signal,
                output=log,
                errors=subprocess.STDOUT,
            )

    def restart(self) -> None:
        """Start it again; StackError when it keeps dying."""
        now = time.monotonic()
        self._deaths.append(now)
        while now - self._deaths[0] > RESTART_WINDOW_SECONDS:
            self._deaths.popleft()
        if len(self._deaths) > RESTARTS_ALLOWED:
            raise StackError(f"{self.service.name} died {len(self._deaths)} times within a minute: see {self.service.log}")
        self.service.prepare()
        self.child = self._spawn()


class Supervisor:
    """The running services of one stack. Use as a context manager; leaving it stops everything."""

    def __init__(self, kind_directory: Path, say: Callable[[str], None]) -> None:
        self._directory = kind_directory
        self._say = say
        self._groups: list[list[_Process]] = []
        self._lock: TextIO | None = None

    def __enter__(self) -> Supervisor:
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = (self._directory / LOCK_FILE).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            pid = holder(self._directory)
            raise StackError(f"{self._directory} is in use by pid {pid}: stop it first with `make stop`") from None
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
        """Start a group of services that do not need each other, then wait until all of them serve.

        They are prepared side by side and started from this thread, whose end is theirs.
        """
        group: list[_Process] = []
        self._groups.append(group)
        named = {service.name: service for service in services}

        def begin(name: str) -> None:
            self._say(f"{name}: starting")
            group.append(_Process(named[name], str(self._directory)))

        each_of({name: service.prepare for name, service in named.items()}, ended=begin)
        for running in group:
            self._await(running)
            running.service.finish()

    def _await(self, running: _Process) -> None:
        service, begun = running.service, time.monotonic()
        while True:
            code = running.child.poll()
            if code is not None:
                ended = f"{service.name} ended with code {code} while starting"
                raise StackError(f"{ended}; the end of {service.log}:\n{tail(service.log)}")
            missing = service.problem()
            if missing is None:
                self._say(f"{service.name}: serving")
                return
            if time.monotonic() - begun > service.start_seconds:
                limit = f"{service.start_seconds:.0f} s"
                raise StackError(f"{service.name} did not serve within {limit} ({missing}): see {service.log}")
            time.sleep(0.1)

    def check(self) -> None:
        """Restart services that died; one that keeps dying ends the stack."""
        for running in (each for group in self._groups for each in group):
            code = running.child.poll()
            if code is not None:
                self._say(f"{running.service.name} ended with code {code}; starting it again (log: {running.service.log})")
                running.restart()

    def stop(self) -> None:
        """Stop all services, the last group first, then whatever they left. Those of a group do not need each other."""
        while self._groups:
            group = self._groups.pop()
            begun = time.monotonic()
            for running in group:
                running.child.send_signal(running.service.stop_signal)
            for running in group:
                service = running.service
                if not process.wait_or_kill(running.child, service.stop_seconds - (time.monotonic() - begun)):
                    self._say(f"{service.name} did not stop in {service.stop_seconds:.0f} s and was killed")
        for leftover in process.sweep(self._directory):
            self._say(f"ended what a service left: {leftover}")
