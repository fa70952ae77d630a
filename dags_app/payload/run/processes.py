"""Running child processes side by side within bounds, and measuring each: wall time, CPU, peak memory of its whole process group.

Owns the children's lives: each gets its own process group, so that a payload that is asked to stop takes all of it down, and
one that fails ends the others.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple, Optional

from ..contract import codes
from ..contract.codes import PayloadError

#: How much more memory than it was granted a job may take where no cgroup ends it: less than what ends a whole pilot.
MEMORY_MARGIN = 1.1
#: So long before the wall time that a job asked for it is ended, in seconds, and at most as a share of that time.
_REPORT_SECONDS, _REPORT_SHARE = 300.0, 0.1

#: How long a child may take to end after SIGTERM before it is killed. HTCondor itself gives a job 30 s by default.
STOP_GRACE_SECONDS = 8.0

#: How late a signal may be noticed.
_ALARM_SECONDS = 5.0
_SAMPLE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_MB = 1024 * 1024  # as cmsRun and HTCondor count
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PSS = re.compile(rb"(?m)^Pss:\s*(\d+) kB")


class Finished(NamedTuple):
    """How a child ended. ``exit_code`` is 128 + the signal's number for a child that a signal ended; ``stopped``: because
    another one had failed; ``over``: the bound of all for which it was ended."""

    exit_code: int
    wall_seconds: float
    cpu_seconds: float
    peak_rss_mb: float
    stopped: bool = False
    over: Optional[PayloadError] = None


class Bounds(NamedTuple):
    """What the slot grants all children of a job together; None: nothing that the job itself has to watch.

    ``memory_mb`` is granted, ``wall_minutes`` were asked for, of which ``spent_seconds`` are over.
    """

    memory_mb: Optional[int] = None
    wall_minutes: Optional[float] = None
    spent_seconds: float = 0.0

    @property
    def left_seconds(self) -> float:
        """Until there is just time for a report."""
        if self.wall_minutes is None:
            return math.inf
        asked = self.wall_minutes * 60
        return asked - min(_REPORT_SECONDS, asked * _REPORT_SHARE) - self.spent_seconds


_UNBOUNDED = Bounds()


class Command(NamedTuple):
    """A child to run in ``directory``; its stdout goes to ``<output>.stdout``, its stderr to ``<output>.stderr``."""

    words: list[str]
    directory: Path
    environment: dict[str, str]
    output: Path


class _StopRequest(BaseException):
    """A signal has come. No ``Exception``: nothing on the way takes it for a failure of its own."""


@contextmanager
def stop_requests_as_errors(ignored_afterwards: bool = False) -> Iterator[None]:
    """Inside, SIGTERM (removed, evicted) and SIGINT end what is done; outside it is a PayloadError, so reports are still written.

    ``ignored_afterwards``: until the process ends they change nothing more. Its report says how it ended, and HTCondor must not
    read anything else from its status.

    A signal that comes just before a system call is seen only after it, which may be hours later: an alarm interrupts them.
    """
    asked: list[PayloadError] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        text = f"asked to stop by {signal.Signals(number).name} (removed, evicted or over a limit)"
        asked.append(PayloadError(codes.TERMINATED, text))
        raise _StopRequest

    def remind(_number: int, _frame: FrameType | None) -> None:
        if asked and sys.exc_info()[0] is None:  # lost on the way, as in a destructor, and nothing is being cleaned up
            raise _StopRequest

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGALRM: remind}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.setitimer(signal.ITIMER_REAL, _ALARM_SECONDS, _ALARM_SECONDS)
    try:
        yield
    except _StopRequest:
        raise asked[0] from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if ignored_afterwards else handler)
    if asked:  # lost on the way, as in a destructor
        raise asked[0]


@contextmanager
def temporary_files_in(directory: Path) -> Iterator[None]:
    """Inside, temporary files, also of children, lie in ``directory``: a container's /tmp may be small, or the whole node's."""
    before, tempfile.tempdir = (os.environ.get("TMPDIR"), tempfile.tempdir), str(directory)
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before[1]
        os.environ.pop("TMPDIR")
        if before[0] is not None:
            os.environ["TMPDIR"] = before[0]


def run_measured(commands: Sequence[Command], bounds: Bounds = _UNBOUNDED) -> tuple[Finished, ...]:
    """Run commands side by side, end the others as soon as one fails, and all when they go over a bound.

    PayloadError(EXECUTABLE_NOT_FOUND) when one cannot be started. Any error raised while waiting ends all children first.
    """
    started = time.monotonic()
    children: list[subprocess.Popen[bytes]] = []
    sampler = _Watcher(bounds)
    ended: dict[int, Finished] = {}
    try:
        for command in commands:
            children.append(_start(command))
            sampler.peaks[children[-1].pid] = 0
        sampler.start()
        while len(ended) < len(children):
            pid, status, usage = os.wait4(-1, 0)
            child = next((child for child in children if child.pid == pid), None)
            if child is None:
                continue  # an orphan that came to this process: the first one of a container
            code = os.waitstatus_to_exitcode(status)
            child.returncode = code  # reaped above, so Popen must not wait for it
            peak_rss_mb = max(sampler.peaks[pid], usage.ru_maxrss * 1024) / _MB
            cpu_seconds = usage.ru_utime + usage.ru_stime
            ended[pid] = Finished(codes.of_process(code), time.monotonic() - started, cpu_seconds, peak_rss_mb)
            if code != 0:
                for other in _end_groups(child for child in children if child.pid not in ended):
                    wall, peak_rss_mb = time.monotonic() - started, sampler.peaks[other.pid] / _MB
                    ended[other.pid] = Finished(codes.of_process(other.returncode), wall, 0.0, peak_rss_mb, stopped=True)
    except BaseException:
        _end_groups(child for child in children if child.pid not in ended)
        raise
    finally:
        sampler.stop()
    found = (ended[child.pid] for child in children)
    return tuple(each._replace(over=sampler.over) if sampler.over and each.exit_code else each for each in found)


class Answer(NamedTuple):
    """What a short program said. ``status`` None: it was ended at its time limit."""

    status: int | None
    stdout: str
    stderr: str


def run_limited(words: Sequence[str], seconds: float, environment: Mapping[str, str]) -> Answer:
    """Run a program with a time limit; all of its process group is ended then, and when it leaves children behind.

    OSError when it cannot be started.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
        )
        try:
            status: int | None = codes.of_process(child.wait(seconds))
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end_groups([child])
        return Answer(status, *(_content(stream) for stream in (stdout, stderr)))


