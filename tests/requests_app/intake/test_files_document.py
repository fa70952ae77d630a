"""The list of input files that ``plan_request`` reads."""

from __future__ import annotations

from typing import Any

import pytest

from requests_app.intake.files_document import read_files
from tests.support.planning import CERN, FNAL
from wms2.errors import DocumentRefused


def entry(number: int, **changes: Any) -> dict[str, Any]:
    lumi = {"run": 1, "lumi": number, "events": None}
    return {
        "lfn": f"/store/{number}.root",
        "size_bytes": 1,
        "events": 10,
        "lumis": [lumi],
        "locations": [FNAL],
        "parents": [],
    } | changes


def test_the_file_list_becomes_typed_files() -> None:
    (file,) = read_files({"files": [entry(7, locations=[FNAL, CERN], parents=["/store/p.root"])]})
    assert (file.lfn, file.events, file.lumis) == ("/store/7.root", 10, {1: ((7, 7),)})
    assert (file.locations, file.parents) == ({FNAL, CERN}, ("/store/p.root",))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "files"),
        ({}, "files"),
        ({"files": [entry(1, events=-1)]}, "files.0.events"),
        ({"files": [entry(1, lumis=[{"run": "1", "lumi": 1}])]}, "files.0.lumis.0.run"),
        ({"files": [entry(1), entry(1)]}, "files.1.lfn"),
        ({"files": [entry(1, colour="red")]}, "files.0.colour"),
    ],
)
def test_a_wrong_file_list_is_refused_by_field(document: object, field: str) -> None:
    with pytest.raises(DocumentRefused) as refusal:
        read_files(document)
    assert [problem.field for problem in refusal.value.problems] == [field]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "must be a JSON object, not a list"),
        ({}, "is missing"),
        ({"files": [7]}, "must be a JSON object, not 7"),
        ({"files": [entry(1, events=-1)]}, "must be at least 0, not -1"),
        ({"files": [entry(1, events="10")]}, "must be a whole number, not '10'"),
        ({"files": [entry(1, events=2**63)]}, "must be at most 9223372036854775807, not a number of 64 bits"),
        ({"files": [entry(1, lumis=[{"run": 1, "lumi": 2**32}])]}, "must be at most 4294967295, not 4294967296"),
        ({"files": [entry(1, lumis=[{"run": 1, "lumi": [1, 5]}])]}, "must be a whole number, not a list"),
        ({"files": [entry(1, locations=FNAL)]}, "must be a list, not 'T1_US_FNAL'"),
        ({"files": [entry(1, locations=[""])]}, "must not be empty"),
        ({"files": [entry(1, colour="red")]}, "is not known; the format has no such field"),
    ],
)
def test_a_refusal_says_what_must_stand_there_and_what_does(document: object, problem: str) -> None:
    with pytest.raises(DocumentRefused) as refusal:
        read_files(document)
    assert [each.problem for each in refusal.value.problems] == [problem]


def test_of_one_mistake_in_every_entry_the_first_are_told_and_how_many_more() -> None:
    with pytest.raises(DocumentRefused) as refusal:
        read_files({"files": [entry(number, events=None) for number in range(50)]})
    assert len(refusal.value.problems) == 21
    assert refusal.value.problems[-1].problem == "30 more problems"
