"""The splittings by lumi over awkward datasets: against a model of plain sets, and what must hold whatever the model says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dags_app.planning import lumis
from dags_app.planning.specs import ExcludedFile, InputFileSpec, JobSpec, RefusedLumi, ResourceSpec, SplittingAlgo, WorkflowSpec
from dags_app.planning.splitters import split
from dags_app.planning.work_units import claims_of, group_jobs
from tests.support.lumi_reference import Lumi, cost_in, pairs, reference_plan, sites_at, wanted_of
from tests.support.planning import ALL_SITES, CERN, FNAL, PURDUE, input_file, input_workflow

LUMI, AWARE = SplittingAlgo.LUMI_BASED, SplittingAlgo.EVENT_AWARE_LUMI_BASED

spans = st.tuples(st.integers(1, 3), st.integers(1, 14), st.sampled_from([0, 0, 1, 4]))
ranges = st.lists(spans, max_size=4).map(lambda many: lumis.from_intervals((r, a, a + more) for r, a, more in many))
locations = st.lists(st.sampled_from([FNAL, CERN, PURDUE, "T1_DE_KIT"]), max_size=3, unique=True).map(tuple)
events = st.one_of(st.just(0), st.integers(0, 8), st.integers(0, 200))


@st.composite
def datasets(draw: st.DrawFn) -> list[InputFileSpec]:
    """Up to nine files that share lumis, in any order, each at one of few sets of locations."""
    places = draw(st.lists(locations, min_size=1, max_size=3))
    return [
        input_file(n, events=draw(events), ranges=draw(ranges), locations=draw(st.sampled_from(places)))
        for n in draw(st.permutations(range(draw(st.integers(0, 9)))))
    ]


@st.composite
def workflows(draw: st.DrawFn) -> WorkflowSpec:
    wanted: dict[str, Any] = {"run_blacklist": tuple(draw(st.sets(st.integers(1, 3), max_size=1)))}
    if draw(st.booleans()):
        wanted["lumi_list"] = draw(ranges)
    if draw(st.booleans()):
        wanted["run_whitelist"] = (1, 2)
    return input_workflow(
        draw(st.sampled_from([LUMI, AWARE])),
        wanted=wanted,
        lumis_per_job=draw(st.integers(1, 9)),
        events_per_job=draw(st.one_of(st.integers(1, 12), st.integers(1, 300))),
        halt_job_on_file_boundaries=draw(st.booleans()),
        job_time_limit_seconds=draw(st.sampled_from([30, 10**6])),
        resources=ResourceSpec(1, 2000, 1.0, 1.0),
        site_whitelist=draw(st.sampled_from([ALL_SITES, (FNAL, CERN), (FNAL,), ()])),
        site_blacklist=draw(st.sampled_from([(), (CERN,)])),
        trust_sitelists=draw(st.booleans()),
    )


def planned(workflow: WorkflowSpec, files: list[InputFileSpec]) -> tuple[list[JobSpec], list[ExcludedFile], list[RefusedLumi]]:
    items = list(split(workflow, files))
    return (
        [item for item in items if isinstance(item, JobSpec)],
        [item for item in items if isinstance(item, ExcludedFile)],
        [item for item in items if isinstance(item, RefusedLumi)],
    )


def masks(jobs: list[JobSpec]) -> Counter[Lumi]:
    return Counter(lumi for job in jobs for lumi in pairs(job.mask or {}))


@given(workflows(), datasets())
def test_the_plan_is_that_of_the_model(workflow: WorkflowSpec, files: list[InputFileSpec]) -> None:
    jobs, excluded, refused = planned(workflow, files)
    model = reference_plan(workflow, files)
    assert [({file.lfn for file in job.files}, pairs(job.mask or {}), job.sites) for job in jobs] == [
        (job.lfns, job.lumis, job.sites) for job in model.jobs
    ]
    assert {each.lfn for each in excluded} == model.excluded
    assert {(each.run, each.lumi): set(each.lfns) for each in refused} == model.refused


@given(workflows(), datasets(), st.randoms())
def test_the_plan_does_not_depend_on_the_order_of_the_files(
    workflow: WorkflowSpec, files: list[InputFileSpec], random: Any
) -> None:
    shuffled = list(files)
    random.shuffle(shuffled)
    assert planned(workflow, shuffled) == planned(workflow, files)


@given(workflows(), datasets())
def test_every_share_of_a_wanted_lumi_is_read_once_or_named(workflow: WorkflowSpec, files: list[InputFileSpec]) -> None:
    jobs, excluded, refused = planned(workflow, files)
    by_lfn = {file.lfn: file for file in files}
    read = Counter(
        (file.lfn, lumi) for job in jobs for file in job.files for lumi in pairs(job.mask or {}) & pairs(by_lfn[file.lfn].lumis)
    )
    out = Counter((lfn, (each.run, each.lumi)) for each in refused for lfn in each.lfns)
    left_out = {each.lfn for each in excluded}
    assert read + out == Counter(
        (file.lfn, lumi) for file in files if file.lfn not in left_out for lumi in wanted_of(workflow, file)
    )
    for lfn in left_out:
        file = by_lfn[lfn]
        assert not wanted_of(workflow, file) or not file.locations or not sites_at(workflow, file.locations)
    assert all(reason for reason in [each.reason for each in [*excluded, *refused]])
    assert set(masks(jobs).values()) <= {1}


@given(workflows(), datasets())
def test_limits_runs_and_places_are_kept(workflow: WorkflowSpec, files: list[InputFileSpec]) -> None:
    jobs, _, _ = planned(workflow, files)
    by_lfn = {file.lfn: file for file in files}
    splitting = workflow.splitting
    for job in jobs:
        assert job.mask is not None
        (run,) = job.mask
        mine = [by_lfn[file.lfn] for file in job.files]
        count = len(pairs(job.mask))
        assert count == lumis.count(job.mask) >= 1
        assert all(pairs(file.lumis) & pairs(job.mask) for file in mine)
        assert job.sites
        for file in mine:
            assert job.sites <= sites_at(workflow, file.locations)
        if splitting.algorithm is LUMI:
            assert count <= splitting.lumis_per_job
        else:
            costs = [
                sum(cost_in(workflow, file) for file in mine if lumi in pairs(file.lumis)) for lumi in sorted(pairs(job.mask))
            ]
            assert sum(costs) <= splitting.events_per_job or len([cost for cost in costs if cost]) == 1
        if splitting.halt_job_on_file_boundaries:
            assert any(pairs(job.mask) <= pairs(file.lumis) for file in mine)
        assert run not in (workflow.input.run_blacklist if workflow.input else ())


@given(workflows(), datasets())
def test_the_events_of_a_file_are_shared_out_over_its_jobs(workflow: WorkflowSpec, files: list[InputFileSpec]) -> None:
    jobs, excluded, refused = planned(workflow, files)
    assume(not refused)
    left_out = {each.lfn for each in excluded}
    expected = sum(
        file.events * len(wanted_of(workflow, file)) // len(pairs(file.lumis)) for file in files if file.lfn not in left_out
    )
    assert sum(job.events for job in jobs) == expected


@given(workflows(), datasets(), st.data())
def test_planning_after_a_failed_round_covers_exactly_what_is_left(
    workflow: WorkflowSpec, files: list[InputFileSpec], data: st.DataObject
) -> None:
    jobs, excluded, refused = planned(workflow, files)
    fate = data.draw(st.lists(st.booleans(), min_size=len(jobs), max_size=len(jobs)))
    done = [job for job, well in zip(jobs, fate, strict=True) if well]
    claimed = lumis.union(*[job.mask or {} for job in done])
    again = [file._replace(left_lumis=lumis.subtract(file.lumis, claimed)) for file in files]
    second, second_excluded, second_refused = planned(workflow, again)
    assert masks(done) + masks(second) == masks(jobs)
    assert second_excluded == excluded
    assert {(each.run, each.lumi) for each in second_refused} == {(each.run, each.lumi) for each in refused}


@given(workflows(), datasets(), st.integers(1, 4))
def test_the_claims_of_the_units_are_the_lumis_of_their_jobs_once(
    workflow: WorkflowSpec, files: list[InputFileSpec], size: int
) -> None:
    jobs, _, _ = planned(workflow, files)
    units = list(group_jobs(jobs, jobs_per_work_unit=size, bytes_per_event={}))
    claimed = Counter((claim.run, lumi) for unit in units for claim in unit.claims for lumi in range(claim.first, claim.last + 1))
    assert claimed == masks(jobs)
    for unit in units:
        held = [(claim.run, claim.first, claim.last) for claim in claims_of(unit.jobs)]
        assert held == list(lumis.iterate(lumis.from_intervals(held)))


@pytest.mark.parametrize("algorithm", [LUMI, AWARE])
def test_a_mask_of_twenty_million_lumis_is_planned_as_intervals(algorithm: SplittingAlgo) -> None:
    """Would not end, nor fit, if lumis were counted out: 20 files of a million lumis of which every other thousand is wanted."""
    wanted = {1: tuple((first, first + 999) for first in range(1, 20_000_000, 2000))}
    files = [
        input_file(n, events=1_000_000, ranges={1: ((n * 1_000_000 + 1, (n + 1) * 1_000_000),)}, locations=(FNAL,))
        for n in range(20)
    ]
    workflow = input_workflow(algorithm, lumis_per_job=10_000, events_per_job=10_000, wanted={"lumi_list": wanted})
    jobs, _, _ = planned(workflow, files)
    assert [lumis.count(job.mask or {}) for job in jobs] == [10_000] * 1000
    assert lumis.union(*[job.mask or {} for job in jobs]) == wanted
