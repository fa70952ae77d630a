"""The report of the fault catalogue, over results as the tests write them."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.stack.faults import MISSING, PASSED, read_entries, table


def results(path: Path, *outcomes: tuple[str, str, str]) -> Path:
    """A file of results: (fault, test, outcome)."""
    lines = [
        {"name": name, "done": "it is done", "spec": "spec 4.5", "afterwards": "all is well", "test": test, "outcome": outcome}
        for name, test, outcome in outcomes
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_an_entry_holds_when_all_its_tests_passed_in_every_run(tmp_path: Path) -> None:
    first = results(tmp_path / "1", ("exit 1", "a", PASSED), ("killed", "b[x]", PASSED), ("killed", "b[y]", PASSED))
    second = results(tmp_path / "2", ("exit 1", "a", PASSED), ("killed", "b[x]", "failed"), ("killed", "b[y]", PASSED))
    entries = read_entries([first, second])
    assert [(entry.texts[0], entry.results, entry.holds) for entry in entries] == [
        ("exit 1", (PASSED, PASSED), True),
        ("killed", (PASSED, "failed"), False),
    ]
    assert entries[1].tests == ("b[x]",)


def test_what_was_skipped_or_never_ran_does_not_hold(tmp_path: Path) -> None:
    first = results(tmp_path / "1", ("exit 1", "a", "skipped"), ("killed", "b", PASSED))
    second = results(tmp_path / "2", ("exit 1", "a", PASSED))
    entries = read_entries([first, second])
    assert [entry.results for entry in entries] == [("skipped", PASSED), (PASSED, MISSING)]
    assert not any(entry.holds for entry in entries)
    assert read_entries([tmp_path / "none"]) == []


def test_a_failure_of_the_tear_down_counts_against_a_call_that_passed(tmp_path: Path) -> None:
    path = results(tmp_path / "1", ("exit 1", "a", PASSED), ("exit 1", "a", "failed"))
    (entry,) = read_entries([path])
    assert entry.results == ("failed",)


def test_the_table_says_what_was_done_and_what_must_be_true(tmp_path: Path) -> None:
    path = results(tmp_path / "1", ("a fault whose name is longer than its column is wide", "a", "failed"))
    lines = list(table(read_entries([path]), 1))
    assert lines[1].split("   ")[0].strip() == "fault"
    assert lines[3].startswith("a fault whose name is longer")
    assert lines[4].startswith("than its column is wide")
    assert {"it is done", "spec 4.5", "all is well", "failed"} <= {cell.strip() for cell in lines[3].split("   ")}
    assert lines[-2:] == ["0 of 1 faults left what they must, 1 times in a row", f"  {lines[3][:28]} than its column is wide: a"]
