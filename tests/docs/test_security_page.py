"""docs/security.md names tests and settings that are there, and leaves out nothing that ASVS 5.0 asks for at level 2."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.conf import settings

from deploy.docs import configuration
from tests.support.places import ROOT, missing_tests

PAGE = (ROOT / "docs/security.md").read_text()
ROW = re.compile(r"^\| (\d+\.\d+)\.(\d+)(?: to \d+\.\d+\.(\d+))? \| (.+?) \| (.+?) \| (.*?) ?\|$", re.M)
#: Section of ASVS 5.0.0 -> the last numbers of what it asks for at levels 1 and 2.
ASKED = {
    "6.1": range(1, 4), "6.2": range(1, 13), "6.3": range(1, 5), "6.4": range(1, 5), "6.5": range(1, 6), "6.6": range(1, 4),
    "6.8": range(1, 5), "7.1": range(1, 4), "7.2": range(1, 5), "7.3": range(1, 3), "7.4": range(1, 6), "7.5": range(1, 3),
    "7.6": range(1, 3), "8.1": range(1, 3), "8.2": range(1, 4), "8.3": range(1, 2), "8.4": range(1, 2), "9.1": range(1, 4),
    "9.2": range(1, 5), "10.1": range(1, 3), "10.2": range(1, 3), "10.3": range(1, 5), "10.4": range(1, 12),
    "10.5": range(1, 6), "10.6": range(1, 3), "10.7": range(1, 4), "13.1": range(1, 2), "13.2": range(1, 6),
    "13.3": range(1, 3), "13.4": range(1, 6), "16.1": range(1, 2), "16.2": range(1, 6), "16.3": range(1, 5),
    "16.4": range(1, 4), "16.5": range(1, 4),
}  # fmt: skip
STATES = {"holds", "partly", "not held", "by design", "elsewhere", "does not apply"}


def problems(text: str) -> Iterator[str]:
    """Tests, files and settings that a text names and that are not there."""
    known = set(re.findall(r"^\| `([A-Z0-9_]+)`", configuration.TARGET.read_text(), re.M))
    for word in re.findall(r"`([^`\n]+)`", text):
        file, _, test = word.partition("::")
        if re.fullmatch(r"(tests|wms2|requests_app|deploy)/[\w/.-]+\.\w+", file):
            if not (ROOT / file).is_file():
                yield f"there is no file {file}"
            elif test and missing_tests([(file, test)]):
                yield f"{file} has no test {test}"
        elif re.fullmatch(r"WMS2_[A-Z0-9_]+", word) and word not in known:
            yield f"there is no setting {word}"
        elif re.fullmatch(r"[A-Z]+(_[A-Z]+)+", word) and not word.startswith("WMS2_") and not hasattr(settings, word):
            yield f"Django has no setting {word}"


def evidence(text: str) -> list[str]:
    """What a row names as the test, setting, file, page or part of this page that shows it."""
    return re.findall(r"`(?:tests/[^`]+|wms2/[^`]+|[A-Z][A-Z0-9_]+)`|\]\([\w./#-]+\)|^\*[A-Z][\w ]+\*", text)


def test_every_test_and_setting_that_it_names_is_there() -> None:
    assert list(problems(PAGE)) == []
    assert PAGE.count("`tests/") > 60


def test_everything_that_is_asked_for_has_one_row() -> None:
    found = [
        (section, number)
        for section, first, last, *_ in ROW.findall(PAGE)
        for number in range(int(first), int(last or first) + 1)
    ]
    assert found == [(section, number) for section, numbers in ASKED.items() for number in numbers]


def test_what_holds_names_what_shows_it_and_what_does_not_says_what_is_missing() -> None:
    for section, first, _, title, state, by in ROW.findall(PAGE):
        name = f"{section}.{first} {title}"
        assert state in STATES, name
        if state in ("holds", "partly"):
            assert evidence(by), f"{name}: name the test or the setting"
        if state in ("partly", "not held"):
            assert len(re.sub(r"`[^`]*`", "", by)) > 20, f"{name}: say what is missing"


@pytest.mark.parametrize(
    "text",
    [
        "`tests/wms2/test_sessions.py::test_nothing`", "`tests/wms2/test_none.py::test_x`", "`WMS2_NO_SUCH_SETTING`",
        "`SESSION_NO_SUCH`",
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_is_noticed(text: str) -> None:
    assert list(problems(text))
