"""Shape hazards of ReqMgr2's values."""

from __future__ import annotations

import pytest

from requests_app.intake import lexicon
from requests_app.intake.values import Unreadable, flag, names, real, shown, text, whole


@pytest.mark.parametrize("value", [8, 8.0, "8", "8.0", " 8 ", "8.", "0.8e1"])
def test_a_whole_number_may_come_as_float_or_text(value: object) -> None:
    assert whole(1, 10)(value) == 8


@pytest.mark.parametrize(
    "value",
    [
        True, False, 0, 11, -8, 8.5, "8.5", "eight", "", "1_0", "\u0668", None, [8], {}, float("nan"), float("inf"), "NaN",
        10**400, pytest.param(-(10**5000), id="huge"),
    ],
)  # fmt: skip
def test_anything_else_is_no_whole_number_in_range(value: object) -> None:
    with pytest.raises(Unreadable):
        whole(1, 10)(value)


@pytest.mark.parametrize(("value", "number"), [(0.5, 0.5), ("0.5", 0.5), (2, 2.0), ("1e-3", 0.001)])
def test_a_number_may_come_as_text(value: object, number: float) -> None:
    assert real(1e-9, 10.0)(value) == number


@pytest.mark.parametrize("value", [0, -1, "-0.5", float("nan"), float("inf"), 1e300, True, "1e999", "x"])
def test_zero_negative_endless_and_huge_numbers_are_refused(value: object) -> None:
    with pytest.raises(Unreadable):
        real(1e-9, 10.0)(value)


def test_limits_of_a_range_belong_to_it() -> None:
    assert whole(1, 2**63 - 1)(2**63 - 1) == 2**63 - 1
    assert real(1e-9, 1.0)(1) == 1.0
    with pytest.raises(Unreadable):
        whole(1, 2**63 - 1)(2**63)


@pytest.mark.parametrize(("value", "meant"), [(True, True), ("true", True), ("True", True), (False, False), ("False", False)])
def test_a_boolean_may_come_as_text(value: object, meant: bool) -> None:
    assert flag(value) is meant


@pytest.mark.parametrize("value", [0, 1, "yes", "", [], None])
def test_a_number_is_no_boolean(value: object) -> None:
    with pytest.raises(Unreadable):
        flag(value)


@pytest.mark.parametrize("value", [["T2_CH_CERN", "T1_US_FNAL", "T2_CH_CERN"], "T2_CH_CERN,T1_US_FNAL", "T2_CH_CERN, T1_US_FNAL"])
def test_a_list_of_names_may_come_as_one_text_and_holds_each_once(value: object) -> None:
    assert names(lexicon.SITE)(value) == ("T2_CH_CERN", "T1_US_FNAL")


def test_every_wrong_name_of_a_list_is_told() -> None:
    with pytest.raises(Unreadable, match=r"'nowhere'.*'T9_XX'"):
        names(lexicon.SITE)(["nowhere", "T2_CH_CERN", "T9_XX"])


def test_text_must_be_printable_and_short() -> None:
    assert text(10)("Käse ü") == "Käse ü"
    for value in ("a\nb", "x" * 11, 7):
        with pytest.raises(Unreadable):
            text(10)(value)


def test_a_shown_value_is_short_and_plain() -> None:
    assert len(shown("x" * 10_000)) <= 80
    assert shown("\u202e\n") == r"'\u202e\n'"
    assert shown(10**10_000).startswith("a number of ")
    assert shown({"a": 1}) == "a map"
