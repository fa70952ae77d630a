"""The report of the fault catalogue: what was done, what must be true afterwards, and how it went each time. Runs nothing."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The file that a run of the tests adds its results to (``tests/support/faults.py``).
REPORT_VARIABLE = "WMS2_FAULT_REPORT"
WIDTHS = (30, 40, 24, 52)
HEADS = ("fault", "what is done", "asked for in", "what must be true afterwards")
PASSED, MISSING = "passed", "not run"
_WORSE = ("failed", "skipped", PASSED)


@dataclass(frozen=True, slots=True)
class Entry:
    """A fault with its results, one for each run."""

    texts: tuple[str, ...]
    results: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether it held in every run."""
        return all(result == PASSED for result in self.results)


def read_entries(reports: Sequence[Path]) -> list[Entry]:
    """Entries in the order of the first run, from one file of results for each run. Of tests of one entry the worst decides."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for number, path in enumerate(reports):
        for line in _lines(path):
            texts = tuple(str(line[name]) for name in ("name", "done", "spec", "afterwards"))
            outcomes = found.setdefault(texts, [{} for _ in reports])[number]
            outcomes[line["test"]] = min(outcomes.get(line["test"], PASSED), line["outcome"], key=_WORSE.index)
    return [
        Entry(
            texts,
            tuple(min(run.values(), key=_WORSE.index, default=MISSING) for run in runs),
            tuple(sorted({test for run in runs for test, outcome in run.items() if outcome != PASSED})),
        )
        for texts, runs in found.items()
    ]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(text)


def table(entries: Iterable[Entry], runs: int) -> Iterator[str]:
    """The report, line by line, and below it the tests that did not pass."""
    entries = list(entries)
    heads = [*HEADS, *(f"run {number + 1}" for number in range(runs))]
    widths = [*WIDTHS, *[7] * runs]
    rule = "-" * (sum(widths) + 3 * (len(widths) - 1))
    yield from (rule, *_row(heads, widths), rule)
    for entry in entries:
        yield from (*_row([*entry.texts, *entry.results], widths), rule)
    held = sum(entry.holds for entry in entries)
    yield f"{held} of {len(entries)} faults left what they must, {runs} times in a row"
    for entry in entries:
        yield from (f"  {entry.texts[0]}: {test}" for test in entry.tests)


def _row(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    for index in range(max(len(lines) for lines in wrapped)):
        texts = [lines[index] if index < len(lines) else "" for lines in wrapped]
        yield "   ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()
