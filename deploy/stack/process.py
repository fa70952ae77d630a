"""Start, find and stop processes so that none is left behind.

Every process of a stack carries ``WMS2_STACK=<kind directory>`` in its environment and dies with its supervisor
(PR_SET_PDEATHSIG). What a daemon forked itself is found again by that variable; HTCondor's own processes, whose
environment DAGMan makes, by the CONDOR_CONFIG of the stack's pool. Only processes found that way are ever signalled:
a shell that sourced the stack's ``env`` file carries neither.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

MARKER = "WMS2_STACK"
ATTACHED_STOP_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal_number: int) -> Callable[[], None]:
    """A function for ``preexec_fn``: the kernel sends the signal when the thread that started the process ends."""
    parent = os.getpid()

    def request() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the request was made
            os.kill(os.getpid(), signal_number)

    return request


def spawn(
    argv: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    stop_signal: int = signal.SIGTERM,
    output: IO[bytes] | None = None,
    errors: IO[bytes] | int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a foreground process in a session of its own; what it says goes where our own output goes, or to these files."""
    return subprocess.Popen(
        [str(word) for word in argv],
        env=dict(environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,  # Ctrl-C reaches us alone: we ask it to stop, once
        preexec_fn=die_with_parent(stop_signal),  # noqa: PLW1509  (it takes no lock: a system call on a loaded library)
    )


@contextmanager
def attached(
    argv: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    stop_signal: int = signal.SIGTERM,
    output: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that prints to our own output, or to a file. It ends with the block, or with this process."""
    errors = None if output is None else subprocess.STDOUT
    child = spawn(argv, environment=environment, cwd=cwd, stop_signal=stop_signal, output=output, errors=errors)
    try:
        yield child
    finally:
        child.send_signal(stop_signal)
        wait_or_kill(child, ATTACHED_STOP_SECONDS)


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process that was asked to stop; after ``seconds`` its whole session is killed. True when it went by itself."""
    try:
        process.wait(max(0.0, seconds))
        return True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        return False


def _of(pid: int, file: str) -> bytes:
    """What the system says of a process; empty when it is gone meanwhile, or another user's."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def _own_line() -> set[int]:
    """This process and its ancestors: never signalled by a sweep."""
    line, pid = set(), os.getpid()
    while pid > 1:
        line.add(pid)
        stat = _of(pid, "stat").rpartition(b")")[2].split()
        pid = int(stat[1]) if stat else 0
    return line


def members(kind_directory: Path) -> list[int]:
    """Process ids that belong to the stack in ``kind_directory``, this process and its ancestors excepted."""
    own = _own_line()
    found = []
    marker, pools = os.fsencode(kind_directory), os.fsencode(kind_directory) + b"/"
    for pid in {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()} - own:
        environment = dict(entry.split(b"=", 1) for entry in _of(pid, "environ").split(b"\0") if b"=" in entry)
        of_pool = environment.get(b"CONDOR_CONFIG", b"").startswith(pools) and _of(pid, "comm").startswith(b"condor_")
        if environment.get(MARKER.encode()) == marker or of_pool:
            found.append(pid)
    return found


def command_line(pid: int) -> str:
    """The process's command line, for messages; empty when it is gone."""
    return _of(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _signal_all(pids: Sequence[int], signal_number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def sweep(kind_directory: Path, seconds: float = 15.0) -> list[str]:
    """End every process that still belongs to the stack; returns the command lines of those found."""
    pids = members(kind_directory)
    found = [f"{pid} {command_line(pid)[:120]}" for pid in pids]
    _signal_all(pids, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while pids and time.monotonic() < deadline:
        time.sleep(0.1)
        pids = members(kind_directory)
    while pids:
        _signal_all(pids, signal.SIGKILL)
        time.sleep(0.1)
        pids = [pid for pid in members(kind_directory) if command_line(pid)]
    return found
