"""FileBased and EventBased over awkward datasets: everything exactly once, limits kept, order stable, nothing dropped unnamed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.planning import lumis
from dags_app.planning.specs import ExcludedFile, ExclusionKind, InputFileSpec, JobSpec, ResourceSpec, SplittingAlgo, WorkflowSpec
from dags_app.planning.splitters import split
from tests.support.lumi_reference import contains
from tests.support.planning import ALL_SITES, CERN, FNAL, PURDUE, input_file, input_workflow
from wms2.errors import PlanningRefused

FILE, EVENT = SplittingAlgo.FILE_BASED, SplittingAlgo.EVENT_BASED
KIT = "T1_DE_KIT"


def plan(workflow: WorkflowSpec, files: Iterable[InputFileSpec]) -> tuple[list[JobSpec], list[ExcludedFile]]:
    items = list(split(workflow, files))
    return [i for i in items if isinstance(i, JobSpec)], [i for i in items if isinstance(i, ExcludedFile)]


def names(job: JobSpec) -> list[int]:
    return [int(file.lfn[-9:-5]) for file in job.files]


# --- FileBased


def test_files_of_a_group_go_together_in_order_of_their_names() -> None:
    jobs, excluded = plan(input_workflow(FILE, files_per_job=2), [input_file(n) for n in range(5)])
    assert [names(job) for job in jobs] == [[0, 1], [2, 3], [4]]
    assert [job.events for job in jobs] == [200, 200, 100]
    assert {job.mask for job in jobs} == {None}
    assert not excluded


def test_groups_are_exact_location_sets_before_site_lists_are_looked_at() -> None:
    places = [(FNAL, KIT), (FNAL,), (FNAL, KIT), (KIT, PURDUE), (FNAL,)]
    files = [input_file(n, locations=where) for n, where in enumerate(places)]
    jobs, excluded = plan(input_workflow(FILE, files_per_job=10, site_whitelist=(FNAL, CERN)), files)
    assert [(names(job), set(job.sites)) for job in jobs] == [([0, 2], {FNAL}), ([1, 4], {FNAL})]
    assert [(each.lfn, each.reason) for each in excluded] == [
        ("/store/data/0003.root", f"no site: the replicas are at {KIT}, {PURDUE}, the site lists admit none of these")
    ]


def test_trusted_site_lists_make_one_group_that_runs_on_white_minus_black() -> None:
    files = [input_file(0, locations=(KIT,)), input_file(1, locations=(FNAL,)), input_file(2, locations=())]
    workflow = input_workflow(FILE, files_per_job=5, trust_sitelists=True, site_blacklist=(CERN,))
    jobs, excluded = plan(workflow, files)
    assert [(names(job), set(job.sites)) for job in jobs] == [([0, 1, 2], {FNAL, PURDUE})], "wherever the files are, or none is"
    assert excluded == []


def test_with_a_lumi_list_jobs_carry_the_wanted_lumis_and_files_without_any_are_named() -> None:
    files = [input_file(n, ranges=lumis.from_intervals([(1, n * 10, n * 10 + 9)])) for n in range(4)]
    wanted = lumis.from_intervals([(1, 5, 12), (1, 35, 99)])
    jobs, excluded = plan(input_workflow(FILE, files_per_job=2, wanted={"lumi_list": wanted}), files)
    assert [names(job) for job in jobs] == [[0, 1], [3]]
    assert [job.mask for job in jobs] == [{1: ((5, 12),)}, {1: ((35, 39),)}]
    assert [(each.lfn, "no lumi" in each.reason) for each in excluded] == [("/store/data/0002.root", True)]


def test_the_events_of_a_job_are_those_expected_in_the_lumis_it_reads() -> None:
    """Walls and disks are made of them: whole files' would be too large."""
    files = [input_file(n, events=100, ranges=lumis.from_intervals([(1, n * 10, n * 10 + 9)])) for n in range(3)]
    wanted = lumis.from_intervals([(1, 7, 9), (1, 10, 19), (1, 28, 28)])
    jobs, _ = plan(input_workflow(FILE, files_per_job=2, wanted={"lumi_list": wanted}), files)
    assert [(names(job), job.events) for job in jobs] == [([0, 1], 130), ([2], 10)]
    assert [file.events for job in jobs for file in job.files] == [100, 100, 100], "claims are of whole files"


