"""Grouping of unmerged files: everything exactly once, in lumi order, within the limits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.contract.documents import MergeLimits, Output
from dags_app.payload.contract.lumis import compact
from dags_app.payload.contract.reports import NodeReport, UnmergedFile
from dags_app.payload.merge.groups import Parentage, check_same, content_of, group_files
from dags_app.payload.run.shares import Held

OUTPUT = Output("Gen", "out", "GEN", "/P/E-S-v1/GEN", "/store/mc/x", "/store/unmerged/x", "edm")


def unmerged(number: int, size_bytes: int = 100, events: int = 10, lumi: int | None = None) -> UnmergedFile:
    lumis = {1: {lumi if lumi is not None else number: events}}
    return UnmergedFile(
        lfn=f"/store/unmerged/{number}.root",
        pfn=f"root://door//store/unmerged/{number}.root",
        rse="T1_US_FNAL_Disk",
        size_bytes=size_bytes,
        adler32="00000001",
        module="out",
        step="Gen",
        dataset=OUTPUT.dataset,
        events=events,
        lumis=lumis,
        parents=("/store/in.root",),
        node=f"proc_{number:06d}",
    )


files = st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 100), st.integers(1, 500)), min_size=1, max_size=30).map(
    lambda rows: [unmerged(n, size, events, lumi) for n, (size, events, lumi) in enumerate(rows)]
)
limits = st.tuples(st.integers(0, 2000), st.integers(1, 3000), st.integers(1, 300)).map(
    lambda t: MergeLimits(min(t[0], t[1]), t[1], t[2])
)


@given(files, limits)
def test_every_file_is_in_exactly_one_group_in_lumi_order(some: list[UnmergedFile], bound: MergeLimits) -> None:
    merged = [file for group in group_files(some, bound) for file in group]
    assert sorted(f.lfn for f in merged) == sorted(f.lfn for f in some)
    positions = [min(f.lumis[1]) for f in merged]
    assert positions == sorted(positions)


@given(files, limits)
def test_a_group_exceeds_the_limits_only_as_a_single_file(some: list[UnmergedFile], bound: MergeLimits) -> None:
    for group in group_files(some, bound):
        within = sum(f.size_bytes for f in group) <= bound.max_bytes and content_of(group).events <= bound.max_events
        assert within or len(group) == 1


@given(files, limits)
def test_the_order_of_arrival_does_not_matter(some: list[UnmergedFile], bound: MergeLimits) -> None:
    assert group_files(some, bound) == group_files(list(reversed(some)), bound)


def test_a_small_rest_takes_files_from_the_group_before() -> None:
    groups = group_files([unmerged(n) for n in range(1, 12)], MergeLimits(300, 1000, 10**6))
    assert [len(group) for group in groups] == [8, 3]


def test_a_small_rest_stays_when_the_group_before_would_become_small() -> None:
    groups = group_files([unmerged(n) for n in range(1, 6)], MergeLimits(400, 400, 10**6))
    assert [len(group) for group in groups] == [4, 1]


def test_files_without_events_are_merged_too_so_their_lumis_are_kept() -> None:
    (group,) = group_files([unmerged(1, events=0), unmerged(2, events=0)], MergeLimits(1, 1000, 10))
    assert content_of(group) == Held(0, {1: {1: 0, 2: 0}})


def test_parents_of_a_first_tasks_merged_file_are_the_input_files_of_its_jobs() -> None:
    (group,) = group_files([unmerged(1), unmerged(2)], MergeLimits(1, 1000, 1000))
    reports = [NodeReport(file.node, "T1_US_FNAL", {"files": []}, (), (file,)) for file in group]
    assert Parentage(reports, {file.lfn: "/store/merged.root" for file in group}).of(group) == ("/store/in.root",)


def test_a_lumi_in_two_files_is_added_up() -> None:
    (group,) = group_files([unmerged(1, lumi=5), unmerged(2, lumi=5, events=7)], MergeLimits(1, 1000, 100))
    assert content_of(group) == Held(17, {1: {5: 17}})


def test_a_node_without_the_output_is_refused() -> None:
    report = NodeReport("proc_000000", "T1_US_FNAL", {}, (), ())
    with pytest.raises(PayloadError, match="proc_000000 reports 0 files of Gen/out"):
        report.files_of("Gen", "out")


@pytest.mark.parametrize(
    ("merged", "message"),
    [
        (Held(9, {1: {1: 9}}), "holds 9 events, its inputs hold 10"),
        (Held(10, {1: {2: 10}}), "missing 1:1, extra 1:2"),
        (Held(10, {1: {1: 4}}), "holds 4 events of lumi 1:1, its inputs 10"),
    ],
)
def test_a_merged_file_that_differs_from_its_inputs_is_refused(merged: Held, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        check_same(Held(10, {1: {1: 10}}), merged, "/store/mc/x.root")


@given(st.sets(st.tuples(st.integers(1, 3), st.integers(1, 40))))
def test_compact_ranges_hold_exactly_the_lumis_they_came_from(lumis: set[tuple[int, int]]) -> None:
    ranges = compact(lumis)
    assert {(int(run), lumi) for run, pairs in ranges.items() for a, b in pairs for lumi in range(a, b + 1)} == lumis
    for pairs in ranges.values():
        assert all(a[1] + 1 < b[0] for a, b in pairwise(pairs)), "adjacent intervals are joined"
