"""Waiting for the requests to end, one line per change. Knows no database: it is given a way to look and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from deploy.demo.facts import RequestLine

#: Ends that are no success: nothing moves on from here by itself.
BAD_ENDS = frozenset({"held", "waiting_integrity", "failed", "aborted", "cleaning", "cleaned"})
GOOD_ENDS = frozenset({"completed", "archived"})
POLL_SECONDS = 1.0


class End(Enum):
    """How the waiting ended."""

    COMPLETED = "every request is completed"
    STOPPED = "a request cannot go on by itself"
    TIMEOUT = "the time limit is over"
    NOTHING = "there is no request"


@dataclass(frozen=True, slots=True)
class Waited:
    """The end, and the requests that are to be explained."""

    end: End
    unfinished: tuple[str, ...]


def judge(status_details: Sequence[RequestLine]) -> Waited | None:
    """The end that these standings mean; None while it goes on."""
    if not status_details:
        return Waited(End.NOTHING, ())
    bad = tuple(s.name for s in status_details if s.status in BAD_ENDS)
    if bad:
        return Waited(End.STOPPED, bad)
    return Waited(End.COMPLETED, ()) if all(s.status in GOOD_ENDS for s in status_details) else None


class Progress:
    """Prints the status of the requests whenever it changes; that they cannot be read is printed once, and once that it is over.

    Args:
        look: where they stand.
        say: prints a line.
        away: what ``look`` raises while it cannot be asked.
    """

    def __init__(self, look: Callable[[], Sequence[RequestLine]], say: Callable[[str], None], *away: type[Exception]) -> None:
        self._check, self._say, self._away = look, say, away
        self._printed: dict[str, str] = {}
        self._answers = True

    def step(self) -> Sequence[RequestLine]:
        """Look once; returns what was seen."""
        try:
            status_details = self._check()
        except self._away:  # its own words would be the same each time
            if self._answers:
                self._say("the database does not answer")
            self._answers = False
            return ()
        if not self._answers:
            self._say("the database answers again")
        self._answers = True
        lines = {status_detail.name: status_detail.line() for status_detail in status_details}
        for name, line in lines.items():
            if self._printed.get(name) != line:
                self._say(line)
        self._printed = lines
        return status_details


def wait(
    look: Callable[[], Sequence[RequestLine]],
    say: Callable[[str], None],
    *,
    limit_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Waited:
    """Look until it ends, at once when a request stopped, at the latest after ``limit_seconds``."""
    deadline, progress = clock() + limit_seconds, Progress(look, say)
    while True:
        status_details = progress.step()
        end = judge(status_details)
        if end is not None:
            return end
        if clock() >= deadline:
            return Waited(End.TIMEOUT, tuple(s.name for s in status_details if s.status not in GOOD_ENDS))
        sleep(POLL_SECONDS)