def test_run_lists_are_applied_inside_a_file_that_holds_other_runs() -> None:
    two_runs = lumis.from_intervals([(1, 1, 5), (2, 1, 5)])
    files = [
        input_file(0, ranges=two_runs),
        input_file(1, ranges=lumis.from_intervals([(2, 6, 9)])),
        input_file(2, ranges={3: ((1, 1),)}),
    ]
    jobs, excluded = plan(input_workflow(FILE, wanted={"run_whitelist": (2, 3), "run_blacklist": (3,)}), files)
    assert [(names(job), job.mask) for job in jobs] == [([0], {2: ((1, 5),)}), ([1], None)]
    assert [each.lfn for each in excluded] == ["/store/data/0002.root"]


def test_files_without_events_or_lumis_are_ordinary_files_when_everything_is_wanted() -> None:
    jobs, excluded = plan(input_workflow(FILE, files_per_job=2), [input_file(0, events=0), input_file(1, ranges={})])
    assert [names(job) for job in jobs] == [[0, 1]]
    assert not excluded


def test_parents_travel_only_when_the_request_includes_them() -> None:
    files = [input_file(0, parents=("/store/parent.root",))]
    assert plan(input_workflow(FILE), files)[0][0].files[0].parents == ()
    for algorithm, splitting in ((FILE, {}), (EVENT, {"events_per_job": 10})):
        workflow = input_workflow(algorithm, wanted={"include_parents": True}, **splitting)
        assert plan(workflow, files)[0][0].files[0].parents == ("/store/parent.root",)


def test_a_file_listed_twice_or_out_of_order_is_an_error_and_never_read_twice() -> None:
    with pytest.raises(ValueError, match="ascending order"):
        plan(input_workflow(FILE), [input_file(1), input_file(1)])


def test_a_file_that_is_partly_planned_is_not_taken_whole() -> None:
    with pytest.raises(PlanningRefused, match="whole files"):
        plan(input_workflow(FILE), [input_file(1, left=((0, 49),))])
    assert len(plan(input_workflow(FILE), [input_file(1, left=((0, 99),))])[0]) == 1


# --- EventBased


def cuts(jobs: list[JobSpec]) -> list[tuple[int, int | None, int | None]]:
    assert all(len(job.files) == 1 for job in jobs)
    return [(names(job)[0], job.files[0].first_event, job.files[0].last_event) for job in jobs]


def test_ranges_count_from_zero_and_never_cross_a_file() -> None:
    jobs, _ = plan(input_workflow(EVENT, events_per_job=40), [input_file(0), input_file(1, events=40)])
    assert cuts(jobs) == [(0, 0, 39), (0, 40, 79), (0, 80, 99), (1, 0, 39)]
    assert [job.events for job in jobs] == [40, 40, 20, 40]


def test_a_file_without_events_gets_one_job_so_that_its_lumis_are_kept() -> None:
    jobs, _ = plan(input_workflow(EVENT, events_per_job=40), [input_file(0, events=0)])
    assert cuts(jobs) == [(0, 0, None)]


def test_a_file_with_lumis_without_events_is_read_whole_because_no_range_holds_them() -> None:
    counts = [(1, 1, 25), (1, 2, 25), (1, 3, 0), (1, 4, 25), (1, 5, 25), (1, 6, 0)]
    file = input_file(1, ranges={1: ((1, 6),)}, odd_lumis=lumis.odd(counts, 100))
    (job,) = plan(input_workflow(EVENT, events_per_job=50), [file])[0]
    assert (job.events, job.files[0].first_event, job.files[0].last_event, job.file_lumis) == (100, None, None, 6)
    (small,) = plan(input_workflow(EVENT, events_per_job=100, job_time_limit_seconds=1), [file])[0]
    assert small.files[0].first_event is None, "a worker node with several processes would cut a range"
    plain = input_file(1, ranges={1: ((1, 6),)}, odd_lumis=lumis.odd([(run, lumi, None) for run, lumi, _ in counts], 100))
    assert len(plan(input_workflow(EVENT, events_per_job=50), [plain])[0]) == 2, "where nobody counted nothing is known"
    partly = file._replace(left=((0, 39),))
    left, _ = plan(input_workflow(EVENT, events_per_job=50), [partly])
    assert [job.events for job in left] == [40], "what a former round has left"


