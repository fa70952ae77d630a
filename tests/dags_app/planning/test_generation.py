"""Generation without input: the numbers of docs/splitting.md, from any offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.payload.contract.documents import Generate
from dags_app.planning.lumis import round_to_lumis
from dags_app.planning.specs import GenerationLeft, GenerationSpec, JobSpec, WorkflowSpec
from dags_app.planning.splitters.event_based import MAX_EVENT, MAX_LUMI, split_generation
from tests.support.planning import CERN, FNAL, PURDUE, generation_workflow
from wms2.errors import PlanningRefused


def spec(events: int, per_job: int, per_lumi: int, *, first_event: int = 1, first_lumi: int = 1) -> GenerationSpec:
    return GenerationSpec(1, first_event, first_lumi, events, per_job, per_lumi)


def jobs_of(workflow: WorkflowSpec, left: GenerationLeft | None = None) -> list[JobSpec]:
    assert workflow.generation is not None
    return list(split_generation(workflow, workflow.generation, left))


def ranges(generation: GenerationSpec, left: GenerationLeft | None = None) -> list[Generate]:
    jobs = jobs_of(generation_workflow(generation=generation), left)
    assert all(isinstance(job, JobSpec) and job.generate is not None and job.events == job.generate.events for job in jobs)
    return [job.generate for job in jobs if job.generate is not None]


@pytest.mark.parametrize(
    ("per_job", "per_lumi", "rounded"),
    [(1250, 300, 1200), (1180, 300, 1200), (150, 100, 200), (250, 100, 200), (350, 100, 400), (100, 300, 300), (400, 400, 400)],
)
def test_events_per_job_is_rounded_to_whole_lumis_half_to_even(per_job: int, per_lumi: int, rounded: int) -> None:
    assert round_to_lumis(per_job, per_lumi) == rounded


def test_the_request_of_the_measured_example_is_cut_as_wmcore_cuts_it() -> None:
    made = ranges(spec(10_000, 1080, 100, first_event=10_001, first_lumi=101))
    assert len(made) == 10  # 1080 becomes 1100
    assert (made[0].first_event, made[0].last_event, made[0].first_lumi, made[0].last_lumi) == (10_001, 11_100, 101, 111)
    assert (made[-1].first_event, made[-1].last_event, made[-1].first_lumi, made[-1].last_lumi) == (19_901, 20_000, 200, 200)


def test_a_job_is_never_larger_than_the_request_and_a_lumi_never_larger_than_a_job() -> None:
    (only,) = ranges(spec(50, 1000, 200))
    assert (only.events, only.first_lumi, only.last_lumi, only.events_per_lumi) == (50, 1, 1, 50)


def test_more_than_asked_per_job_still_generates_exactly_the_total() -> None:
    (only,) = ranges(spec(1180, 1180, 300))
    assert (only.events, only.last_lumi) == (1180, 4)


def test_event_numbers_do_not_start_again_after_32_bits() -> None:
    made = ranges(spec(300, 100, 100, first_event=2**32 - 100))
    assert [r.first_event for r in made] == [2**32 - 100, 2**32, 2**32 + 100]
    assert ranges(spec(10, 10, 10, first_event=2**40))[0].first_event == 2**40


def test_numbers_without_a_place_are_refused() -> None:
    with pytest.raises(PlanningRefused, match="event numbers would pass"):
        ranges(spec(10, 10, 10, first_event=MAX_EVENT))
    with pytest.raises(PlanningRefused, match="lumi numbers would pass"):
        ranges(spec(20, 10, 10, first_lumi=MAX_LUMI))
    assert ranges(spec(10, 10, 10, first_lumi=MAX_LUMI))[0].last_lumi == MAX_LUMI


def test_jobs_run_on_the_white_list_minus_the_black_list() -> None:
    workflow = generation_workflow(site_blacklist=(CERN,))
    assert {job.sites for job in jobs_of(workflow)} == {frozenset({FNAL, PURDUE})}
    with pytest.raises(PlanningRefused, match="no site"):
        jobs_of(generation_workflow(site_whitelist=(CERN,), site_blacklist=(CERN,)))


numbers = st.integers(1, 500)


@given(st.integers(1, 5000), numbers, numbers, st.integers(1, 2**40), st.integers(1, 10_000), st.data())
def test_rounds_that_continue_generate_each_number_once(
    events: int, per_job: int, per_lumi: int, first_event: int, first_lumi: int, data: st.DataObject
) -> None:
    generation = spec(events, per_job, per_lumi, first_event=first_event, first_lumi=first_lumi)
    whole = ranges(generation)
    taken = whole[: data.draw(st.integers(0, len(whole)))]
    left = GenerationLeft(first_event, first_lumi, events)
    if taken:
        left = GenerationLeft(taken[-1].last_event + 1, taken[-1].last_lumi + 1, events - sum(r.events for r in taken))

    assert taken + ranges(generation, left) == whole


@given(st.integers(1, 5000), numbers, numbers)
def test_events_and_lumis_follow_without_gap_and_fill_whole_lumis(events: int, per_job: int, per_lumi: int) -> None:
    made = ranges(spec(events, per_job, per_lumi, first_event=7, first_lumi=3))
    assert sum(r.events for r in made) == events
    event, lumi = 7, 3
    for r in made:
        assert (r.first_event, r.first_lumi) == (event, lumi)
        assert r.last_lumi - r.first_lumi + 1 == -(-r.events // r.events_per_lumi)
        event, lumi = r.last_event + 1, r.last_lumi + 1
    assert all(r.events % r.events_per_lumi == 0 for r in made[:-1])
    assert all(r.events == made[0].events for r in made[:-1])
