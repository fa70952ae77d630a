"""What something costs of the processor, in this process and in its PostgreSQL backend, and how many statements it takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Cost:
    """Of one step."""

    statements: int = 0
    worker_seconds: float = 0.0
    backend_seconds: float = 0.0

    def __iadd__(self, other: Cost) -> Cost:
        self.statements += other.statements
        self.worker_seconds += other.worker_seconds
        self.backend_seconds += other.backend_seconds
        return self

    @property
    def seconds(self) -> float:
        """Of both."""
        return self.worker_seconds + self.backend_seconds


@contextmanager
def costs() -> Iterator[Cost]:
    """What happens inside costs, filled in at the end."""
    from django.db import connection

    cost = Cost()

    def count(execute: Callable[..., Any], *args: Any) -> Any:
        cost.statements += 1
        return execute(*args)

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = cursor.fetchone()[0]
    before, worker = _cpu_seconds(backend), time.process_time()
    with connection.execute_wrapper(count):
        yield cost
    cost.worker_seconds = time.process_time() - worker
    cost.backend_seconds = _cpu_seconds(backend) - before


def repeated(step: Callable[[], object], times: int) -> list[Cost]:
    """The costs of a step, each time that it is taken."""
    found = []
    for _ in range(times):
        with costs() as cost:
            step()
        found.append(cost)
    return found


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