def test_such_a_file_that_would_run_too_long_as_a_whole_is_named_with_its_lumis() -> None:
    file = input_file(1, odd_lumis=((1, 13, 14, 0),))
    resources = ResourceSpec(1, 2000, 1.0, 1.0)
    workflow = input_workflow(EVENT, events_per_job=50, job_time_limit_seconds=99, resources=resources)
    jobs, (excluded,) = plan(workflow, [file])
    assert (jobs, excluded.kind) == ([], ExclusionKind.UNUSABLE)
    assert excluded.reason.startswith("its lumis 1:13-14 have no events, so that ranges of events lose them, and whole it would")


def test_only_the_ranges_that_are_left_are_planned() -> None:
    jobs, _ = plan(input_workflow(EVENT, events_per_job=40), [input_file(0, left=((10, 19), (50, 99)))])
    assert cuts(jobs) == [(0, 10, 19), (0, 50, 89), (0, 90, 99)]
    with pytest.raises(ValueError, match="are not events of"):
        plan(input_workflow(EVENT, events_per_job=40), [input_file(0, left=((50, 100),))])


def test_events_per_job_is_rounded_when_the_request_names_events_per_lumi() -> None:
    jobs, _ = plan(input_workflow(EVENT, events_per_job=40, events_per_lumi=30), [input_file(0)])
    assert cuts(jobs) == [(0, 0, 29), (0, 30, 59), (0, 60, 89), (0, 90, 99)]


def test_a_lumi_list_is_refused_by_name() -> None:
    with pytest.raises(PlanningRefused, match="EventBased cannot apply a LumiList"):
        plan(input_workflow(EVENT, events_per_job=10, wanted={"lumi_list": {1: ((1, 5),)}}), [input_file(0)])


def test_run_lists_choose_among_whole_files_and_are_refused_inside_one() -> None:
    workflow = input_workflow(EVENT, events_per_job=100, wanted={"run_whitelist": (1,)})
    one, two, both = {1: ((1, 5),)}, {2: ((1, 5),)}, {1: ((6, 6),), 2: ((6, 6),)}
    jobs, excluded = plan(workflow, [input_file(0, ranges=one), input_file(1, ranges=two)])
    assert cuts(jobs) == [(0, 0, 99)]
    assert [each.lfn for each in excluded] == ["/store/data/0001.root"]
    with pytest.raises(PlanningRefused, match=r"0002\.root they want the runs \[1\] and not \[2\]"):
        plan(workflow, [input_file(2, ranges=both)])


# --- both, and the family


@pytest.mark.parametrize(("algorithm", "splitting"), [(FILE, {"files_per_job": 3}), (EVENT, {"events_per_job": 40})])
def test_jobs_come_while_files_are_still_being_read(algorithm: SplittingAlgo, splitting: dict[str, int]) -> None:
    endless = (input_file(n) for n in count())
    jobs = list(islice(split(input_workflow(algorithm, **splitting), endless), 1000))
    assert len(jobs) == 1000


ranges = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(0, 6)), max_size=4).map(
    lambda many: lumis.from_intervals((run, first, first + more) for run, first, more in many)
)
locations = st.lists(st.sampled_from([FNAL, CERN, PURDUE, KIT]), max_size=3, unique=True).map(tuple)


