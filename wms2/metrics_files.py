"""The files in which processes keep their counters (prometheus_client's multi-process mode), read together and folded.

Each kind of process has a directory of its own below ``WMS2_METRICS_ROOT`` and is started with it as
``PROMETHEUS_MULTIPROC_DIR``; a scrape adds up all of them. What a process counted stays in the sum after its end (a counter that
falls looks like a restart to Prometheus), but not its file: ``fold`` adds the files of dead processes up in one. Process ids tell
the dead ones, so processes of several containers must not share a directory.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

ROOT = "WMS2_METRICS_ROOT"
OWN = "PROMETHEUS_MULTIPROC_DIR"
#: What a file's name begins with. The values of these may be added up; a dead process's gauges say nothing any more.
ADDED = ("counter", "histogram", "summary")
FOLDED = "folded"
_LOCK = "lock"


def directories() -> list[Path]:
    """Where the processes of this node keep their counters; empty when each keeps them to itself."""
    root, own = os.environ.get(ROOT), os.environ.get(OWN)
    if root:
        return sorted(path for path in Path(root).iterdir() if path.is_dir())
    return [Path(own)] if own else []


class AllProcesses(Collector):
    """Counters and histograms of all processes of this node, ended ones included."""

    def collect(self) -> Iterable[Metric]:
        """One sum over all files; nothing is folded meanwhile."""
        places = directories()
        with ExitStack() as stack:
            for place in places:
                stack.enter_context(_locked(place, fcntl.LOCK_SH))
            files = [str(file) for place in places for file in place.glob("*.db")]
            return list(MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]


def fold(directory: Path) -> int:
    """Add the files of dead processes up in one and remove them; returns how many there were."""
    with _locked(directory, fcntl.LOCK_EX):
        dead = [file for file in directory.glob("*.db") if not _alive(_owner(file))]
        for kind in ADDED:
            _fold(directory / f"{kind}_{FOLDED}.db", [file for file in dead if file.name.startswith(f"{kind}_")])
        for file in dead:
            file.unlink(missing_ok=True)
        return len(dead)


def fold_own() -> None:
    """What a process does at its start, and gunicorn when one of its workers has ended."""
    own = os.environ.get(OWN)
    if own:
        fold(Path(own))


def _fold(target: Path, files: list[Path]) -> None:
    if not files:
        return
    sums: dict[str, float] = defaultdict(float)
    for file in (target, *files) if target.exists() else files:
        for key, value, *_ in MmapedDict.read_all_values_from_file(str(file)):  # type: ignore[no-untyped-call]
            sums[key] += value
    fresh = target.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    written = MmapedDict(str(fresh))  # type: ignore[no-untyped-call]
    for key, value in sums.items():
        written.write_value(key, value, 0.0)  # type: ignore[no-untyped-call]
    written.close()  # type: ignore[no-untyped-call]
    fresh.replace(target)


def _owner(file: Path) -> str:
    """The process id in ``counter_123.db`` or ``gauge_all_123.db``."""
    return file.stem.rpartition("_")[2]


def _alive(owner: str) -> bool:
    """Whether the file is still written; the folded one is ours to keep. Another user's process is alive as well."""
    if owner == FOLDED:
        return True
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    with (directory / _LOCK).open("a") as stream:
        fcntl.flock(stream, how)
        yield
