"""``docs/errors.md`` maps the specification to tests that are there, and names the actions and codes that the code has."""

from __future__ import annotations

import re
from collections import Counter

from dags_app.payload.contract import codes
from dags_app.payload.contract.rules import ACTIONS
from tests.support.places import ROOT, missing_tests

PAGE = (ROOT / "docs/errors.md").read_text()
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
ROWS = re.findall(r"^\| ((?:spec )?\d\.\d[^|]*) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
#: Rows of the specification by section, as many as the page must have at least: whoever takes one away says so here.
SECTIONS = {
    "2.1": 2, "2.2": 2, "2.3": 8, "2.4": 13, "2.5": 4, "2.6": 3, "3.1": 4, "3.2": 5, "3.3": 5,
    "3.4": 2, "4.1": 9, "4.2": 6, "4.3": 6, "5.1": 4, "5.2": 8, "6.1": 5, "6.2": 4, "6.3": 4, "6.4": 2, "6.5": 4, "7.1": 2,
    "7.2": 7, "7.3": 2, "8.1": 1, "8.2": 2, "8.3": 5, "spec 4.8": 1, "spec 6.1": 3, "spec 6.2": 5, "spec 6.3": 3, "spec 6.4": 1,
}  # fmt: skip


def test_every_test_that_it_names_exists() -> None:
    assert missing_tests(TESTS) == []


def test_every_row_of_the_specification_is_there_once() -> None:
    keys = [key for key, _, _ in ROWS]
    assert [key for key in set(keys) if keys.count(key) > 1] == []
    assert Counter(section for key in keys for section in re.findall(r"^(?:spec )?\d\.\d", key)) >= Counter(SECTIONS)


def test_every_row_has_a_test_and_none_is_open() -> None:
    tested = re.compile(r"`tests/[\w/]+\.py::\w+`")
    wrong = [
        key
        for key, what, tests in ROWS
        if "open (" in f"{what} {tests}" or not (tested.search(tests) or what.startswith("*Not applicable:*"))
    ]
    assert wrong == []


def test_it_explains_every_action_and_the_codes_of_endings() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| ", PAGE, re.M)) == set(ACTIONS)
    endings = (
        codes.NOT_SUBMITTED, codes.MANIFEST_REFUSED, codes.ENDINGS_DIFFER, codes.LANDING_FAILED, codes.HELD, codes.REMOVED,
        codes.REPORT_LOST,
    )  # fmt: skip
    assert [code for code in endings if str(code) not in PAGE] == []
