"""What is wrong with files, told by pure rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outputs_app.checks.reconciliation.compare import Finding
from outputs_app.checks.reconciliation.remedies import REMEDIES
from outputs_app.checks.validation.rules import MEANS, Declared, LumiFile, doubled, empty, lumis_differ, meet, spans
from outputs_app.models import DriftKind, FindingKind

WHOLE, SHARES, EVENTS = Declared(True, False, False), Declared(True, True, False), Declared(False, False, False)
FILTERED = Declared(True, False, True)
LUMIS = st.frozensets(st.tuples(st.integers(1, 2), st.integers(1, 9)), max_size=4)


def files(first: int, lumis: list[frozenset[tuple[int, int]]]) -> list[LumiFile]:
    return [LumiFile(pk, f"file {pk}", each, pk, True) for pk, each in enumerate(lumis, first)]


@given(st.lists(LUMIS, max_size=3), st.lists(LUMIS, max_size=3), st.booleans())
def test_exactly_the_lumis_in_two_files_are_told_of_once(mine, others, mine_first) -> None:  # type: ignore[no-untyped-def]
    """Of both blocks together, however the files lie in them."""
    one, two = files(1 if mine_first else 100, mine), files(100 if mine_first else 1, others)
    found = [*doubled(one, two, WHOLE, UNKNOWN), *doubled(two, one, WHOLE, UNKNOWN)]
    held = Counter(lumi for lumis in (*mine, *others) for lumi in lumis)
    every = [*one, *two]
    younger = {a.lfn for a in every for b in every if b.pk < a.pk and a.lumis & b.lumis}
    assert {finding.name for finding in found} == younger
    assert bool(found) == any(number > 1 for number in held.values())
    assert not list(doubled(one, two, EVENTS, UNKNOWN)), "parts of a lumi may be anywhere"


@given(st.lists(LUMIS, min_size=1, max_size=4), st.lists(LUMIS, min_size=1, max_size=4))
def test_files_with_a_lumi_in_common_meet(mine, others) -> None:  # type: ignore[no-untyped-def]
    common = frozenset().union(*mine) & frozenset().union(*others)
    assert meet(spans(mine), spans(others)) or not common


def test_files_of_one_unit_may_share_a_lumi_where_a_later_task_divided_it() -> None:
    lumi = frozenset({(1, 1)})
    unit = [LumiFile(1, "a", lumi, 7, True), LumiFile(2, "b", lumi, 7, True)]
    assert not list(doubled(unit, (), SHARES, UNKNOWN))
    assert [finding.name for finding in doubled(unit, (), WHOLE, UNKNOWN)] == ["b"]
    assert [finding.name for finding in doubled(unit[1:], [LumiFile(1, "c", lumi, 8, True)], SHARES, UNKNOWN)] == ["b"]
    assert [finding.name for finding in doubled(unit[:1], [LumiFile(9, "d", lumi, 7, False)], SHARES, UNKNOWN)] == ["a"], (
        "another's"
    )


ONE, TWO = (1, 1), (1, 2)


@dataclass
class Input:
    """Input files: LFN -> lumi -> events, None where DBS does not tell; and which a file was made from, by its parents."""

    files: dict[str, dict[tuple[int, int], int | None]]
    totals: dict[str, int] = field(default_factory=dict)

    def ask_of(self, lumis: Set[tuple[int, int]]) -> None:
        """Everything is known."""

    def sources(self, file: LumiFile) -> dict[str, frozenset[tuple[int, int]]]:
        return {lfn: frozenset(self.files[lfn]) for lfn in file.parents if lfn in self.files}

    def events(self, lfn: str, lumi: tuple[int, int] | None = None) -> int | None:
        return self.totals.get(lfn) if lumi is None else self.files[lfn].get(lumi)

    def files_with(self, lumi: tuple[int, int]) -> int:
        return sum(lumi in held for held in self.files.values())


#: From which input anything was made is not known.
UNKNOWN = Input({})


def made_from(pk: int, *parents: str, unit: int = 0, own: bool = True, **counts: int | None) -> LumiFile:
    """With lumi ONE, and so many events in it."""
    events = counts.get("events", 10)
    return LumiFile(pk, f"file {pk}", frozenset({ONE}), unit or pk, own, parents, events or 0, {ONE: events})


def reported(one: LumiFile, two: LumiFile, declared: Declared, made: Input) -> list[str]:
    return [finding.name for finding in doubled([one], [two], declared, made)]


#: Two input files hold lumi ONE, 10 events each; lumi TWO is in one of them.
SHARED = Input({"a": {ONE: 10, TWO: 10}, "b": {ONE: 10}})
ALONE = Input({"a": {ONE: 10}, "b": {TWO: 10}})
BY_FILE, BY_FILE_SHARES = (Declared(False, shares, False, by_file=True) for shares in (False, True))


@pytest.mark.parametrize("own", [True, False])
def test_work_by_files_has_a_lumi_twice_only_from_one_input_file(own: bool) -> None:
    assert reported(made_from(2, "a"), made_from(1, "a", own=own), BY_FILE, SHARED) == ["file 2"]
    assert reported(made_from(2, "a", "b"), made_from(1, "b", own=own), BY_FILE, SHARED) == ["file 2"]
    assert reported(made_from(2, "a"), made_from(1, "b", own=own), BY_FILE, SHARED) == [], "a share of the lumi each"
    assert reported(made_from(2, "a"), made_from(1, own=own), BY_FILE, SHARED) == [], "it is not known from which"
    assert reported(made_from(2, "a"), made_from(1, own=own), BY_FILE, ALONE) == ["file 2"], "there is one only"
    assert reported(made_from(2), made_from(1, "unknown", own=own), BY_FILE, ALONE) == ["file 2"]


def test_files_of_one_unit_by_files_are_whole_unless_a_later_task_divides_them() -> None:
    one, two = made_from(2, "a", unit=7), made_from(1, "a", unit=7)
    assert reported(one, two, BY_FILE, SHARED) == ["file 2"]
    assert reported(one, two, BY_FILE_SHARES, SHARED) == []
    assert reported(one, made_from(1, "a", unit=8), BY_FILE_SHARES, SHARED) == ["file 2"]


@pytest.mark.parametrize(
    ("mine", "theirs", "parents", "found"),
    [
        (4, 6, ("a", "a"), False),  # divided between two jobs
        (10, 10, ("a", "a"), True),
        (5, 6, ("a", "a"), True),
        (10, 10, ("a", "b"), False),  # both files have the lumi
        (10, 10, ("a", ""), False),  # not known
        (None, 10, ("a", "a"), False),  # not counted, and the files have no more than their input
    ],
)
def test_work_by_events_shares_lumis_and_has_no_more_events_than_its_input(mine, theirs, parents, found) -> None:  # type: ignore[no-untyped-def]
    made = Input(SHARED.files, {"a": 40, "b": 40})
    one, two = made_from(2, parents[0], events=mine), made_from(1, *filter(None, parents[1:]), events=theirs)
    assert bool(reported(one, two, EVENTS, made)) is found


def test_work_by_events_without_counts_of_lumis_is_told_by_those_of_files() -> None:
    made = Input({"a": {ONE: None}}, {"a": 15})
    assert reported(made_from(2, "a", events=8), made_from(1, "a", events=8), EVENTS, made) == ["file 2"]
    assert reported(made_from(2, "a", events=8), made_from(1, "a", events=7), EVENTS, made) == []


@pytest.mark.parametrize("counted", [True, False])
def test_a_small_part_of_the_events_that_was_read_twice_is_told_by_all_files_together(counted: bool) -> None:
    """Of any two of them the input has enough events."""
    made = Input({"a": {ONE: 100 if counted else None}, "b": {ONE: 100 if counted else None}}, {"a": 100, "b": 100})
    first, rest, again, others = (
        made_from(pk, lfn, events=n) for pk, lfn, n in ((1, "a", 40), (2, "a", 60), (3, "a", 40), (4, "b", 1))
    )
    found = doubled([first, rest, again, others], (), EVENTS, made)
    assert {finding.name for finding in found} == {"file 3"}
    assert {finding.name for finding in doubled([again], [first, rest, others], EVENTS, made)} == {"file 3"}
    assert not list(doubled([first, rest, others], (), EVENTS, made))


def test_another_requests_work_by_events_divides_no_file_with_this_one() -> None:
    assert reported(made_from(2, "a", events=1), made_from(1, "a", own=False, events=1), EVENTS, SHARED) == ["file 2"]
    assert reported(made_from(2, "a", events=1), made_from(1, "b", own=False, events=1), EVENTS, SHARED) == []
    assert reported(made_from(2, "a", events=1), made_from(1, own=False, events=1), EVENTS, ALONE) == ["file 2"]


def test_a_file_is_empty_unless_a_filter_was_declared_or_its_input_is() -> None:
    events, parents = {"a": 0, "b": 5, "c": 0}, {"a": (), "b": (), "c": ("in",)}
    assert [finding.name for finding in empty(events, parents, {"in": 0}, WHOLE)] == ["a"]
    assert [finding.name for finding in empty(events, parents, {"in": 3}, WHOLE)] == ["a", "c"]
    assert not list(empty(events, parents, {"in": 3}, FILTERED))


def test_a_file_of_dqmio_holds_no_events_and_is_not_empty() -> None:
    assert not list(empty({"a": 0}, {"a": ()}, {}, Declared(True, False, False, eventless=True)))


def test_lumis_of_a_file_are_compared_one_by_one() -> None:
    ours = {"a": frozenset({(1, 1), (1, 2)}), "b": frozenset({(1, 3)})}
    assert [finding.found for finding in lumis_differ(ours, {"a": frozenset({(1, 2), (2, 9)})})] == [
        "2 lumis; without 1:1; with 2:9"
    ]


def test_every_difference_of_a_block_means_something() -> None:
    census = {DriftKind.RULE_TROUBLE, DriftKind.RULE_UNKNOWN}  # of all rules, not of a block
    dataset = {DriftKind.DATASET_TYPE, DriftKind.DBS_BLOCK_EXTRA}
    assert MEANS.keys() == REMEDIES.keys() - census - dataset
    assert FindingKind(MEANS[Finding(DriftKind.REPLICA_MISSING, "a", "", "").kind]) == FindingKind.MISSING_REPLICA
