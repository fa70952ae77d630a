"""``docs/specification.md`` maps the sections of the specification to tests that are there."""

from __future__ import annotations

import re

from tests.support.places import ROOT, missing_tests

ROWS = re.findall(r"^\| (\d+\.\d+ [^|]*) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/specification.md").read_text(), re.M)
#: Sections that ask for something that can be shown; whoever takes one away says so here.
SECTIONS = {
    "1.2", "2.3", "2.4", "3.1", "3.2", "4.2", "4.3", "4.4", "4.5", "4.6", "4.7", "4.9", "4.10", "5.2", "5.3", "5.4", "5.6", "5.7",
    "6.1", "6.2", "6.3", "7.1", "8.1", "11.1", "13.1",
}  # fmt: skip


def test_every_section_has_rows_and_no_row_is_there_twice() -> None:
    keys = [key for key, _, _ in ROWS]
    assert len(set(keys)) == len(keys)
    assert {key.split()[0] for key in keys} == SECTIONS


def test_every_row_names_tests_that_exist() -> None:
    named = {key: re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests) for key, _, tests in ROWS}
    assert [key for key, tests in named.items() if not tests] == []
    assert missing_tests(test for tests in named.values() for test in tests) == []
