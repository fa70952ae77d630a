"""The laws that masks obey as sets of lumis; ``test_lumis.py`` compares the functions with plain sets."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dags_app.planning import lumis
from dags_app.planning.lumis import intersect, subtract, union
from dags_app.planning.specs import LumiRanges
from tests.support.lumi_reference import contains

spans = st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(0, 12))
#: lumi numbers up to the largest there is: an algebra that counted lumis out would not come back
far_spans = st.tuples(st.integers(1, 3), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
masks = st.lists(st.one_of(spans, far_spans), max_size=12).map(
    lambda many: lumis.from_intervals((run, first, min(first + more, 2**32 - 1)) for run, first, more in many)
)


@given(masks, masks)
def test_union_and_intersection_commute(a: LumiRanges, b: LumiRanges) -> None:
    assert union(a, b) == union(b, a)
    assert intersect(a, b) == intersect(b, a)


@given(masks, masks, masks)
def test_union_and_intersection_associate_and_distribute(a: LumiRanges, b: LumiRanges, c: LumiRanges) -> None:
    assert union(a, union(b, c)) == union(union(a, b), c) == union(c, b, a)
    assert intersect(a, intersect(b, c)) == intersect(intersect(a, b), c)
    assert intersect(a, union(b, c)) == union(intersect(a, b), intersect(a, c))
    assert union(a, intersect(b, c)) == intersect(union(a, b), union(a, c))


@given(masks, masks)
def test_absorption_and_identities(a: LumiRanges, b: LumiRanges) -> None:
    assert union(a, intersect(a, b)) == a == intersect(a, union(a, b))
    assert union(a, a) == intersect(a, a) == union(a) == union(a, {}) == subtract(a, {}) == a
    assert intersect(a, {}) == subtract(a, a) == subtract({}, a) == union() == {}


@given(masks, masks, masks)
def test_difference_turns_union_into_intersection_and_back(a: LumiRanges, b: LumiRanges, c: LumiRanges) -> None:
    assert subtract(a, union(b, c)) == intersect(subtract(a, b), subtract(a, c)) == subtract(subtract(a, b), c)
    assert subtract(a, intersect(b, c)) == union(subtract(a, b), subtract(a, c))


@given(masks, masks)
def test_a_mask_parts_into_what_another_holds_and_what_it_does_not(a: LumiRanges, b: LumiRanges) -> None:
    inside, outside = intersect(a, b), subtract(a, b)
    assert intersect(inside, outside) == {}
    assert union(inside, outside) == a
    assert lumis.count(a) == lumis.count(inside) + lumis.count(outside)
    assert lumis.count(union(a, b)) == lumis.count(a) + lumis.count(b) - lumis.count(inside)


@given(masks, masks, st.sets(st.integers(1, 3)), st.sets(st.integers(1, 3)))
def test_run_lists_are_intersections_with_whole_runs(a: LumiRanges, b: LumiRanges, white: set[int], black: set[int]) -> None:
    whole_runs = dict.fromkeys(sorted(white - black), ((0, 2**32 - 1),))
    cut = lumis.restrict_runs(a, whitelist=white, blacklist=black)
    assert cut == intersect(a, whole_runs)
    assert lumis.restrict_runs(union(a, b), whitelist=white, blacklist=black) == union(cut, intersect(b, whole_runs))


@given(masks)
def test_equal_sets_have_one_form(a: LumiRanges) -> None:
    pieces = [(run, first, last) for run, first, last in lumis.iterate(a)]
    cut = [(run, first, (first + last) // 2) for run, first, last in pieces]
    assert list(lumis.iterate(lumis.from_intervals([*reversed(pieces), *cut]))) == pieces


@given(masks)
def test_json_gives_the_mask_back(a: LumiRanges) -> None:
    text = json.dumps(lumis.to_json(a))
    assert lumis.from_intervals((int(run), first, last) for run, many in json.loads(text).items() for first, last in many) == a


@given(masks, st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_membership_follows_the_operations(a: LumiRanges, run: int, lumi: int) -> None:
    one = {run: ((lumi, lumi),)}
    assert contains(a, run, lumi) == (intersect(one, a) == one) == (subtract(one, a) == {})
    assert contains(union(a, one), run, lumi)
    assert not contains(subtract(a, one), run, lumi)
