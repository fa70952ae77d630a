"""Grouping of jobs into work units, and the claims that take them from the ledger."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.payload.contract.documents import Generate
from dags_app.planning.specs import ClaimKind, ClaimSpec, JobSpec, SplittingAlgo, WorkUnitSpec
from dags_app.planning.splitters import split
from dags_app.planning.work_units import claims_of, fill_dag, group_jobs
from tests.support.planning import CERN, FNAL, generation_workflow, input_file, input_workflow


def jobs_of_files(count: int, **splitting: int) -> list[JobSpec]:
    workflow = input_workflow(SplittingAlgo.EVENT_BASED, **splitting)
    return [job for job in split(workflow, (input_file(n) for n in range(count))) if isinstance(job, JobSpec)]


def units_of(jobs: list[JobSpec], size: int = 8) -> list[WorkUnitSpec]:
    return list(group_jobs(jobs, jobs_per_work_unit=size, bytes_per_event={"/a/b/RECO": 100.0}))


def test_units_take_a_fixed_number_of_jobs_that_may_run_at_the_same_sites() -> None:
    here, there = frozenset({FNAL}), frozenset({CERN})
    jobs = [JobSpec(n, here if n % 3 else there) for n in range(9)]
    units = units_of(jobs, 2)
    assert [[job.events for job in unit.jobs] for unit in units] == [[1, 2], [0, 3], [4, 5], [7, 8], [6]]
    assert [set(unit.sites) for unit in units] == [{FNAL}, {CERN}, {FNAL}, {FNAL}, {CERN}]
    assert [(unit.index, unit.name) for unit in units] == [(n, f"mg_00000{n}") for n in range(5)]
    assert units[1].events == 3
    assert units[1].estimated_output_bytes == {"/a/b/RECO": 300}


def test_neighbouring_generated_ranges_are_one_claim() -> None:
    jobs = [job for job in split(generation_workflow()) if isinstance(job, JobSpec)]
    assert claims_of(jobs[:4]) == [ClaimSpec(ClaimKind.GENERATED, 1, 400, run=1, first_lumi=1, last_lumi=8)]
    assert claims_of([jobs[0], jobs[2]]) == [
        ClaimSpec(ClaimKind.GENERATED, 1, 100, run=1, first_lumi=1, last_lumi=2),
        ClaimSpec(ClaimKind.GENERATED, 201, 300, run=1, first_lumi=5, last_lumi=6),
    ]
    other_lumis = [JobSpec(10, frozenset(), Generate(1, 1 + 10 * n, 10 + 10 * n, 1 + 2 * n, 1 + 2 * n, 10)) for n in range(2)]
    assert [(c.first, c.last, c.first_lumi, c.last_lumi) for c in claims_of(other_lumis)] == [(1, 10, 1, 1), (11, 20, 3, 3)]


def test_neighbouring_events_of_a_file_are_one_claim_and_files_stay_apart() -> None:
    jobs = jobs_of_files(2, events_per_job=40)
    assert claims_of(jobs[:4]) == [
        ClaimSpec(ClaimKind.FILE_EVENTS, 0, 99, "/store/data/0000.root"),
        ClaimSpec(ClaimKind.FILE_EVENTS, 0, 39, "/store/data/0001.root"),
    ]


def test_a_whole_file_claims_its_events_and_an_empty_one_claims_event_zero() -> None:
    files = [input_file(0), input_file(1, events=0)]
    expected = [
        ClaimSpec(ClaimKind.FILE_EVENTS, 0, 99, "/store/data/0000.root"),
        ClaimSpec(ClaimKind.FILE_EVENTS, 0, 0, "/store/data/0001.root"),
    ]
    for algorithm, splitting in (
        (SplittingAlgo.FILE_BASED, {"files_per_job": 2}),
        (SplittingAlgo.EVENT_BASED, {"events_per_job": 100}),
    ):
        jobs = [job for job in split(input_workflow(algorithm, **splitting), files) if isinstance(job, JobSpec)]
        assert claims_of(jobs) == expected


@given(st.integers(0, 12), st.integers(1, 60), st.integers(1, 9))
def test_the_claims_of_all_units_hold_each_event_once(files: int, events_per_job: int, size: int) -> None:
    units = units_of(jobs_of_files(files, events_per_job=events_per_job), size)
    claimed = Counter((c.lfn, event) for unit in units for c in unit.claims for event in range(c.first, c.last + 1))
    assert claimed == Counter((f"/store/data/{n:04d}.root", event) for n in range(files) for event in range(100))
    assert all(1 <= len(unit.jobs) <= size for unit in units)


@pytest.mark.parametrize(
    ("max_units", "max_nodes", "taken", "more"),
    [(10, 1000, 5, False), (5, 1000, 5, False), (4, 1000, 4, True), (10, 27, 3, True), (10, 26, 2, True)],
)
def test_a_dag_takes_the_first_units_that_fit_and_says_when_work_is_left(
    max_units: int, max_nodes: int, taken: int, more: bool
) -> None:
    units = units_of([JobSpec(1, frozenset({FNAL}))] * 30, 6)  # 5 units of 9 nodes
    fill = fill_dag(iter(units), max_units=max_units, max_nodes=max_nodes)
    assert (list(fill.units), fill.more) == (units[:taken], more)
