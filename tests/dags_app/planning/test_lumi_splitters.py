"""LumiBased and EventAwareLumiBased, example by example: WMCore's rules as measured, and where WMS2 differs and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from dags_app.planning import lumis
from dags_app.planning.specs import (
    ClaimKind,
    ClaimSpec,
    ExcludedFile,
    InputFileSpec,
    JobSpec,
    LumiRanges,
    RefusedLumi,
    ResourceSpec,
    SplittingAlgo,
    WorkflowSpec,
)
from dags_app.planning.splitters import split
from dags_app.planning.work_units import claims_of
from tests.support.planning import ALL_SITES, CERN, FNAL, PURDUE, input_file, input_workflow
from wms2.errors import PlanningRefused

LUMI, AWARE = SplittingAlgo.LUMI_BASED, SplittingAlgo.EVENT_AWARE_LUMI_BASED
#: one line of a plan: numbers of the files, and the lumis of run 1, or of all runs
Line = tuple[list[int], Any]


def by_lumi(lumis_per_job: int = 8, **changes: Any) -> WorkflowSpec:
    return input_workflow(LUMI, lumis_per_job=lumis_per_job, **changes)


def by_events(events_per_job: int, **changes: Any) -> WorkflowSpec:
    """Lumis of 1 s an event, and the job time limit of 48 h unless told."""
    changes.setdefault("resources", ResourceSpec(1, 2000, 1.0, 1.0))
    return input_workflow(AWARE, events_per_job=events_per_job, **changes)


def file(number: int, first: int, last: int, *, run: int = 1, events: int = 100, **more: Any) -> InputFileSpec:
    return input_file(number, ranges={run: ((first, last),)}, events=events, **more)


def thirds(events: int) -> list[InputFileSpec]:
    """Three files of five lumis: 1-5, 6-10, 11-15."""
    return [file(n, 5 * n + 1, 5 * n + 5, events=events) for n in range(3)]


def jobs_of(workflow: WorkflowSpec, files: Iterable[InputFileSpec]) -> list[JobSpec]:
    return [item for item in split(workflow, files) if isinstance(item, JobSpec)]


def rest_of(workflow: WorkflowSpec, files: Iterable[InputFileSpec]) -> list[ExcludedFile | RefusedLumi]:
    return [item for item in split(workflow, files) if not isinstance(item, JobSpec)]


def lines(jobs: Sequence[JobSpec]) -> list[Line]:
    shown: list[Line] = []
    for job in jobs:
        assert job.by_lumi
        assert job.mask is not None
        numbers = [int(each.lfn[-9:-5]) for each in job.files]
        shown.append((numbers, list(job.mask[1]) if list(job.mask) == [1] else job.mask))
    return shown


def plan(workflow: WorkflowSpec, files: Iterable[InputFileSpec]) -> list[Line]:
    return lines(jobs_of(workflow, files))


TWO = [file(0, 1, 3), file(1, 2, 4)]
HALT = {"halt_job_on_file_boundaries": True}
#: What it shows -> the request, its files, and the jobs.
EXAMPLES: dict[str, tuple[WorkflowSpec, list[InputFileSpec], list[Line]]] = {
    "a job fills up across files, and a file is split over jobs": (
        by_lumi(4), thirds(100), [([0], [(1, 4)]), ([0, 1], [(5, 8)]), ([1, 2], [(9, 12)]), ([2], [(13, 15)])],
    ),
    "with halt every file starts a job": (
        by_lumi(4, **HALT), thirds(100),
        [([n], [span]) for n in range(3) for span in ((5 * n + 1, 5 * n + 4), (5 * n + 5, 5 * n + 5))],
    ),
    "a run always closes a job, also when a file goes back to an earlier run": (
        by_lumi(8), [input_file(0, ranges={1: ((1, 2),), 2: ((1, 2),)}), file(1, 3, 4)],
        [([0], [(1, 2)]), ([0], {2: ((1, 2),)}), ([1], [(3, 4)])],
    ),
    "lumis that the mask cuts, and gaps, neither count nor close a job": (
        by_lumi(5, wanted={"lumi_list": {1: ((2, 7), (9, 30))}}), [input_file(0, ranges={1: ((1, 3), (6, 9), (20, 20))})],
        [([0], [(2, 3), (6, 7), (9, 9)]), ([0], [(20, 20)])],
    ),
    "run lists are applied inside files": (
        by_lumi(wanted={"run_whitelist": (1, 2), "run_blacklist": (2,)}),
        [input_file(0, ranges={1: ((1, 2),), 2: ((1, 2),), 3: ((1, 2),)})], [([0], [(1, 2)])],
    ),
    # WMCore reads lumi 3 of file 1 twice
    "a lumi in two files counts once and goes to one job with both": (by_lumi(4), TWO, [([0, 1], [(1, 4)])]),
    "also where it begins a job": (by_lumi(2), TWO, [([0, 1], [(1, 2)]), ([0, 1], [(3, 4)])]),
    "also with halt": (by_lumi(4, **HALT), TWO, [([0, 1], [(1, 3)]), ([1], [(4, 4)])]),
    "files far apart in the order meet in the job of the first": (  # lumi 9 where file 4 stands, which begins before file 1
        by_lumi(4),
        [
            file(0, 1, 4), file(1, 5, 8), input_file(2, ranges={1: ((9, 10),), 2: ((1, 1),)}), file(3, 1, 1, run=2),
            input_file(4, ranges={1: ((2, 2), (9, 9))}),
        ],
        [([0, 4], [(1, 4)]), ([4, 1, 2], [(5, 7), (9, 9)]), ([1, 2], [(8, 8), (10, 10)]), ([2, 3], {2: ((1, 1),)})],
    ),
    "a share in a file that is left out leaves the lumi to the others": (
        by_lumi(), [file(0, 1, 3), file(1, 3, 5, locations=())], [([0], [(1, 3)])],
    ),
    "an open job takes what still fits of the next file, possibly nothing": (
        by_events(35), [file(0, 1, 2, events=20), file(1, 3, 5, events=30), file(2, 6, 6, events=60)],
        [([0, 1], [(1, 3)]), ([1], [(4, 5)]), ([2], [(6, 6)])],
    ),
    "an average of 1.5 is 2": (by_events(10), [file(0, 1, 10, events=15)], [([0], [(1, 5)]), ([0], [(6, 10)])]),
    "an average of 2.5 is 2": (by_events(10), [file(0, 1, 10, events=25)], [([0], [(1, 5)]), ([0], [(6, 10)])]),
    "an average of 3.5 is 4": (
        by_events(10), [file(0, 1, 10, events=35)], [([0], [(n, n + 1)]) for n in range(1, 10, 2)],
    ),
    "the average counts masked lumis too": (
        by_events(20, wanted={"lumi_list": {1: ((1, 5),)}}), [file(0, 1, 10, events=100)],
        [([0], [(1, 2)]), ([0], [(3, 4)]), ([0], [(5, 5)])],
    ),
    "a lumi larger than a job gets a job of its own": (
        by_events(50), [file(0, 1, 2, events=4), file(1, 3, 4, events=400), file(2, 5, 6, events=4)],
        [([0], [(1, 2)]), ([1], [(3, 3)]), ([1], [(4, 4)]), ([2], [(5, 6)])],
    ),
    "files without events cost nothing and join a full job": (
        by_events(20), [file(0, 1, 2, events=20), file(1, 3, 9, events=0), file(2, 10, 10, events=1)],
        [([0, 1], [(1, 9)]), ([2], [(10, 10)])],
    ),
    "events per job are rounded when the request names events per lumi": (
        by_events(40, events_per_lumi=30), [file(0, 1, 9, events=90)], [([0], [(n, n + 2)]) for n in (1, 4, 7)],
    ),
}  # fmt: skip


def test_examples() -> None:
    found = {name: plan(workflow, files) for name, (workflow, files, _) in EXAMPLES.items()}
    assert {name: lines for name, lines in found.items() if lines != EXAMPLES[name][2]} == {}
    (everywhere,) = jobs_of(by_lumi(), [file(0, 1, 2)])
    assert everywhere.sites == set(ALL_SITES), "all sites of the request may run what lies everywhere"


# --- LumiBased


def test_files_go_in_order_of_their_lowest_run_then_lumis_whatever_the_order_given() -> None:
    files = [file(0, 1, 4, run=3), file(1, 9, 12, run=2), file(2, 1, 4, run=2)]
    expected = [([2, 1], {2: ((1, 4), (9, 10))}), ([1], {2: ((11, 12),)}), ([0], {3: ((1, 4),)})]
    workflow = by_lumi(6)
    assert [(n, m) for n, m in plan(workflow, files)] == expected
    assert plan(workflow, reversed(files)) == expected


def test_a_location_group_ends_its_jobs() -> None:
    files = [file(0, 1, 2, locations=(FNAL,)), file(1, 3, 4, locations=(CERN,)), file(2, 5, 6, locations=(FNAL,))]
    workflow = by_lumi(8)
    assert plan(workflow, files) == [([0, 2], [(1, 2), (5, 6)]), ([1], [(3, 4)])]
    assert [job.sites for job in jobs_of(workflow, files)] == [{FNAL}, {CERN}]
    together = by_lumi(8, trust_sitelists=True, site_blacklist=(CERN,))
    assert plan(together, files) == [([0, 1, 2], [(1, 6)])]
    assert [job.sites for job in jobs_of(together, files)] == [{FNAL, PURDUE}]


def test_files_that_cannot_be_planned_are_named_with_the_reason_and_files_without_events_are_kept() -> None:
    files = [
        file(4, 1, 2, events=0),
        input_file(3, ranges={}),
        file(2, 3, 4, locations=()),
        file(1, 5, 6, locations=("T1_DE_KIT",)),
        file(0, 7, 8, run=2),
    ]
    workflow = by_lumi(wanted={"run_whitelist": (1,)})
    assert plan(workflow, files) == [([4], [(1, 2)])]
    assert [
        (str(each.lfn)[-9:-5], each.reason.split(",")[0]) for each in rest_of(workflow, files) if isinstance(each, ExcludedFile)
    ] == [
        ("0000", "no lumi of the file survives LumiList and the run lists"),
        ("0001", "no site: the replicas are at T1_DE_KIT"),
        ("0002", "no replica at any site"),
        ("0003", "the file has no lumis"),
    ]


def test_events_of_a_part_of_a_file_are_estimated_by_its_average_and_add_up() -> None:
    workflow = by_lumi(2)
    assert [job.events for job in jobs_of(workflow, [file(0, 1, 3, events=100)])] == [66, 34]
    assert sum(job.events for job in jobs_of(by_lumi(1), [file(0, 1, 7, events=100)])) == 100


def test_jobs_name_whole_files_with_their_parents_when_asked() -> None:
    files = [file(0, 1, 9, parents=("/store/parent.root",))]
    (job,) = jobs_of(by_lumi(9, wanted={"include_parents": True}), files)
    assert (job.files[0].events, job.files[0].first_event, job.files[0].parents) == (100, None, ("/store/parent.root",))
    assert jobs_of(by_lumi(9), files)[0].files[0].parents == ()


# --- lumis in several files: one job, all files


def test_a_lumi_of_files_in_two_groups_runs_where_both_are() -> None:
    files = [file(0, 1, 3, locations=(FNAL, CERN)), file(1, 3, 5, locations=(CERN, PURDUE)), file(2, 6, 6, locations=(CERN,))]
    workflow = by_lumi(8)
    assert plan(workflow, files) == [([0], [(1, 2)]), ([1], [(4, 5)]), ([0, 1, 2], [(3, 3), (6, 6)])]
    assert [job.sites for job in jobs_of(workflow, files)] == [{FNAL, CERN}, {CERN, PURDUE}, {CERN}]


def test_a_lumi_of_files_without_a_common_site_is_refused_alone_and_by_name() -> None:
    files = [file(0, 1, 3, locations=(FNAL,)), file(1, 3, 5, locations=(CERN,))]
    assert plan(by_lumi(), files) == [([0], [(1, 2)]), ([1], [(4, 5)])]
    (refused,) = rest_of(by_lumi(), files)
    assert isinstance(refused, RefusedLumi)
    assert (refused.run, refused.lumi, refused.lfns) == (1, 3, ("/store/data/0000.root", "/store/data/0001.root"))
    assert "no site of the request has all of" in refused.reason
    assert "TrustSitelists" in refused.reason
    assert plan(by_lumi(trust_sitelists=True), files) == [([0, 1], [(1, 5)])]


# --- EventAwareLumiBased


def test_700_events_a_job_over_three_files_of_five_lumis_of_100_events() -> None:
    workflow = by_events(700)
    assert plan(workflow, thirds(500)) == [([0, 1], [(1, 7)]), ([1, 2], [(8, 14)]), ([2], [(15, 15)])]
    assert [job.events for job in jobs_of(workflow, thirds(500))] == [700, 700, 100]


def test_with_halt_700_events_a_job_take_a_file_each() -> None:
    assert plan(by_events(700, halt_job_on_file_boundaries=True), thirds(500)) == [
        ([0], [(1, 5)]),
        ([1], [(6, 10)]),
        ([2], [(11, 15)]),
    ]
    assert [len(job.files) for job in jobs_of(by_events(200, halt_job_on_file_boundaries=True), thirds(500))] == [1] * 9


def test_thin_files_keep_the_limit_where_wmcore_makes_one_job_of_1200_lumis_and_400_events() -> None:
    files = [file(n, 12 * n + 1, 12 * n + 12, events=4) for n in range(100)]
    jobs = jobs_of(by_events(25), files)
    assert [job.mask for job in jobs] == [{1: ((75 * n + 1, 75 * n + 75),)} for n in range(16)]
    assert sum(job.events for job in jobs) == 400
    assert max(job.events for job in jobs) <= 25


def test_a_lumi_in_two_files_costs_the_events_of_both() -> None:
    files = [file(0, 1, 3, events=30), file(1, 3, 5, events=60)]
    assert plan(by_events(50), files) == [([0, 1], [(1, 3)]), ([1], [(4, 5)])]
    assert [job.events for job in jobs_of(by_events(50), files)] == [50, 40]
    assert plan(by_events(49), files) == [([0], [(1, 2)]), ([0, 1], [(3, 3)]), ([1], [(4, 5)])]


def test_a_lumi_that_is_known_to_run_too_long_is_refused_by_its_own_count_and_the_others_go_by_theirs() -> None:
    """One giant lumi among small ones: the average would hide it."""
    counts = [*((1, lumi, 10) for lumi in range(1, 10)), (1, 10, 29910)]
    giant = input_file(1, events=30_000, ranges={1: ((1, 10),)}, odd_lumis=lumis.odd(counts, 30_000))
    workflow = by_events(1000, resources=ResourceSpec(1, 2000, 10.0, 1.0))
    job, refused = sorted(split(workflow, [giant]), key=lambda each: isinstance(each, RefusedLumi))
    assert isinstance(job, JobSpec) and (job.events, job.mask) == (90, {1: ((1, 9),)})
    assert isinstance(refused, RefusedLumi) and (refused.run, refused.lumi, refused.lfns) == (1, 10, (giant.lfn,))
    assert refused.reason == "a lumi of 29910 events would run 83.1 h, longer than the job time limit of 48 h"
    twin = giant._replace(lfn="/store/data/0002.root", odd_lumis=())
    found = list(split(workflow, [giant, twin]))
    assert [each.lfns for each in found if isinstance(each, RefusedLumi)] == [(giant.lfn, twin.lfn)], "whichever file holds it"
    done = giant._replace(left_lumis={1: ((1, 3),)})
    assert not [each for each in split(workflow, [done]) if isinstance(each, RefusedLumi)], "it is not to be dealt"


def test_neighbouring_lumis_that_are_known_to_run_too_long_are_each_refused_and_none_counts_for_the_others() -> None:
    counts = [*((1, lumi, 10) for lumi in range(1, 10)), *((1, lumi, 60_000) for lumi in range(10, 13)), (2, 1, 90_000)]
    events = sum(each[2] for each in counts)
    giant = input_file(1, events=events, ranges={1: ((1, 12),), 2: ((1, 1),)}, odd_lumis=lumis.odd(counts, events))
    found = list(split(by_events(1000, resources=ResourceSpec(1, 2000, 10.0, 1.0)), [giant]))
    refused = [(each.run, each.lumi) for each in found if isinstance(each, RefusedLumi)]
    assert refused == [(1, 10), (1, 11), (1, 12), (2, 1)]
    assert [(each.events, each.mask) for each in found if isinstance(each, JobSpec)] == [(90, {1: ((1, 9),)})]


def test_an_oversized_lumi_is_refused_wherever_it_lies_and_nothing_else_with_it() -> None:
    """WMCore refuses it only as the one lumi of its file, and loses the files that join the failed job."""
    files = [file(0, 1, 2, events=20), file(1, 3, 4, events=2002), file(2, 5, 5, events=1001), file(3, 6, 7, events=20)]
    workflow = by_events(5000, job_time_limit_seconds=1000)
    assert plan(workflow, files) == [([0, 3], [(1, 2), (6, 7)])]
    refused = [each for each in rest_of(workflow, files) if isinstance(each, RefusedLumi)]
    assert [(each.run, each.lumi, [lfn[-6:-5] for lfn in each.lfns]) for each in refused] == [
        (1, 3, ["1"]),
        (1, 4, ["1"]),
        (1, 5, ["2"]),
    ]
    assert refused[0].reason == "a lumi of about 1001 events would run 0.3 h, longer than the job time limit of 0.277778 h"
    assert len(rest_of(by_events(5000, job_time_limit_seconds=1001), files)) == 0


def test_a_lumi_too_large_only_with_all_its_files_is_refused() -> None:
    files = [file(0, 1, 2, events=1200), file(1, 2, 3, events=1200)]
    workflow = by_events(600, job_time_limit_seconds=1000)
    assert plan(workflow, files) == [([0], [(1, 1)]), ([1], [(3, 3)])]
    assert [(each.lumi, each.lfns) for each in rest_of(workflow, files) if isinstance(each, RefusedLumi)] == [
        (2, ("/store/data/0000.root", "/store/data/0001.root"))
    ]


# --- both


@pytest.mark.parametrize("algorithm", [LUMI, AWARE])
def test_only_the_lumis_that_are_left_are_planned_with_all_their_files(algorithm: SplittingAlgo) -> None:
    left: LumiRanges = {1: ((3, 4), (7, 7))}
    files = [file(0, 1, 5, left_lumis=left), file(1, 4, 9, left_lumis=left), file(2, 10, 12, left_lumis={})]
    workflow = input_workflow(algorithm, lumis_per_job=2, events_per_job=60)
    assert lumis.union(*[job.mask or {} for job in jobs_of(workflow, files)]) == left
    assert {number for numbers, _ in plan(workflow, files) for number in numbers} == {0, 1}
    assert rest_of(workflow, files) == []


@pytest.mark.parametrize("algorithm", [LUMI, AWARE])
def test_a_file_given_twice_or_planned_by_events_in_part_is_an_error(algorithm: SplittingAlgo) -> None:
    workflow = input_workflow(algorithm, events_per_job=10)
    with pytest.raises(ValueError, match="given twice"):
        jobs_of(workflow, [file(0, 1, 2), file(0, 1, 2)])
    with pytest.raises(PlanningRefused, match="partly planned by events"):
        jobs_of(workflow, [file(0, 1, 2, left=((50, 99),))])
    assert jobs_of(workflow, [file(0, 1, 2, left=((0, 99),))])


def test_jobs_by_lumi_claim_the_lumis_of_their_masks_with_neighbours_joined() -> None:
    files = [file(0, 1, 20), file(1, 24, 30), file(2, 1, 5, run=2)]
    jobs = jobs_of(by_lumi(8), files)
    assert claims_of(jobs) == [
        ClaimSpec(ClaimKind.RUN_LUMIS, 1, 20, run=1),
        ClaimSpec(ClaimKind.RUN_LUMIS, 24, 30, run=1),
        ClaimSpec(ClaimKind.RUN_LUMIS, 1, 5, run=2),
    ]
    assert claims_of(jobs[1:2]) == [ClaimSpec(ClaimKind.RUN_LUMIS, 9, 16, run=1)]
