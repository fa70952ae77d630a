"""Recognising, unwrapping and merging request documents."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from requests_app.intake import merge_document, with_fields
from tests.support.intake import Document, chain, problems, read, reprocessing
from wms2.errors import DocumentRefused


def _pair(**assigned: Any) -> Document:
    created = chain(
        SiteWhitelist=..., AcquisitionEra="Era_created", ProcessingString="created", RequestName=..., RequestString="Integ"
    )
    return {"createRequest": created, "assignRequest": {"SiteWhitelist": ["T1_US_FNAL"], **assigned}}


def _refused(document: object) -> list[tuple[str, str]]:
    with pytest.raises(DocumentRefused) as refused:
        merge_document(document)
    return [(problem.field, problem.problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda document: document, lambda document: {document["RequestName"]: document},
        lambda document: {"result": [{document["RequestName"]: document}]}, lambda document: {"result": [document]},
    ],
    ids=["bare", "by name", "reqmgr2 answer", "reqmgr2 answer with common_dict"],
)  # fmt: skip
def test_every_form_of_a_whole_document_means_the_same(wrapped: Any) -> None:
    assert merge_document(wrapped(chain())) == chain()


def test_an_assigned_value_replaces_the_created_one() -> None:
    merged = merge_document(_pair(Memory=9000, MergedLFNBase="/store/backfill/1"))
    assert merged["Memory"] == 9000
    assert merged["MergedLFNBase"] == "/store/backfill/1"
    assert merged["SiteWhitelist"] == ["T1_US_FNAL"]


def test_one_assigned_value_replaces_what_the_steps_say() -> None:
    pair = _pair(AcquisitionEra="Era_assigned", ProcessingVersion=7)
    pair["createRequest"]["Step2"]["AcquisitionEra"] = "Era_step"
    pair["createRequest"]["Step2"]["ProcessingVersion"] = 4
    draft = read(pair)
    assert [step.acquisition_era for step in draft.steps] == ["Era_assigned"] * 3
    assert [step.processing_version for step in draft.steps] == [7, 7, 7]


def test_an_assigned_map_wins_over_the_steps_and_leaves_the_others_as_created() -> None:
    pair = _pair(AcquisitionEra={"Gen": "Era_gen", "Digi": "Era_digi"}, ProcessingVersion={"Reco": 9})
    pair["createRequest"]["Step1"]["AcquisitionEra"] = "Era_step"
    draft = read(pair)
    assert [step.acquisition_era for step in draft.steps] == ["Era_gen", "Era_digi", "Era_created"]
    assert [step.processing_version for step in draft.steps] == [2, 2, 9]


def test_a_map_in_creation_and_one_in_assignment_are_joined() -> None:
    pair = _pair(AcquisitionEra={"Gen": "Era_assigned"})
    pair["createRequest"]["AcquisitionEra"] = {"Gen": "A", "Digi": "B", "Reco": "C"}
    assert [step.acquisition_era for step in read(pair).steps] == ["Era_assigned", "B", "C"]


def test_a_steps_own_value_wins_over_one_value_at_the_top() -> None:
    document = chain(ProcessingVersion=30)
    document["Step2"]["ProcessingVersion"] = 32
    assert [step.processing_version for step in read(document).steps] == [30, 32, 30]


def test_a_map_that_names_no_step_is_refused_by_the_name() -> None:
    found = problems(chain(ProcessingVersion={"Nowhere": 3}))
    assert "'Nowhere'" in found["ProcessingVersion"]
    assert "Digi, Gen, Reco" in found["ProcessingVersion"]


def test_a_map_without_a_step_that_has_nothing_else_is_refused_for_that_step() -> None:
    assert problems(chain(AcquisitionEra={"Gen": "A", "Digi": "B"})) == {"Step3.AcquisitionEra": "is missing"}


def test_an_assigned_null_leaves_the_created_value() -> None:
    assert merge_document(_pair(Memory=None))["Memory"] == 8000


def test_merging_leaves_the_document_as_it_was() -> None:
    pair = _pair(AcquisitionEra={"Gen": "Era_gen"}, ProcessingString="assigned")
    before = copy.deepcopy(pair)
    merge_document(pair)
    assert pair == before


def test_the_name_of_a_pair_is_its_request_string_unless_one_is_given() -> None:
    assert read(_pair()).spec.request_name == "Integ"
    assert read(_pair(), name="mine_1").spec.request_name == "mine_1"


def test_a_given_name_that_differs_from_the_documents_is_warned_of() -> None:
    draft = read(chain(), name="mine_1")
    assert draft.spec.request_name == "mine_1"
    assert any(warning.startswith("RequestName: the document's") for warning in draft.spec.warnings)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "document"), ("text", "document"), (None, "document"), ({}, "document"), ({"some": "thing"}, "document"),
        ({"a": {"b": 1}}, "document"), ({"result": []}, "result"), ({"result": [chain(), chain()]}, "result"),
        ({"result": [1]}, "result"), ({"result": {}}, "result"), ({"createRequest": chain()}, "assignRequest"),
        ({"assignRequest": {}}, "createRequest"), ({"createRequest": 1, "assignRequest": {}}, "createRequest"),
        ({"createRequest": chain(), "assignRequest": {}, "Team": "x"}, "Team"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_name(document: object, field: str) -> None:
    assert [name for name, _ in _refused(document)] == [field]


@pytest.mark.parametrize(
    ("value", "says"),
    [("a\x00b", "cannot be stored"), ("half \ud800", "cannot be stored"), (float("nan"), "NaN"), (float("-inf"), "NaN")],
)
def test_what_no_json_column_keeps_is_refused_where_it_stands(value: object, says: str) -> None:
    ((field, problem),) = _refused(chain(Comments={"CheckList": ["fine", value]}))
    assert field == "Comments.CheckList"
    assert says in problem


def test_a_key_with_a_nul_is_refused() -> None:
    assert _refused({**chain(), "a\x00": 1})[0][0] == "document"


def test_endless_nesting_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    ((field, problem),) = _refused(chain(Comments=nested))
    assert (field, "levels deep" in problem) == ("Comments", True)


def test_another_priority_goes_where_it_counts() -> None:
    assert read(with_fields(chain(), RequestPriority=7)).identity.priority == 7
    assert read(with_fields(_pair(), RequestPriority=7)).identity.priority == 7
    assert read(with_fields({"result": [{"x": reprocessing()}]}, RequestPriority=7)).identity.priority == 7
