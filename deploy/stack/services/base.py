"""What a service of the stack is."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# None when the service serves, else what it is waiting for.
Problem = Callable[[], str | None]


def nothing() -> None:
    """No preparation is needed."""


@dataclass(frozen=True, slots=True)
class Service:
    """One foreground process and how to tell that it serves.

    ``prepare`` runs before every start and must be repeatable. ``problem`` asks the service itself (a query, a PING,
    an HTTP request) and returns None when it serves, else what it is still waiting for. ``finish`` runs once after the
    process serves.
    """

    name: str
    argv: tuple[str | Path, ...]
    log: Path
    environment: Mapping[str, str]
    cwd: Path
    problem: Problem
    prepare: Callable[[], None] = field(default=nothing)
    finish: Callable[[], None] = field(default=nothing)
    stop_signal: int = signal.SIGTERM
    start_seconds: float = 60.0
    stop_seconds: float = 30.0
