"""The child processes that talk to HTCondor: kept for further questions, and given up after a time limit. Knows no operations.

A child lives on for one place (schedd, collector, tokens) and answers one question at a time; while it is busy, another thread's
question goes to a further one. It is ended when a question failed, and soon enough that it keeps neither old tokens and
configuration nor the memory of a large answer. What must not be made twice has a process of its own (``ask_apart``). ADR 0014.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from wms2.adapters.caller import TIMEOUT_CODE, _stop_if_lost, since_boot
from wms2.errors import ServiceRejected, ServiceUnavailable

SERVICE = "htcondor"
_MODULE = "wms2.adapters.htcondor_child"
_ROOT = Path(__file__).resolve().parents[2]
_ERROR_TAIL = 2000
# What a child needs. Nothing else goes down: DAGMan copies parts of its submitter's environment, and ours holds secrets.
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "CONDOR_CONFIG", "LD_LIBRARY_PATH")
#: A child answers no question that comes later than this after its start, or after its last answer.
_LIFE_SECONDS, _IDLE_SECONDS = 600.0, 120.0
_LAST_SECONDS = 5.0
#: It ends by itself so much later than it is asked any more.
_MARGIN_SECONDS = 30.0


class Place(NamedTuple):
    """Where the questions go: a schedd by name, its collector, and a directory of IDTOKENs or ""."""

    schedd: str
    collector: str
    token_dir: str = ""


def ask(place: Place, calls: Sequence[Mapping[str, Any]], *, operation: str, limit_seconds: float) -> list[Any]:
    """Make the calls, which may be made twice, in a process that lives on; their results in order.

    What a child that has answered before does not get done is tried once more by a new one within the limit: it knows the way
    to a schedd that was restarted, and the present tokens.

    Raises:
        ServiceUnavailable: no answer within the limit (code ``timeout``), the daemon did not answer, or the process died.
        ServiceRejected: refused.
    """
    ends_at = since_boot() + limit_seconds
    child = _take(place)
    try:
        results = child.answer(calls, operation, limit_seconds, ends_at)
    except ServiceUnavailable as error:
        if not child.proven or error.code == TIMEOUT_CODE:
            raise
        child = _Child(place)
        results = child.answer(calls, operation, limit_seconds, ends_at)
    _give_back(child)
    return results


def ask_apart(
    place: Place, calls: Sequence[Mapping[str, Any]], *, operation: str, limit_seconds: float, begun: float | None = None
) -> list[Any]:
    """Make the calls once, in a process of their own that is gone afterwards: none of them outlives its limit.

    Args:
        begun: from when on ``limit_seconds`` count, by ``since_boot``, if that is not now.

    Raises:
        ServiceUnavailable, ServiceRejected: as ``ask``; after the latter nothing was sent.
    """
    child = _Child(place)
    try:
        return child.answer(calls, operation, limit_seconds, (since_boot() if begun is None else begun) + limit_seconds)
    finally:
        child.end()


class _Child:
    """One process, used by one caller at a time; after an error it has ended."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.proven = False
        self.started_at = self.answered_at = since_boot()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child; an unread pipe fills up
        # A session of its own: a Ctrl-C meant for us must not end a submission half-way.
        self.process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(_IDLE_SECONDS + _MARGIN_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            cwd=_ROOT,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            start_new_session=True,
        )
        self._questions, self._answers = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        os.set_blocking(self._questions.fileno(), False)

    @property
    def fresh(self) -> bool:
        now = since_boot()
        return now - self.started_at < _LIFE_SECONDS and now - self.answered_at < _IDLE_SECONDS

    def answer(self, calls: Sequence[Mapping[str, Any]], operation: str, limit_seconds: float, ends_at: float) -> list[Any]:
        place = self.place
        question = {**place._asdict(), "ends_at": ends_at, "calls": list(calls)}
        whole = False
        try:
            _stop_if_lost()
            output = self._exchange(json.dumps(question).encode() + b"\n", ends_at)
            if not output.endswith(b"\n"):
                raise self._died(operation, limit_seconds)
            reply = json.loads(output)
            fault = reply.get("error")
            if fault is not None:
                kind = ServiceRejected if fault["kind"] == "rejected" else ServiceUnavailable
                raise kind(SERVICE, operation, f"{place.schedd}: {fault['detail']}")
            results: list[Any] = reply["results"]
            whole = True
        except TimeoutError as error:
            raise self._timed_out(operation, limit_seconds) from error
        except ValueError as error:
            detail = f"unreadable answer of the HTCondor process: {output[:200]!r}"
            raise ServiceUnavailable(SERVICE, operation, detail) from error
        finally:
            # Also when we are interrupted ourselves: its answer is not awaited any more.
            if not whole:
                self.end()
        self.proven, self.answered_at = True, since_boot()
        return results

    def _exchange(self, question: bytes, deadline: float) -> bytes:
        """Write the question and read up to the end of the answer's line, or of the process, whichever comes first. Raises
        TimeoutError: neither came in time."""
        left, parts = memoryview(question), list[bytes]()
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        poll.register(self._questions, select.POLLOUT)
        while not parts or not parts[-1].endswith(b"\n"):
            ready = poll.poll(max(deadline - since_boot(), 0.0) * 1000.0)
            if not ready:
                raise TimeoutError
            for descriptor, _ in ready:
                if descriptor == self._answers.fileno():
                    part = os.read(descriptor, 1 << 20)
                    if not part:
                        return b"".join(parts)
                    parts.append(part)
                elif left:
                    try:
                        left = left[os.write(descriptor, left) :]
                    except BrokenPipeError:
                        left = left[:0]
                    if not left:
                        poll.unregister(descriptor)
        return b"".join(parts)

    def _died(self, operation: str, limit_seconds: float) -> ServiceUnavailable:
        with suppress(subprocess.TimeoutExpired):  # it has closed its end; one that hangs on its way out is killed
            self.process.wait(_LAST_SECONDS)
        code = self.process.returncode
        if code == -signal.SIGALRM:
            return self._timed_out(operation, limit_seconds)
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip()[-_ERROR_TAIL:]
        return ServiceUnavailable(SERVICE, operation, f"HTCondor process ended with {code}: {last}")

    def _timed_out(self, operation: str, limit_seconds: float) -> ServiceUnavailable:
        place = self.place
        detail = f"{place.schedd} (collector {place.collector}) did not answer within {limit_seconds:g} s"
        return ServiceUnavailable(SERVICE, operation, detail, TIMEOUT_CODE)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.let_go()

    def let_go(self) -> None:
        """Close our ends; the process ends when no other process of ours has them."""
        for stream in (self._questions, self._answers, self._errors):
            stream.close()


#: Children that wait for a question, at most one for each place, and the lock over them.
_waiting: dict[Place, _Child] = {}
_lock = threading.Lock()


def _take(place: Place) -> _Child:
    with _lock:
        child = _waiting.pop(place, None)
    if child is not None and child.fresh:
        return child
    if child is not None:
        child.end()
    return _Child(place)


def _give_back(child: _Child) -> None:
    with _lock:
        spare = _waiting.setdefault(child.place, child) is not child
    if spare:
        child.end()


def end_all() -> None:
    """End the children that wait for a question; the next one starts a new one."""
    with _lock:
        children = list(_waiting.values())
        _waiting.clear()
    for child in children:
        child.end()


def _forget_all() -> None:
    """In a process that was forked: the children are its parent's, who may be asking one at this moment."""
    global _lock  # noqa: PLW0603 - a thread that is not here may hold it
    _lock = threading.Lock()
    for child in _waiting.values():
        child.let_go()
        child.process.returncode = 0  # not ours to wait for
    _waiting.clear()


os.register_at_fork(after_in_child=_forget_all)
atexit.register(end_all)
