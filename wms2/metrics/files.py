"""The files in which processes keep their counters (prometheus_client's multi-process mode), and their sum.

Each kind of process has a directory of its own below ``WMS2_METRICS_ROOT`` and is started with it as
``PROMETHEUS_MULTIPROC_DIR``; a scrape adds up all of them. What a process counted stays in the sum after its end (a counter that
falls looks like a restart to Prometheus): files are named by a number that a later process takes over, and goes on counting in
them. So there are never more files than processes that ran at the same time. All metrics kept so are counters and histograms.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

from prometheus_client import Metric, values
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

ROOT = "WMS2_METRICS_ROOT"
OWN = "PROMETHEUS_MULTIPROC_DIR"
_NUMBERS = "numbers"


def directories() -> list[Path]:
    """Where the processes of this node keep their counters; empty when each keeps them to itself."""
    root, own = os.environ.get(ROOT), os.environ.get(OWN)
    if root:
        return sorted(path for path in Path(root).iterdir() if path.is_dir())
    return [Path(own)] if own else []


class AllProcesses(Collector):
    """Counters and histograms of all processes of this node, ended ones included."""

    def collect(self) -> Iterable[Metric]:
        """One sum over all files."""
        files = [str(file) for place in directories() for file in place.glob("*.db")]
        return list(MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]


def count_in_files() -> None:
    """Keep the counters of this process and its children in files, if it has a directory; called before any metric is made."""
    own = os.environ.get(OWN)
    if own:
        values.ValueClass = values.MultiProcessValue(numbered(Path(own)))  # type: ignore[no-untyped-call]


def numbered(directory: Path) -> Callable[[], int]:
    """A function that returns the number of its process: the lowest that no living process of the directory has.

    A number is a byte of a file, locked for as long as its process lives. A child has a number of its own, which is never its
    parent's, even if that has ended: prometheus_client sees by the change that there was a fork.
    """
    numbers = (directory / _NUMBERS).open("a")
    owner, mine = 0, -1

    def is_free(number: int) -> bool:
        try:
            fcntl.lockf(numbers, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def number() -> int:
        nonlocal owner, mine
        if owner != os.getpid():
            owner, mine = os.getpid(), next(one for one in count() if one != mine and is_free(one))
        return mine

    return number