@st.composite
def datasets(draw: st.DrawFn) -> list[InputFileSpec]:
    size = draw(st.integers(0, 25))
    return [
        input_file(n, events=draw(st.one_of(st.just(0), st.integers(0, 60))), ranges=draw(ranges), locations=draw(locations))
        for n in range(size)
    ]


site_lists = st.fixed_dictionaries(
    {
        "site_whitelist": st.sampled_from([ALL_SITES, (FNAL, CERN), (FNAL,), ()]),
        "site_blacklist": st.sampled_from([(), (CERN,), (FNAL, CERN)]),
        "trust_sitelists": st.booleans(),
    }
)


def check_sites(workflow: WorkflowSpec, file: InputFileSpec, job: JobSpec) -> None:
    assert job.sites
    assert not job.sites & set(workflow.site_blacklist)
    if workflow.site_whitelist:
        assert job.sites <= set(workflow.site_whitelist)
    if not workflow.trust_sitelists:
        assert job.sites <= file.locations


@given(datasets(), st.integers(1, 7), site_lists, st.one_of(st.none(), ranges.filter(bool)), st.sets(st.integers(1, 3)))
def test_file_based_reads_each_wanted_lumi_of_each_file_once_and_no_other(
    files: list[InputFileSpec], files_per_job: int, lists: dict[str, Any], lumi_list: Any, black: set[int]
) -> None:
    wanted = {"run_blacklist": tuple(black)} | ({"lumi_list": lumi_list} if lumi_list else {})
    workflow = input_workflow(FILE, files_per_job=files_per_job, wanted=wanted, **lists)
    jobs, excluded = plan(workflow, files)

    by_lfn = {file.lfn: file for file in files}
    read = Counter(file.lfn for job in jobs for file in job.files)
    assert set(read.values()) <= {1}
    assert sorted([*read, *(each.lfn for each in excluded)]) == sorted(by_lfn)
    for job in jobs:
        assert 1 <= len(job.files) <= files_per_job
        assert [file.lfn for file in job.files] == sorted(file.lfn for file in job.files)
        expected = 0
        for file in job.files:
            check_sites(workflow, by_lfn[file.lfn], job)
            if not workflow.trust_sitelists:
                assert by_lfn[file.lfn].locations == by_lfn[job.files[0].lfn].locations
            has = by_lfn[file.lfn].lumis
            good = {
                (run, lumi)
                for run, first, last in lumis.iterate(has)
                for lumi in range(first, last + 1)
                if run not in black and (not lumi_list or contains(lumi_list, run, lumi))
            }
            given_lumis = has if job.mask is None else lumis.intersect(has, job.mask)
            assert given_lumis == lumis.from_pairs(good)
            events, of = by_lfn[file.lfn].events, lumis.count(has)
            expected += math.ceil(events * len(good) / of) if len(good) < of else events
        assert job.events == expected, "what the wanted lumis are expected to hold"
    assert plan(workflow, files) == (jobs, excluded)


@given(datasets(), st.integers(1, 50), site_lists)
def test_event_based_reads_each_event_once(files: list[InputFileSpec], events_per_job: int, lists: dict[str, Any]) -> None:
    workflow = input_workflow(EVENT, events_per_job=events_per_job, **lists)
    jobs, excluded = plan(workflow, files)

    by_lfn = {file.lfn: file for file in files}
    read: Counter[tuple[str, int]] = Counter()
    for job in jobs:
        (file,) = job.files
        check_sites(workflow, by_lfn[file.lfn], job)
        assert file.first_event is not None
        last = -1 if file.last_event is None else file.last_event
        assert job.events == last - file.first_event + 1 <= events_per_job
        assert job.events > 0 or by_lfn[file.lfn].events == 0
        read.update((file.lfn, event) for event in range(file.first_event, last + 1))
    out = {each.lfn for each in excluded}
    expected = Counter((file.lfn, event) for file in files if file.lfn not in out for event in range(file.events))
    assert read == expected
    assert {job.files[0].lfn for job in jobs} == by_lfn.keys() - out
    order = [(job.files[0].lfn, job.files[0].first_event) for job in jobs]
    assert order == sorted(order)
