"""What a service of the stack is, and where the stack's programs run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.stack.paths import Layout
from deploy.stack.steps import run_for_code, run_logged

# None when the service serves, else what it is waiting for.
Problem = Callable[[], str | None]


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
    prepare: Callable[[], None] = field(default=lambda: None)
    finish: Callable[[], None] = field(default=lambda: None)
    stop_signal: int = signal.SIGTERM
    start_seconds: float = 60.0
    stop_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the programs of a stack run: in its checkout, with this environment; what they say goes below its directory."""

    layout: Layout
    directory: Path
    environment: Mapping[str, str]

    def log(self, name: str) -> Path:
        return self.directory / f"logs/{name}.log"

    def run(self, name: str, *argv: str | Path, seconds: float = 300.0, **variables: str) -> None:
        """Run a program to its end, output in the log of this name; raises StackError with the log's end when it fails."""
        environment = {**self.environment, **variables}
        run_logged(argv, log=self.log(name), environment=environment, cwd=self.layout.source, seconds=seconds)

    def python(self, name: str, *words: str | Path, seconds: float = 300.0, **variables: str) -> None:
        """The same with the Python of the checkout's environment."""
        self.run(name, self.layout.python, *words, seconds=seconds, **variables)

    def ask(self, name: str, *words: str | Path, seconds: float = 300.0) -> tuple[int, str]:
        """The exit code of a Python program and what it prints; what it complains of is in the log of this name."""
        output = self.directory / f"logs/{name}.txt"
        argv, where = (self.layout.python, *words), {"output": output, "errors": self.log(name), "cwd": self.layout.source}
        return run_for_code(argv, environment=self.environment, seconds=seconds, **where), output.read_text()

    def service(self, name: str, *argv: str | Path, problem: Problem) -> Service:
        """A program that stays, output in the log of its name."""
        return Service(name, argv, self.log(name), self.environment, self.layout.source, problem)
