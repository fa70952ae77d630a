"""What each test costs, with its set-up and teardown: time by the clock, and seconds of processor.

Processor time is that of the test's process, of programs that it has waited for, and of its session in PostgreSQL. What the
pool's jobs and daemons take is in the sums by part only (``deploy/stack/spent.py``). Each run writes all of it to a file in the
directory that ``WMS2_TEST_COSTS`` names, and prints what cost most, and the sums by directory beside the recorded ones.

    python -m tests.support.costs FILE      writes recorded.json and longest.json from the file of a run
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.support import warm
from tests.support.side_by_side import LONGEST

DIRECTORY_VARIABLE = "WMS2_TEST_COSTS"
RECORDED = Path(__file__).with_name("recorded.json")
_PROPERTY = "cost"
_SHOWN = 20
#: What costs more has a mark that says why (``marks.py``).
_DEAR_SECONDS = 5.0
#: Shorter units are begun in the order in which they stand.
_LONG_SECONDS = 3.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Cost:
    """Of one test, or of several: seconds by the clock and of processor in set-up, call and teardown."""

    clock: float = 0.0
    cpu: float = 0.0
    around_clock: float = 0.0
    around_cpu: float = 0.0

    def add(self, other: Cost) -> None:
        self.clock += other.clock
        self.cpu += other.cpu
        self.around_clock += other.around_clock
        self.around_cpu += other.around_cpu


class Meter:
    """Measures in each process; the results travel with the reports of the tests. A plugin of pytest."""

    def __init__(self) -> None:
        self._begun = (0.0, 0.0, 0, 0.0)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        self._begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        self._begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        self._begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        clock, cpu, session, session_cpu = self._begun
        now, cpu_now, session_now, session_cpu_now = _now()
        of_session = session_cpu_now - (session_cpu if session_now == session else 0.0)
        spent = {"clock": round(now - clock, 4), "cpu": round(cpu_now - cpu + max(0.0, of_session), 4)}
        name = getattr(item, "unit_name", "")
        marked = any(item.get_closest_marker(mark) for mark in ("dear", "deep"))
        report.user_properties = [*report.user_properties, (_PROPERTY, spent | {"unit": name, "marked": marked})]
        return report

    def _begin(self) -> None:
        self._begun = _now()


class Ledger:
    """Collects the costs of all processes, and tells them at the end. A plugin of pytest, where tests are not run by others."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._costs: dict[str, Cost] = defaultdict(Cost)
        self._units: dict[str, str] = {}
        self._marked: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if isinstance(report, pytest.SubtestReport):  # its test's cost is told with the test
            return
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, dict):
                test = report.nodeid.rpartition("@")[0] or report.nodeid
                clock, cpu = float(value["clock"]), float(value["cpu"])
                self._units[test] = str(value["unit"])
                if value["marked"]:
                    self._marked.add(test)
                in_call = report.when == "call"
                self._costs[test].add(Cost(clock, cpu) if in_call else Cost(clock, cpu, clock, cpu))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if len(self._costs) < _SHOWN:
            return
        say = terminalreporter.write_line
        terminalreporter.write_sep("=", "seconds by directory (clock, processor; as recorded)")
        for line in by_directory(self._costs, recorded()):
            say(line)
        terminalreporter.write_sep("=", f"the {_SHOWN} that cost most (clock, processor; of these in set-up and teardown)")
        for test, cost in sorted(self._costs.items(), key=lambda entry: -entry[1].cpu)[:_SHOWN]:
            say(f"{cost.clock:7.1f} {cost.cpu:7.1f}   {cost.around_clock:6.1f} {cost.around_cpu:6.1f}   {test}")
        dear = {test for test, cost in self._costs.items() if cost.cpu > _DEAR_SECONDS}
        if unmarked := sorted(dear - self._marked):
            terminalreporter.write_sep("=", f"more than {_DEAR_SECONDS:.0f} seconds of processor, and neither dear nor deep")
            for test in unmarked:
                say(test)
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
            rows = {test: asdict(cost) | {"unit": self._units[test]} for test, cost in self._costs.items()}
            path = self._directory / f"costs.{time.strftime('%y%m%d_%H%M%S')}.json"
            path.write_text(json.dumps(rows, indent=0))
            say(f"all of them: {path}")


def _now() -> tuple[float, float, int, float]:
    """The clock; processor of this process and those it has waited for; the session of PostgreSQL, and its processor."""
    own = os.times()
    cpu = own.user + own.system + own.children_user + own.children_system + warm.spent.cpu_seconds
    session = _session()
    return time.monotonic(), cpu, session, _cpu_of(session)


def _session() -> int:
    of_psycopg = connection.connection
    if of_psycopg is None or of_psycopg.closed:
        return 0
    return int(of_psycopg.info.backend_pid)


def _cpu_of(pid: int) -> float:
    if pid == 0:
        return 0.0
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:  # the server is another machine's, or the session has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def register(config: pytest.Config) -> None:
    """Measure here; and collect, unless this is one of several processes."""
    config.pluginmanager.register(Meter(), "cost-meter")
    if not hasattr(config, "workerinput"):
        directory = os.environ.get(DIRECTORY_VARIABLE)
        config.pluginmanager.register(Ledger(Path(directory) if directory else None), "cost-ledger")


def by_directory(costs: Mapping[str, Cost], before: Mapping[str, list[float]]) -> Iterable[str]:
    """A line for each directory of tests, and one for all."""
    for name, cost in sorted(_sums(costs).items()):
        clock, cpu = before.get(name, (0.0, 0.0))
        yield f"{cost.clock:7.0f} {cost.cpu:7.0f}   {clock:6.0f} {cpu:6.0f}   {name}"


def _sums(costs: Mapping[str, Cost]) -> dict[str, Cost]:
    """What the tests of each directory, and all of them, cost together."""
    sums: dict[str, Cost] = defaultdict(Cost)
    for test, cost in costs.items():
        sums[test.partition("::")[0].rpartition("/")[0]].add(cost)
        sums["all"].add(cost)
    return sums


def recorded() -> dict[str, list[float]]:
    """Sums by directory of the last recorded run: clock, processor."""
    found: dict[str, list[float]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return found


def renew(paths: Iterable[Path]) -> None:
    """Record the sums of a run's files, and how long its longest units take."""
    rows: dict[str, dict[str, Any]] = {}
    for path in paths:
        rows |= json.loads(path.read_text())
    units: dict[str, float] = defaultdict(float)
    for row in rows.values():
        units[row["unit"]] += row["clock"]
    sums = _sums({test: Cost(row["clock"], row["cpu"]) for test, row in rows.items()})
    found = {name: [round(cost.clock), round(cost.cpu)] for name, cost in sorted(sums.items())}
    RECORDED.write_text(json.dumps(found, indent=0) + "\n")
    longest = sorted(((s, u) for u, s in units.items() if u and s >= _LONG_SECONDS), reverse=True)
    LONGEST.write_text(json.dumps({unit: round(seconds) for seconds, unit in longest}, indent=0) + "\n")


if __name__ == "__main__":
    renew(Path(word) for word in sys.argv[1:])
