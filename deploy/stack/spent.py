"""Where the time of a command went: for each part the clock, the processor, and what of the processor lay idle.

Processor time is the whole machine's, as the kernel counts it: jobs and daemons of the pool are children of no test. Other
programs of the machine are in it too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
#: Columns of the kernel's line of all processors that are time spent idle.
_IDLE = (3, 4)
#: Guests' time is in the columns before these.
_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a command, in seconds."""

    name: str
    clock: float
    cpu: float

    @property
    def idle(self) -> float:
        """Of the processor, while it lasted."""
        return max(0.0, self.clock * (os.cpu_count() or 1) - self.cpu)


class Spent:
    """What the parts of this process took, in the order in which they ended."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The block is a part of this name."""
        begun, busy = time.monotonic(), _busy_seconds()
        try:
            yield
        finally:
            self.parts.append(Part(name, time.monotonic() - begun, _busy_seconds() - busy))

    def table(self) -> list[str]:
        """A line for each part, and one for all of them."""
        total = Part("all", sum(part.clock for part in self.parts), sum(part.cpu for part in self.parts))
        lines = [f"{part.name:<24} {part.clock:8.0f} {part.cpu:10.0f} {part.idle:8.0f}" for part in (*self.parts, total)]
        return [f"{'seconds':<24} {'clock':>8} {'processor':>10} {'idle':>8}", *lines]


def _busy_seconds() -> float:
    """Processor seconds that this machine has spent since it started; 0 where the kernel does not say."""
    try:
        line = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    return sum(int(ticks) for column, ticks in enumerate(line[:_COLUMNS]) if column not in _IDLE) / _TICKS
