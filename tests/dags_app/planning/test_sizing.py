"""What jobs ask of a slot."""

from __future__ import annotations

import pytest

from dags_app.planning.cms_ads import NodeRole
from dags_app.planning.levels import level_plans
from dags_app.planning.sizing import (
    BASE_DISK_KB,
    bytes_per_event,
    level_walls,
    merge_request,
    processing_request,
    too_long,
)
from dags_app.planning.specs import JobSpec, ResourceSpec, WorkflowSpec
from dags_app.planning.submitfiles import node_submit
from dags_app.planning.work_units import group_jobs
from tests.support.planning import dag_spec, generation_workflow, task_tree


def test_merge_runs_on_one_core_with_the_memory_of_one() -> None:
    merge = node_submit(dag_spec(generation_workflow(resources=ResourceSpec(8, 24_000, 1.0, 1.0))), NodeRole.MERGE)
    assert "request_cpus = 1\n" in merge and "$(MEMORY_$(JOB):3000)" in merge


def test_a_jobs_wall_time_and_disk_follow_its_events_within_the_cap() -> None:
    resources = ResourceSpec(4, 8000, 40.0, 1.5)
    assert processing_request(resources, 1001) == (BASE_DISK_KB + 1502, 668)
    assert processing_request(resources, 1).wall_minutes == 60
    margins = [processing_request(resources, events).wall_minutes for events in (45, 46, 89)]
    assert margins == [60, 61, 61], "what is above the shortest time asks for twice as much"
    assert processing_request(resources, 10**6).wall_minutes == 48 * 60


@pytest.mark.parametrize(("max_merge_mb", "room_mb"), [(500, 1000), (10_000, 6400)])
def test_a_merge_has_room_for_one_merged_file_and_its_inputs_and_time_for_all(max_merge_mb: int, room_mb: int) -> None:
    (unit,) = [unit for unit in dag_spec().units if unit.index == 0]
    assert sum(unit.estimated_output_bytes.values()) == 800 * 1024**2
    slot = merge_request(unit, max_merge_bytes=max_merge_mb * 1024**2)
    assert (slot.disk_kb, slot.wall_minutes) == (BASE_DISK_KB + room_mb * 1024, 63)


def test_the_first_round_shares_size_per_event_among_kept_outputs_and_measured_sizes_replace_that() -> None:
    workflow = generation_workflow()
    assert set(bytes_per_event(workflow).values()) == {512 * 1024.0}
    first, second = sorted(bytes_per_event(workflow))
    assert bytes_per_event(workflow, measured={first: 7.0}) == {first: 7.0, second: 512 * 1024.0}


def reported(workflow: WorkflowSpec, jobs: list[JobSpec]) -> str | None:
    units = group_jobs(jobs, jobs_per_work_unit=8, bytes_per_event={}, levels=level_plans(workflow))
    return too_long(level_walls(workflow, units))


def test_each_task_is_judged_with_its_own_time_per_event_and_named() -> None:
    warning = reported(task_tree(), [JobSpec(2160, frozenset(), file_lumis=1)])  # 24 h; Reco: 648 events of one lumi, 600 s each
    assert warning is not None
    assert warning.startswith("1 of the jobs of task 4 (Reco) are expected to take longer than 48 h")
    assert "(the longest 108.0 h); a lumi is never cut" in warning
    assert reported(task_tree(), [JobSpec(2160, frozenset(), file_lumis=72)]) is None, "nine events to a lumi: 30 a job"


def test_jobs_longer_than_the_cap_are_warned_about() -> None:
    workflow = generation_workflow()  # 40 s an event
    assert reported(workflow, [JobSpec(4320, frozenset())]) is None
    warning = reported(workflow, [JobSpec(1, frozenset()), JobSpec(8640, frozenset())])
    assert warning is not None
    assert warning.startswith("1 of the jobs are expected to take longer than 48 h")
