"""Shape hazards of ReqMgr2's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from requests_app.intake import lexicon
from requests_app.intake.values import Unreadable, choice, flag, names, real, shown, text, whole


def readable(convert: Callable[[object], object], values: Iterable[object]) -> list[str]:
    """Those of the values that are read although they should not be."""
    found = []
    for value in values:
        try:
            convert(value)
        except Unreadable:
            continue
        found.append(shown(value))
    return found


def test_numbers_may_come_as_float_or_text() -> None:
    assert {whole(1, 10)(value) for value in (8, 8.0, "8", "8.0", " 8 ", "8.", "0.8e1")} == {8}
    assert [real(1e-9, 10.0)(value) for value in (0.5, "0.5", 2, "1e-3")] == [0.5, 0.5, 2.0, 0.001]


def test_anything_else_is_no_number_in_range() -> None:
    no_whole = [
        True, False, 0, 11, -8, 8.5, "8.5", "eight", "", "1_0", "\u0668", None, [8], {}, float("nan"), float("inf"), "NaN",
        10**400, -(10**5000),
    ]  # fmt: skip
    assert readable(whole(1, 10), no_whole) == []
    no_real = [0, -1, "-0.5", float("nan"), float("inf"), 1e300, True, "1e999", "x"]
    assert readable(real(1e-9, 10.0), no_real) == []


def test_limits_of_a_range_belong_to_it() -> None:
    assert whole(1, 2**63 - 1)(2**63 - 1) == 2**63 - 1
    assert real(1e-9, 1.0)(1) == 1.0
    assert readable(whole(1, 2**63 - 1), [2**63]) == []


def test_a_boolean_may_come_as_text_and_a_number_is_none() -> None:
    assert [flag(value) for value in (True, "true", "True", False, "False")] == [True, True, True, False, False]
    assert readable(flag, [0, 1, "yes", "", [], None]) == []


def test_a_choice_is_one_of_its_words() -> None:
    assert choice("byRun", "multiRun")("byRun") == "byRun"
    assert readable(choice("byRun", "multiRun"), ["byrun", "", None, 1, ["byRun"], {}]) == []


def test_a_list_of_names_may_come_as_one_text_and_holds_each_once() -> None:
    for value in (["T2_CH_CERN", "T1_US_FNAL", "T2_CH_CERN"], "T2_CH_CERN,T1_US_FNAL", "T2_CH_CERN, T1_US_FNAL"):
        assert names(lexicon.SITE)(value) == ("T2_CH_CERN", "T1_US_FNAL")
    with pytest.raises(Unreadable, match=r"'nowhere'.*'T9_XX'"):
        names(lexicon.SITE)(["nowhere", "T2_CH_CERN", "T9_XX"])


def test_text_must_be_printable_and_short() -> None:
    assert text(10)("Käse ü") == "Käse ü"
    assert readable(text(10), ["a\nb", "x" * 11, 7]) == []


def test_a_shown_value_is_short_and_plain() -> None:
    assert len(shown("x" * 10_000)) <= 80
    assert shown("\u202e\n") == r"'\u202e\n'"
    assert shown(10**10_000).startswith("a number of ")
    assert shown({"a": 1}) == "a map"
