"""How scripted services fail: an answer is refused, missing, or lost after the call has acted; a process may die in any call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from django.db import connection

from wms2.adapters import caller
from wms2.errors import LeaseLost, ServiceRejected, ServiceUnavailable

T = TypeVar("T")


class PowerCut(BaseException):
    """The worker process dies here. Nothing in WMS2 may catch it."""


class Mode(Enum):
    """What happens to a call."""

    DOWN = "does not act, no answer"
    LOST = "acts, the answer is lost"
    REFUSED = "does not act, refuses"
    DEATH_BEFORE = "the calling process dies before the call acts"
    DEATH_AFTER = "the calling process dies after the call has acted"


@dataclass
class Script:
    """The faults that wait for calls of one service, and what was called."""

    service: str
    waiting: list[Mode] = field(default_factory=list)
    #: operations that the real service can refuse; empty: all
    refuses: frozenset[str] = frozenset()
    calls: int = 0
    #: (operation, content) -> answers that the caller got; for "once outside" checks
    answered: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: run once when the next call is about to be made: other processes at work while its caller is stopped
    meanwhile: Callable[[], None] | None = None
    #: the same when the next call has been answered, before that is recorded
    afterwards: Callable[[], None] | None = None
    #: told of each call that is made
    judge: Callable[[str], None] = lambda call: None
    #: calls that were not made, since the caller's lease was lost
    lost: int = 0

    def arm(self, mode: Mode, times: int = 1) -> None:
        """The next calls go wrong."""
        self.waiting.extend([mode] * times)

    def heal(self) -> None:
        """All is well again."""
        self.waiting.clear()
        self.meanwhile = self.afterwards = None

    def call(self, operation: str, act: Callable[[], T], content: str = "") -> T:
        """Make a call, as the script wants it, and as adapters do: not under a lease that is lost."""
        assert not connection.in_atomic_block, f"{self.service} {operation} is called with a transaction open"
        self.calls += 1
        self.before()
        try:
            caller._stop_if_lost()
        except LeaseLost:
            self.lost += 1
            raise
        self.judge(f"{self.service} {operation}")
        mode = self._next(operation)
        if mode is Mode.DOWN:
            raise ServiceUnavailable(self.service, operation, "scripted: no answer", "timeout")
        if mode is Mode.REFUSED:
            raise ServiceRejected(self.service, operation, "scripted: refused", 400)
        if mode is Mode.DEATH_BEFORE:
            raise PowerCut
        result = act()
        self.after()
        if mode is Mode.LOST:
            raise ServiceUnavailable(self.service, operation, "scripted: the answer was lost", "timeout")
        if mode is Mode.DEATH_AFTER:
            raise PowerCut
        self.answered[operation, content] += 1
        return result

    def before(self) -> None:
        """Its caller is stopped here for as long as others are at work, where some wait for that."""
        others, self.meanwhile = self.meanwhile, None
        if others is not None:
            others()

    def after(self) -> None:
        """The same when it has been done."""
        others, self.afterwards = self.afterwards, None
        if others is not None:
            others()

    def _next(self, operation: str) -> Mode | None:
        if not self.waiting or (self.waiting[0] is Mode.REFUSED and self.refuses and operation not in self.refuses):
            return None
        return self.waiting.pop(0)
