"""The fault catalogue: tests marked as entries, and what came of each written down for ``make faults``.

An entry says what is done, where the specification or the design asks for it, and what must be true afterwards; the test that
carries its mark does the one and looks for the other. A test may carry several. Without ``WMS2_FAULT_REPORT`` (a file to add
results to) the marks change nothing. How results are printed is ``deploy/stack/faults.py``'s.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

REPORT_VARIABLE = "WMS2_FAULT_REPORT"
MARK = "fault"


def fault(name: str, *, done: str, spec: str, afterwards: str) -> pytest.MarkDecorator:
    """Mark a test as an entry.

    Args:
        name: the fault in a few words.
        done: what the test does to bring it about.
        spec: section of the specification, design page or issue that asks for it.
        afterwards: what must be true at the end, and the test sees to it.
    """
    return getattr(pytest.mark, MARK)(name=name, done=done, spec=spec, afterwards=afterwards)


class Results:
    """Collects how each entry ended and adds one line of JSON for it to the report. A plugin of pytest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, list[dict[str, str]]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Learn the entries. The names of tests are as they will be reported only now."""
        for item in session.items:
            marks = reversed(list(item.iter_markers(MARK)))  # as they stand above the test
            self._entries[item.nodeid] = [dict(mark.kwargs) for mark in marks]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The call decides; set-up and tear-down count only when they fail or skip."""
        if report.when != "call" and report.passed:
            return
        result = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 1)}
        with self._path.open("a") as out:
            out.writelines(json.dumps(entry | result) + "\n" for entry in self._entries.get(report.nodeid, ()))


def register(config: pytest.Config) -> None:
    """Collect results if somebody wants them."""
    path = os.environ.get(REPORT_VARIABLE)
    if path:
        config.pluginmanager.register(Results(Path(path)), "fault-results")
