"""Progress messages, set-up commands with their output in a log, and locks between set-ups."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from deploy.stack.errors import StackError
from deploy.stack.process import spawn

Name = TypeVar("Name")

_BEGUN = time.monotonic()
_print_lock = threading.Lock()
_commands: set[subprocess.Popen[bytes]] = set()
_cancelled = threading.Event()


def say(message: str) -> None:
    """One progress line with the seconds since the command began. A closed output does not end what runs."""
    with _print_lock:
        try:
            sys.stdout.write(f"[{time.monotonic() - _BEGUN:6.1f} s] {message}\n")
            sys.stdout.flush()
        except OSError:  # a closed pipe, a terminal that is gone
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  (for the rest of this process)


def seconds_since_start() -> float:
    return time.monotonic() - _BEGUN


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def run_logged(argv: Sequence[str | Path], *, log: Path, environment: Mapping[str, str], cwd: Path, seconds: float) -> None:
    """Run a set-up command to its end, output in ``log``; raises StackError with the log's end when it fails."""
    code = run_for_code(argv, output=log, errors=None, environment=environment, cwd=cwd, seconds=seconds)
    if code != 0:
        raise StackError(f"`{_abridged(argv)}` failed with code {code}; the end of {log}:\n{tail(log)}")


def _abridged(argv: Sequence[str | Path]) -> str:
    words = [str(word) for word in argv]
    return " ".join(words[:4]) + (" ..." if len(words) > 4 else "")


def run_for_code(
    argv: Sequence[str | Path],
    *,
    output: Path,
    errors: Path | None,
    environment: Mapping[str, str],
    cwd: Path,
    seconds: float,
) -> int:
    """Run a command to its end and return its exit code. Its words go to files (errors: None is the same file as output)."""
    if _cancelled.is_set():
        raise StackError(f"interrupted before `{_abridged(argv)}`")
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as stream, (errors or output).open("ab" if errors is None else "wb") as error_stream:
        said = subprocess.STDOUT if errors is None else error_stream
        command = spawn(argv, environment=environment, cwd=cwd, stop_signal=signal.SIGKILL, output=stream, errors=said)
    _commands.add(command)
    try:
        return command.wait(seconds)
    except subprocess.TimeoutExpired:
        raise StackError(f"`{_abridged(argv)}` took longer than {seconds:.0f} s: see {errors or output}") from None
    finally:
        if command.returncode is None:
            _kill_session(command)
            command.wait(30)
        _commands.discard(command)


def side_by_side(*tasks: Callable[[], None]) -> None:
    """Run tasks in threads of their own and wait for all; the first failure, or an interruption, ends the others."""
    each_of(dict(enumerate(tasks)))


def each_of(
    tasks: Mapping[Name, Callable[[], None]],
    *,
    ended: Callable[[Name], None] = lambda _: None,
    waiting: Callable[[Collection[Name]], None] = lambda _: None,
) -> None:
    """Run tasks side by side; in this thread ``ended`` is called as each ends, ``waiting`` now and then with the others."""
    with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as pool:
        try:
            pending = {pool.submit(task): name for name, task in tasks.items()}
            while pending:
                # A short wait: Python handles signals between waits.
                done, _ = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    ended(pending.pop(future))
                waiting(pending.values())
        except BaseException:
            cancel()
            raise


@contextmanager
def beside(*tasks: Callable[[], None]) -> Iterator[None]:
    """Run tasks in threads of their own while the block runs in this one, and wait for all; the first failure ends the others.

    What the block starts may outlive it: the kernel ends a service with the thread that started it.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            yield
            for future in futures:
                future.result()
        except BaseException:
            cancel()
            raise


def _kill_session(command: subprocess.Popen[bytes]) -> None:
    """End a set-up command and everything it started in its session."""
    with suppress(ProcessLookupError):
        os.killpg(command.pid, signal.SIGKILL)


def cancel() -> None:
    """On interruption: end the set-up commands and the waiting of all threads; no new command starts."""
    _cancelled.set()
    for command in list(_commands):
        _kill_session(command)


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock between processes; says so when it has to wait for another set-up."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{what}: another set-up is working on it, waiting ({path})")
            _wait_for(stream.fileno(), path)
        yield


def _wait_for(descriptor: int, path: Path) -> None:
    # Not a blocking flock: a thread inside it could not be interrupted.
    while not _cancelled.wait(0.2):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            continue
    raise StackError(f"interrupted while waiting for {path}")
