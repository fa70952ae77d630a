"""What of an input dataset a document wants: masks and lists, at the top or in the first step."""

from __future__ import annotations

from typing import Any

import pytest

from dags_app.planning.specs import InputSpec
from tests.support.intake import Document, chain, problems, read, reprocessing, with_step

_DATASET = "/MuonEG/Run2024C-v1/RAW"
_BLOCKS = [f"{_DATASET}#{n}" for n in (1, 2, 3)]


def _input(document: Document) -> InputSpec:
    wanted = read(document).spec.input
    assert wanted is not None
    return wanted


def _reading(**top: Any) -> Document:
    return with_step(1, chain(**top), InputDataset=_DATASET, RequestNumEvents=..., SplittingAlgo="LumiBased", EventsPerLumi=...)


def test_a_reprocessing_wants_what_its_lists_say() -> None:
    wanted = _input(
        reprocessing(
            LumiList={"2": [[5, 9], [1, 3]], "1": [["4", 4.0]]}, RunWhitelist=[2, 1, 2], RunBlacklist=[3], IncludeParents="True",
            BlockWhitelist=_BLOCKS[:2], BlockBlacklist=_BLOCKS[1:], OpenRunningTimeout=7200,
        )
    )  # fmt: skip
    assert wanted == InputSpec(
        dataset=_DATASET, include_parents=True, run_whitelist=(1, 2), run_blacklist=(3,), block_whitelist=tuple(_BLOCKS[:2]),
        block_blacklist=tuple(_BLOCKS[1:]), lumi_list={1: ((4, 4),), 2: ((1, 3), (5, 9))}, open_seconds=7200,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "attribute", "expected"),
    [
        ("LumiList", {"7": [[1, 2]]}, "lumi_list", {7: ((1, 2),)}), ("RunWhitelist", [7], "run_whitelist", (7,)),
        ("RunBlacklist", [7], "run_blacklist", (7,)), ("BlockWhitelist", _BLOCKS, "block_whitelist", tuple(_BLOCKS)),
        ("BlockBlacklist", _BLOCKS, "block_blacklist", tuple(_BLOCKS)), ("IncludeParents", True, "include_parents", True),
    ],
)  # fmt: skip
def test_a_chain_may_give_each_list_at_the_top_or_in_its_first_step(
    field: str, value: Any, attribute: str, expected: Any
) -> None:
    assert getattr(_input(_reading(**{field: value})), attribute) == expected
    assert getattr(_input(with_step(1, _reading(), **{field: value})), attribute) == expected
    assert getattr(_input(with_step(1, _reading(**{field: value}), **{field: value})), attribute) == expected


@pytest.mark.parametrize("value", [{"1": []}, {"1": [], "2": []}, '{"1": []}'])
def test_a_lumi_list_without_a_lumi_is_refused_instead_of_meaning_everything(value: Any) -> None:
    found = problems(reprocessing(LumiList=value))
    assert found["LumiList"].startswith("names runs and no lumi of them")


@pytest.mark.parametrize("value", [{}, "{}", None])
def test_no_lumi_list_means_everything(value: Any) -> None:
    assert _input(reprocessing(LumiList=value)).lumi_list == {}


def test_a_run_without_lumis_beside_others_is_not_wanted() -> None:
    assert _input(reprocessing(LumiList={"1": [], "2": [[3, 4]]})).lumi_list == {2: ((3, 4),)}


def test_two_different_lists_are_refused() -> None:
    found = problems(with_step(1, _reading(RunWhitelist=[1]), RunWhitelist=[2]))
    assert found == {"RunWhitelist": "differs from Step1.RunWhitelist; give it once"}


@pytest.mark.parametrize(
    "field", ["LumiList", "RunWhitelist", "RunBlacklist", "BlockWhitelist", "BlockBlacklist", "IncludeParents"]
)
def test_a_generation_with_a_list_is_refused(field: str) -> None:
    value: Any = {"LumiList": {"1": [[1, 1]]}, "IncludeParents": True}.get(field, [1] if field.startswith("Run") else _BLOCKS)
    assert problems(chain(**{field: value})) == {field: "the request generates its events and reads no input dataset"}
    assert set(problems(with_step(1, **{field: value}))) == {f"Step1.{field}"}


def test_time_to_grow_has_no_effect_on_a_generation() -> None:
    assert read(chain(OpenRunningTimeout=60)).spec.warnings == (
        "OpenRunningTimeout: has no effect: the request reads no input dataset",
    )


@pytest.mark.parametrize(
    ("lists", "field", "says"),
    [
        ({"BlockWhitelist": ["/Other/Run2024C-v1/RAW#1"]}, "BlockWhitelist", "is no block of /MuonEG/Run2024C-v1/RAW"),
        ({"BlockBlacklist": ["no block"]}, "BlockBlacklist", "not a legal block"),
        ({"BlockWhitelist": _BLOCKS[:1], "BlockBlacklist": _BLOCKS}, "BlockWhitelist", "every block of it"),
        ({"RunWhitelist": [1, 2], "RunBlacklist": [2, 1]}, "RunWhitelist", "every run of it"),
        ({"RunWhitelist": [1], "LumiList": {"2": [[1, 1]]}}, "LumiList", "leave no run"),
        ({"RunBlacklist": [2], "LumiList": {"2": [[1, 1]]}}, "LumiList", "leave no run"),
        ({"OpenRunningTimeout": 10**12}, "OpenRunningTimeout", "must be between"),
    ],
)
def test_lists_that_leave_nothing_or_name_a_stranger_are_refused(lists: dict[str, Any], field: str, says: str) -> None:
    found = problems(reprocessing(**lists))
    assert set(found) == {field}
    assert says in found[field]


def test_a_mask_that_event_ranges_cannot_keep_is_refused() -> None:
    found = problems(reprocessing(SplittingAlgo="EventBased", LumiList={"1": [[1, 2]]}))
    assert found == {"LumiList": "EventBased splitting cannot keep a mask inside a file; use LumiBased or FileBased"}


def test_parents_asked_for_in_the_first_part_are_not_contradicted_by_reqmgr2s_default_at_the_top() -> None:
    """Every exported chain with parents has false at the top and true in Step1."""
    document = with_step(1, _reading(IncludeParents=False), IncludeParents=True)
    assert _input(document).include_parents
    other = with_step(1, _reading(IncludeParents="True"), IncludeParents=False)
    assert problems(other)["IncludeParents"] == "differs from Step1.IncludeParents; give it once"
