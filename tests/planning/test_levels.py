"""Later tasks of a chain as levels of nodes: who reads whom, what they are likely to get, and what they ask of a slot."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.planning.dagfiles import group_dag, render
from dags_app.planning.levels import LevelPlan, edge_count, last_nodes, level_plans, levels_of, nodes_of
from dags_app.planning.sizing import BASE_DISK_KB, bytes_per_event, processing_request, resources_for
from dags_app.planning.specs import ClaimKind, GpuSpec, JobSpec, LevelNode, ResourceSpec, WorkUnitSpec
from dags_app.planning.submitfiles import processing_submit
from dags_app.planning.work_units import EXTRA_NODES, fill_dag, group_jobs
from tests.planning.factories import FNAL, dag_spec, generation_workflow, task_tree

HERE = frozenset({FNAL})


def unit(events: list[int], plans: tuple[LevelPlan, ...]) -> WorkUnitSpec:
    jobs = [JobSpec(each, HERE) for each in events]
    (made,) = group_jobs(jobs, jobs_per_work_unit=len(jobs), bytes_per_event={}, levels=plans)
    return made


def test_upstream_nodes_are_grouped_by_the_events_that_pass_their_filters() -> None:
    digi, nano, reco = unit([100] * 8, level_plans(task_tree())).levels
    assert [(node.events, node.reads) for node in digi.nodes] == [(90, (0, 1, 2)), (90, (3, 4, 5)), (60, (6, 7))]
    assert [(node.events, node.reads) for node in nano.nodes] == [(30, (index,)) for index in range(8)]
    assert [(node.events, node.reads) for node in reco.nodes] == [(90, (0,)), (90, (1,)), (60, (2,))], "at least one each"
    assert (digi.input_task, nano.input_task, reco.input_task) == (1, 1, 2)


def test_filter_efficiencies_multiply_along_the_branch_and_are_taken_as_written() -> None:
    tree = task_tree()
    steps = tuple(replace(step, filter_efficiency=0.1) if step.name == "Digi" else step for step in tree.steps)
    assert [plan.share for plan in level_plans(replace(tree, steps=steps))] == [
        Fraction(3, 10),
        Fraction(3, 10),
        Fraction(3, 100),
    ]


def test_a_request_of_one_task_has_no_levels() -> None:
    assert level_plans(generation_workflow()) == ()
    assert level_plans(task_tree(tasks=task_tree().tasks[:1])) == ()


def test_a_task_that_does_not_read_an_earlier_one_is_refused() -> None:
    tree = task_tree()
    for wrong in (replace(tree.tasks[1], input_task="Reco"), replace(tree.tasks[1], input_module="DIGIoutput")):
        with pytest.raises(ValueError, match="task Digi: its first step has to read an output of an earlier task"):
            level_plans(replace(tree, tasks=(tree.tasks[0], wrong, *tree.tasks[2:])))


@st.composite
def trees(draw: st.DrawFn) -> tuple[LevelPlan, ...]:
    shares = st.fractions(min_value=Fraction(1, 100), max_value=1, max_denominator=1000)
    return tuple(
        LevelPlan(task, draw(st.integers(1, task - 1)), draw(st.integers(0, 300)), draw(shares))
        for task in range(2, draw(st.integers(2, 6)) + 1)
    )


@given(st.lists(st.integers(0, 200), min_size=1, max_size=12), trees())
def test_each_level_reads_every_upstream_node_exactly_once_and_keeps_its_limit(
    events: list[int], plans: tuple[LevelPlan, ...]
) -> None:
    made = unit(events, plans)
    behind: dict[int, list[tuple[int, ...]]] = {1: [(index,) for index in range(len(events))]}
    for plan, level in zip(plans, made.levels, strict=True):
        read = [index for node in level.nodes for index in node.reads]
        assert read == list(range(len(behind[plan.input_task]))), "in order, none left out, none twice"
        behind[plan.task] = [tuple(job for index in node.reads for job in behind[plan.input_task][index]) for node in level.nodes]
        for node, jobs in zip(level.nodes, behind[plan.task], strict=True):
            expected = sum(events[job] for job in jobs) * plan.share
            assert node.events - 1 < expected <= node.events
            assert len(node.reads) == 1 or expected <= plan.events_per_job
        for before, after in zip(level.nodes, level.nodes[1:], strict=False):
            first = behind[plan.input_task][after.reads[0]]
            more = sum(events[job] for index in before.reads for job in behind[plan.input_task][index])
            more += sum(events[job] for job in first)
            assert not plan.events_per_job or more * plan.share > plan.events_per_job, "it could have taken the next file too"
    assert all(sorted(job for jobs in each for job in jobs) == list(range(len(events))) for each in behind.values())


@given(st.lists(st.integers(0, 200), min_size=1, max_size=12), trees())
def test_every_node_is_an_ancestor_of_merge_and_the_edges_are_counted(events: list[int], plans: tuple[LevelPlan, ...]) -> None:
    made = unit(events, plans)
    read = Counter(index for level in made.levels for node in level.nodes for index in node.reads)
    names = [name for level in nodes_of(made).values() for name in level]
    assert len(set(names)) == len(names) == made.processing_nodes
    assert edge_count(made) == len(events) + read.total() + len(last_nodes(made)) + 1


def test_the_edges_of_the_dag_are_those_that_are_counted() -> None:
    spec = dag_spec(task_tree())
    (planned, *_) = spec.units
    edges = 0
    for line in group_dag(spec, planned).splitlines():
        if line.startswith("PARENT "):
            parents, children = line.removeprefix("PARENT ").split(" CHILD ")
            edges += len(parents.split()) * len(children.split())
    assert edges == edge_count(planned)


def test_nodes_of_all_tasks_count_for_a_dags_limit_and_only_the_first_task_claims() -> None:
    spec = dag_spec(task_tree(), jobs_per_work_unit=4)
    nodes = spec.units[0].processing_nodes + EXTRA_NODES
    assert nodes == 4 + 2 + 4 + 2 + EXTRA_NODES
    assert len(fill_dag(spec.units, max_units=10, max_nodes=2 * nodes).units) == 2
    assert len(fill_dag(spec.units, max_units=10, max_nodes=2 * nodes - 1).units) == 1
    assert [(c.kind, c.first, c.last) for c in spec.units[0].claims] == [(ClaimKind.GENERATED, 1, 400)]


def test_a_node_asks_for_what_its_own_task_needs() -> None:
    tree = task_tree()
    slot = processing_request(tree, LevelNode(90, (0, 1, 2)), max_wall_seconds=172_800, task=4)
    assert (slot.cores, slot.memory_mb, slot.disk_kb, slot.wall_minutes) == (8, 16_000, BASE_DISK_KB + 90 * 512, 900)
    assert resources_for(tree, 3).memory_mb == 3000
    assert {resources_for(tree, task).merge_memory_mb for task in range(1, 5)} == {3000}, "the most per core of all tasks"


def test_a_datasets_size_follows_its_own_task_and_the_filters_before_it() -> None:
    sizes = {dataset.rpartition("/")[2]: size for dataset, size in bytes_per_event(task_tree()).items()}
    assert sizes == pytest.approx({"GEN-SIM": 1024 * 1024, "NANOAODSIM": 0.3 * 10 * 1024, "AODSIM": 0.3 * 512 * 1024})


def test_each_task_has_a_submit_file_with_its_resources_and_gpu() -> None:
    tree = task_tree()
    tasks = (*tree.tasks[:3], replace(tree.tasks[3], resources=ResourceSpec(2, 5000, 1.0, 1.0, GpuSpec(required=True))))
    spec = dag_spec(replace(tree, tasks=tasks))
    paths = [file.path for file in render(spec)]
    assert [path for path in paths if path.endswith(".sub")] == [
        "landing.sub",
        "proc.sub",
        "task2.sub",
        "task3.sub",
        "task4.sub",
        "merge.sub",
        "cleanup.sub",
    ]
    first, last = processing_submit(spec), processing_submit(spec, 4)
    assert "request_gpus" not in first and ".input.json" not in first
    assert "request_gpus = 1" in last and "$(JOB).input.json" in last
    assert "request_memory = $(MEMORY_$(JOB):5000)" in last and "request_cpus = 2" in last
    assert levels_of((), [JobSpec(1, HERE)]) == ()
