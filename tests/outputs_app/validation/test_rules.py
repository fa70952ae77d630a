"""What is wrong with files, told by pure rules."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from outputs_app.models import DriftKind, Prognosis
from outputs_app.reconciliation.compare import Finding
from outputs_app.reconciliation.remedies import REMEDIES
from outputs_app.validation.rules import MEANS, Declared, LumiFile, doubled, empty, lumis_differ, meet, spans

WHOLE, SHARES, EVENTS = Declared(True, False, False), Declared(True, True, False), Declared(False, False, False)
FILTERED = Declared(True, False, True)
LUMIS = st.frozensets(st.tuples(st.integers(1, 2), st.integers(1, 9)), max_size=4)


def files(first: int, lumis: list[frozenset[tuple[int, int]]]) -> list[LumiFile]:
    return [LumiFile(pk, f"file {pk}", each, pk, True) for pk, each in enumerate(lumis, first)]


@given(st.lists(LUMIS, max_size=3), st.lists(LUMIS, max_size=3), st.booleans())
def test_exactly_the_lumis_in_two_files_are_told_of_once(mine, others, mine_first) -> None:  # type: ignore[no-untyped-def]
    """Of both blocks together, however the files lie in them."""
    one, two = files(1 if mine_first else 100, mine), files(100 if mine_first else 1, others)
    found = [*doubled(one, two, WHOLE), *doubled(two, one, WHOLE)]
    held = Counter(lumi for lumis in (*mine, *others) for lumi in lumis)
    every = [*one, *two]
    younger = {a.lfn for a in every for b in every if b.pk < a.pk and a.lumis & b.lumis}
    assert {finding.name for finding in found} == younger
    assert bool(found) == any(number > 1 for number in held.values())
    assert not list(doubled(one, two, EVENTS)), "parts of a lumi may be anywhere"


@given(st.lists(LUMIS, min_size=1, max_size=4), st.lists(LUMIS, min_size=1, max_size=4))
def test_files_with_a_lumi_in_common_meet(mine, others) -> None:  # type: ignore[no-untyped-def]
    common = frozenset().union(*mine) & frozenset().union(*others)
    assert meet(spans(mine), spans(others)) or not common


def test_files_of_one_unit_may_share_a_lumi_where_a_later_task_divided_it() -> None:
    lumi = frozenset({(1, 1)})
    unit = [LumiFile(1, "a", lumi, 7, True), LumiFile(2, "b", lumi, 7, True)]
    assert not list(doubled(unit, (), SHARES))
    assert [finding.name for finding in doubled(unit, (), WHOLE)] == ["b"]
    assert [finding.name for finding in doubled(unit[1:], [LumiFile(1, "c", lumi, 8, True)], SHARES)] == ["b"]
    assert [finding.name for finding in doubled(unit[:1], [LumiFile(9, "d", lumi, 7, False)], SHARES)] == ["a"], "another's"


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
    assert Prognosis(MEANS[Finding(DriftKind.REPLICA_MISSING, "a", "", "").kind]) == Prognosis.MISSING_REPLICA
