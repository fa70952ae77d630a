"""Running a child process and measuring it: wall time, CPU and peak memory of its whole process group.

Owns the child's life: it gets its own process group, so that a payload that is told to stop takes all of it down.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..contract import codes
from ..contract.codes import PayloadError

#: How long a child may take to end after SIGTERM before it is killed. HTCondor itself gives a job 30 s by default.
STOP_GRACE_SECONDS = 8.0

_SAMPLE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_MB = 1024 * 1024  # as cmsRun and HTCondor count
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Finished:
    """How a child ended. ``exit_code`` is 128 + the signal's number for a child that a signal ended."""

    exit_code: int
    wall_seconds: float
    cpu_seconds: float
    peak_rss_mb: float


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


def run_measured(command: list[str], directory: Path, environment: dict[str, str], output: Path) -> Finished:
    """Run ``command`` in ``directory``; its stdout goes to ``<output>.stdout``, its stderr to ``<output>.stderr``.

    PayloadError(EXECUTABLE_NOT_FOUND) when it cannot be started. Any error raised while waiting ends the child first.
    """
    started = time.monotonic()
    with Path(f"{output}.stdout").open("wb") as stdout, Path(f"{output}.stderr").open("wb") as stderr:
        try:
            child = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise PayloadError(codes.EXECUTABLE_NOT_FOUND, f"{command[0]} cannot be started: {error}") from error
    sampler = _MemorySampler(child.pid)
    try:
        sampler.start()
        _, status, usage = os.wait4(child.pid, 0)
    except BaseException:
        _end_group(child)
        raise
    finally:
        sampler.stop()
    code = os.waitstatus_to_exitcode(status)
    child.returncode = code  # reaped above, so Popen must not wait for it
    return Finished(
        exit_code=code if code >= 0 else 128 - code,
        wall_seconds=time.monotonic() - started,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_rss_mb=max(sampler.peak_bytes, usage.ru_maxrss * 1024) / _MB,
    )


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the child's process group: SIGTERM, a grace period, SIGKILL."""
    _signal_group(child.pid, signal.SIGTERM)
    try:
        child.wait(STOP_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


class _MemorySampler(threading.Thread):
    """Samples the resident memory of a process group; short processes are sampled soon, long ones rarely."""

    def __init__(self, group: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._group = group
        self._ended = threading.Event()

    def run(self) -> None:
        step = 0
        while not self._ended.wait(_SAMPLE_SECONDS[min(step, len(_SAMPLE_SECONDS) - 1)]):
            self.peak_bytes = max(self.peak_bytes, group_rss_bytes(self._group))
            step += 1

    def stop(self) -> None:
        self._ended.set()
        self.join()


def group_rss_bytes(group: int) -> int:
    """Resident memory of all processes in a process group, by ``/proc``."""
    total = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended while we looked
        if int(fields[2]) == group:
            total += int(fields[21]) * _PAGE_BYTES
    return total