def _content(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


def _start(command: Command) -> subprocess.Popen[bytes]:
    with Path(f"{command.output}.stdout").open("wb") as stdout, Path(f"{command.output}.stderr").open("wb") as stderr:
        try:
            return subprocess.Popen(
                command.words,
                cwd=command.directory,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise PayloadError(codes.EXECUTABLE_NOT_FOUND, f"{command.words[0]} cannot be started: {error}") from error


def _end_groups(children: Iterable[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
    """End the process groups of children: SIGTERM to all, a grace period, SIGKILL; the children, reaped."""
    ending = list(children)
    for child in ending:
        _signal_group(child.pid, signal.SIGTERM)
    until = time.monotonic() + STOP_GRACE_SECONDS
    for child in ending:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))
    for child in ending:
        _signal_group(child.pid, signal.SIGKILL)
        child.wait()
    return ending


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


class _Watcher(threading.Thread):
    """Samples the resident memory of process groups; short processes are sampled soon, long ones rarely. Ends all groups when
    they are over a bound, and says in ``over`` which."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[int, int] = {}  # bytes
        self.over: PayloadError | None = None
        self._bounds = bounds
        self._until = time.monotonic() + bounds.left_seconds
        self._ended = threading.Event()

    def run(self) -> None:
        step = 0
        while not self._ended.wait(max(0.0, min(_SAMPLE_SECONDS[min(step, len(_SAMPLE_SECONDS) - 1)], self._left_seconds()))):
            sizes = group_rss_bytes(self.peaks)
            for group, size_bytes in sizes.items():
                self.peaks[group] = max(self.peaks[group], size_bytes)
            step += 1
            self.over = self._bound_crossed(sum(sizes.values()))
            if self.over is not None:
                self._end_all()
                return

    def _left_seconds(self) -> float:
        return self._until - time.monotonic()

    def _bound_crossed(self, rss_bytes: int) -> PayloadError | None:
        granted, asked = self._bounds.memory_mb, self._bounds.wall_minutes
        if granted is not None and rss_bytes > granted * MEMORY_MARGIN * _MB:
            used_mb = sum(group_pss_bytes(self.peaks).values()) // _MB  # pages that several share count once
            if used_mb > granted * MEMORY_MARGIN:
                text = f"the job used {used_mb} MB of memory, its slot has {granted} MB; ended before the whole pilot is"
                return PayloadError(codes.OVER_MEMORY, text)
        if asked is not None and self._left_seconds() <= 0:
            text = (
                f"the {asked:g} minutes of wall time that the job asked for are nearly over; ended while there is time to report"
            )
            return PayloadError(codes.OVER_WALL_TIME, text)
        return None

    def _end_all(self) -> None:
        """As ``_end_groups``, but for the waiting, which is another's."""
        for group in self.peaks:
            _signal_group(group, signal.SIGTERM)
        self._ended.wait(STOP_GRACE_SECONDS)
        for group in self.peaks:
            _signal_group(group, signal.SIGKILL)

    def stop(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()


def group_rss_bytes(groups: Iterable[int]) -> dict[int, int]:
    """Resident memory of all processes in process groups, by ``/proc``."""
    total = dict.fromkeys(groups, 0)
    for _, group, rss_bytes in _processes(total):
        total[group] += rss_bytes
    return total


def group_pss_bytes(groups: Iterable[int]) -> dict[int, int]:
    """The same, with pages that processes share divided among them; as far as ``/proc`` shows."""
    total = dict.fromkeys(groups, 0)
    for process, group, rss_bytes in _processes(total):
        try:
            rollup = process / "smaps_rollup"  # older kernels have none
            found = _PSS.findall((rollup if rollup.exists() else process / "smaps").read_bytes())
        except OSError:
            found = []
        total[group] += 1024 * sum(map(int, found)) if found else rss_bytes
    return total


def _processes(groups: Container[int]) -> Iterator[tuple[Path, int, int]]:
    """(directory in ``/proc``, group, bytes in memory) of the processes in ``groups``. Of others' processes nothing need be
    readable (``hidepid``), and one may end while it is looked at."""
    with suppress(OSError):
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            with suppress(OSError):
                fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[2]) in groups:
                    yield process, int(fields[2]), int(fields[21]) * _PAGE_BYTES
