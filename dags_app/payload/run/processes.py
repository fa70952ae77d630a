"""Running child processes side by side and measuring each: wall time, CPU and peak memory of its whole process group.

Owns the children's lives: each gets its own process group, so that a payload that is told to stop takes all of it down, and
one that fails ends the others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

from ..contract import codes
from ..contract.codes import PayloadError

#: How long a child may take to end after SIGTERM before it is killed. HTCondor itself gives a job 30 s by default.
STOP_GRACE_SECONDS = 8.0

_SAMPLE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_MB = 1024 * 1024  # as cmsRun and HTCondor count
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Finished:
    """How a child ended. ``exit_code`` is 128 + the signal's number for a child that a signal ended; ``stopped``: because
    another one had failed."""

    exit_code: int
    wall_seconds: float
    cpu_seconds: float
    peak_rss_mb: float
    stopped: bool = False


@dataclass(frozen=True)
class Command:
    """A child to run in ``directory``; its stdout goes to ``<output>.stdout``, its stderr to ``<output>.stderr``."""

    words: list[str]
    directory: Path
    environment: dict[str, str]
    output: Path


@contextmanager
def stop_requests_as_errors() -> Iterator[None]:
    """Inside, SIGTERM (removed, evicted) and SIGINT raise a PayloadError, so reports are still written."""

    def stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise PayloadError(codes.TERMINATED, f"told to stop by {signal.Signals(number).name} (removed, evicted or over a limit)")

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_measured(commands: Sequence[Command]) -> tuple[Finished, ...]:
    """Run commands side by side, and end the others as soon as one fails.

    PayloadError(EXECUTABLE_NOT_FOUND) when one cannot be started. Any error raised while waiting ends all children first.
    """
    started = time.monotonic()
    children: list[subprocess.Popen[bytes]] = []
    sampler = _MemorySampler()
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
    return tuple(ended[child.pid] for child in children)


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


class _MemorySampler(threading.Thread):
    """Samples the resident memory of process groups; short processes are sampled soon, long ones rarely."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[int, int] = {}  # bytes
        self._ended = threading.Event()

    def run(self) -> None:
        step = 0
        while not self._ended.wait(_SAMPLE_SECONDS[min(step, len(_SAMPLE_SECONDS) - 1)]):
            for group, size_bytes in group_rss_bytes(self.peaks).items():
                self.peaks[group] = max(self.peaks[group], size_bytes)
            step += 1

    def stop(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()


def group_rss_bytes(groups: Iterable[int]) -> dict[int, int]:
    """Resident memory of all processes in process groups, by ``/proc``."""
    total = dict.fromkeys(groups, 0)
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended while we looked
        if int(fields[2]) in total:
            total[int(fields[2])] += int(fields[21]) * _PAGE_BYTES
    return total
