"""What a service of the stack is."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


def _nothing() -> None:
    return None


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
    problem: Callable[[], str | None]
    prepare: Callable[[], None] = field(default=_nothing)
    finish: Callable[[], None] = field(default=_nothing)
    stop_signal: int = signal.SIGTERM
    start_seconds: float = 60.0
    stop_seconds: float = 30.0
