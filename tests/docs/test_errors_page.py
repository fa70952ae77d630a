"""``docs/errors.md`` maps the specification to tests that are there, and names the actions and codes that the code has."""

from __future__ import annotations

import re

import pytest

from dags_app.payload import codes
from dags_app.payload.rules import ACTIONS
from deploy.stack import paths

ROOT = paths.checkout()
PAGE = (ROOT / "docs/errors.md").read_text()
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
SECTIONS = {"2.2", "2.3", "2.4", "2.5", "2.6", "3.2", "4.1", "5.2", "6.1", "6.2", "6.3", "6.5", "7.1", "7.2", "7.3"}


@pytest.mark.parametrize(("file", "test"), TESTS)
def test_every_test_that_it_names_exists(file, test):
    assert f"\ndef {test}(" in (ROOT / file).read_text()


def test_every_section_has_a_row():
    assert set(re.findall(r"^\| (\d\.\d) \|", PAGE, re.M)) == SECTIONS


def test_it_explains_every_action_and_the_codes_of_endings():
    assert set(re.findall(r"^\| `(\w+)` \| ", PAGE, re.M)) == set(ACTIONS)
    for code in (codes.NOT_SUBMITTED, codes.MANIFEST_REFUSED, codes.ENDINGS_DIFFER, codes.HELD, codes.REMOVED, codes.REPORT_LOST):
        assert str(code) in PAGE
