"""Lumi interval algebra against plain sets of (run, lumi)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.planning import lumis
from dags_app.planning.specs import LumiRanges
from tests.support.lumi_reference import contains

Pairs = set[tuple[int, int]]

pairs = st.sets(st.tuples(st.integers(1, 4), st.integers(0, 30)), max_size=60)
many_pairs = st.sets(st.tuples(st.integers(1, 2), st.integers(0, 400)), min_size=60, max_size=200)


def as_set(ranges: LumiRanges) -> Pairs:
    return {(run, lumi) for run, first, last in lumis.iterate(ranges) for lumi in range(first, last + 1)}


def assert_normal(ranges: LumiRanges) -> None:
    assert list(ranges) == sorted(ranges)
    for intervals in ranges.values():
        assert intervals
        assert all(first <= last for first, last in intervals)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(intervals))


@given(pairs)
def test_pairs_come_back_as_they_went_in(given_pairs: Pairs) -> None:
    ranges = lumis.from_pairs(given_pairs)
    assert_normal(ranges)
    assert as_set(ranges) == given_pairs
    assert lumis.count(ranges) == len(given_pairs)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.integers(0, 10)), max_size=20))
def test_overlapping_intervals_are_merged(given_intervals: list[tuple[int, int, int]]) -> None:
    intervals = [(run, first, first + more) for run, first, more in given_intervals]
    ranges = lumis.from_intervals(intervals)
    assert_normal(ranges)
    assert as_set(ranges) == {(run, lumi) for run, first, last in intervals for lumi in range(first, last + 1)}


def test_an_interval_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="5-4 ends before"):
        lumis.from_intervals([(1, 5, 4)])


@given(pairs, st.one_of(pairs, many_pairs))
def test_union_intersection_and_difference_are_those_of_sets(left: Pairs, right: Pairs) -> None:
    a, b = lumis.from_pairs(left), lumis.from_pairs(right)
    for ranges, expected in (
        (lumis.union(a, b), left | right),
        (lumis.intersect(a, b), left & right),
        (lumis.intersect(b, a), left & right),
        (lumis.subtract(a, b), left - right),
        (lumis.subtract(b, a), right - left),
    ):
        assert_normal(ranges)
        assert as_set(ranges) == expected


@given(pairs, st.integers(0, 5), st.integers(0, 31))
def test_contains_is_membership(given_pairs: Pairs, run: int, lumi: int) -> None:
    assert contains(lumis.from_pairs(given_pairs), run, lumi) == ((run, lumi) in given_pairs)


@given(pairs, st.sets(st.integers(1, 4)), st.sets(st.integers(1, 4)))
def test_run_lists_keep_whole_runs(given_pairs: Pairs, white: set[int], black: set[int]) -> None:
    ranges = lumis.from_pairs(given_pairs)
    assert as_set(lumis.restrict_runs(ranges, whitelist=white, blacklist=black)) == {
        pair for pair in given_pairs if pair[0] in white and pair[0] not in black
    }
    assert as_set(lumis.restrict_runs(ranges, whitelist=None, blacklist=black)) == {p for p in given_pairs if p[0] not in black}


def test_ranges_as_json_have_cms_form() -> None:
    assert lumis.to_json(lumis.from_pairs([(2, 1), (1, 3), (1, 4), (1, 9)])) == {"1": [[3, 4], [9, 9]], "2": [[1, 1]]}


def test_lumis_that_an_average_tells_nothing_of_are_those_without_events_and_with_many_more() -> None:
    counts = [(1, 1, 10), (1, 2, None), (1, 3, 0), (1, 5, 0), (2, 1, 12), (2, 2, 90), (2, 3, 90)]
    assert lumis.odd(counts, 202) == ((1, 2, 3, 0), (1, 5, 5, 0), (2, 2, 3, 90))


def test_where_no_lumi_of_a_file_was_counted_none_is_odd() -> None:
    assert lumis.odd([(1, 1, None), (1, 2, None)], 100) == () == lumis.odd([(1, 1, 0), (1, 2, None)], 0)
