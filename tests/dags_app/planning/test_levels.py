"""Later tasks of a chain as levels of nodes: who reads whom, what they are likely to get, and what they ask of a slot."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.payload.contract.documents import Share
from dags_app.payload.contract.step_profile import StepProfile
from dags_app.payload.run.shares import Held, parts_of
from dags_app.planning.cms_ads import NodeRole
from dags_app.planning.dagfiles import group_dags, render
from dags_app.planning.levels import LevelPlan, edge_count, last_nodes, level_plans, levels_of, nodes_of
from dags_app.planning.sizing import (
    BASE_DISK_KB,
    bytes_per_event,
    level_input_kb,
    processing_request,
    sizes_of,
    task_resources,
)
from dags_app.planning.specs import ClaimKind, GpuSpec, JobSpec, ResourceSpec, SplittingAlgo, WorkUnitSpec
from dags_app.planning.submitfiles import node_submit
from dags_app.planning.work_units import EXTRA_NODES, fill_dag, group_jobs
from tests.support.planning import FNAL, dag_spec, generation_workflow, task_tree
from wms2.errors import PlanningRefused

HERE = frozenset({FNAL})


def unit(events: list[int], plans: tuple[LevelPlan, ...], lumis: int = 2) -> WorkUnitSpec:
    jobs = [JobSpec(each, HERE, file_lumis=lumis) for each in events]
    (made,) = group_jobs(jobs, jobs_per_work_unit=len(jobs), bytes_per_event={}, levels=plans)
    return made


def test_upstream_nodes_are_grouped_by_the_events_that_pass_their_filters() -> None:
    digi, nano, reco = unit([100] * 8, level_plans(task_tree())).levels
    assert [(node.events, node.reads) for node in digi.nodes] == [(90, (0, 1, 2)), (90, (3, 4, 5)), (60, (6, 7))]
    assert [(node.events, node.reads) for node in nano.nodes] == [(30, (index,)) for index in range(8)]
    assert [(node.events, node.reads) for node in reco.nodes] == [(30, (0,))] * 3 + [(30, (1,))] * 3 + [(30, (2,))] * 2
    assert [node.share for node in reco.nodes][:3] == [Share(part, 3, by_lumi=True) for part in range(3)]
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


ALGORITHMS = st.sampled_from(SplittingAlgo)


@st.composite
def trees(draw: st.DrawFn) -> tuple[LevelPlan, ...]:
    shares = st.fractions(min_value=Fraction(1, 100), max_value=1, max_denominator=1000)
    return tuple(
        LevelPlan(task, draw(st.integers(1, task - 1)), draw(ALGORITHMS), draw(st.integers(1, 300)), draw(shares))
        for task in range(2, draw(st.integers(2, 5)) + 1)
    )


UNITS = st.lists(st.integers(0, 200), min_size=1, max_size=6)


@given(UNITS, st.integers(1, 20), trees())
def test_each_level_reads_every_upstream_node_exactly_once_and_keeps_its_limit(
    events: list[int], lumis: int, plans: tuple[LevelPlan, ...]
) -> None:
    made = unit(events, plans, lumis)
    count = {1: len(events)}
    for plan, level in zip(plans, made.levels, strict=True):
        whole = Counter(index for node in level.nodes if node.share is None for index in node.reads)
        parts: dict[int, list[Share]] = {}
        for node in level.nodes:
            if node.share is not None:
                (index,) = node.reads
                parts.setdefault(index, []).append(node.share)
        assert whole.keys() | parts.keys() == set(range(count[plan.input_task])), "none left out"
        assert not whole.keys() & parts.keys() and set(whole.values()) <= {1}, "none twice"
        for shares in parts.values():
            by_lumi = plan.algorithm.by_lumi
            assert shares == [Share(part, len(shares), by_lumi) for part in range(len(shares))] and len(shares) > 1
        assert [node.reads for node in level.nodes] == sorted(node.reads for node in level.nodes), "in order"
        count[plan.task] = len(level.nodes)
        if plan.algorithm is SplittingAlgo.EVENT_BASED:
            assert all(node.events <= plan.per_job for node in level.nodes), "cut as fine as asked"
        if plan.algorithm is SplittingAlgo.FILE_BASED:
            assert all(len(node.reads) <= plan.per_job and node.share is None for node in level.nodes)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.none() | st.integers(0, 60)), max_size=25, unique_by=lambda pair: pair[0]),
    st.integers(1, 12),
    st.booleans(),
    st.integers(0, 500),
)
def test_every_event_and_lumi_that_is_really_there_is_read_by_exactly_one_of_the_nodes(
    held: list[tuple[int, int | None]], parts: int, by_lumi: bool, unknown: int
) -> None:
    """Whatever the level before was expected to make: filters leave fewer events, and none in some lumis."""
    events = sum(number or 0 for _, number in held) + (unknown if any(number is None for _, number in held) else 0)
    dealt = [parts_of([Held(events, {1: dict(held)})], part, parts, by_lumi=by_lumi)[0] for part in range(parts)]
    if None in dealt:  # nothing to divide: the first takes the file whole
        assert dealt[0] is None and (not by_lumi or not held)
        assert all(part is not None and part.is_empty for part in dealt[1:])
        assert by_lumi or events == 0
        return
    some = [part for part in dealt if part is not None and not part.is_empty]
    if by_lumi or 0 in dict(held).values():
        assert sorted(lumi for part in some for lumi in part.lumis or ()) == sorted((1, lumi) for lumi, _ in held)
        assert None in [part.events for part in some] or sum(part.events or 0 for part in some) == events
    else:
        read = [(part.first_event or 0) + number for part in some for number in range(part.events or 0)]
        assert read == list(range(events))


@given(st.integers(1, 200), st.integers(1, 50))
def test_equal_lumis_are_dealt_out_as_the_planner_counted_on(lumis: int, per_job: int) -> None:
    plan = LevelPlan(2, 1, SplittingAlgo.LUMI_BASED, per_job, Fraction(1))
    (level,) = unit([100 * lumis], (plan,), lumis).levels
    parts = len(level.nodes)
    file = Held(100 * lumis, {1: dict.fromkeys(range(lumis), 100)})
    dealt = [parts_of([file], part, parts, by_lumi=True)[0] for part in range(parts)]
    assert parts == -(-lumis // per_job)
    if parts > 1:
        assert [node.events for node in level.nodes] == [part.events for part in dealt if part is not None]
        assert all(0 < len(part.lumis or ()) <= per_job for part in dealt if part is not None)


@pytest.mark.parametrize(
    ("algorithm", "per_job", "lumis", "expected"),
    [
        (SplittingAlgo.EVENT_BASED, 826, 1, [667, 667, 667]),
        (SplittingAlgo.EVENT_AWARE_LUMI_BASED, 826, 20, [700, 600, 700]),
        (SplittingAlgo.EVENT_AWARE_LUMI_BASED, 826, 1, [2000]),  # a lumi is never cut
        (SplittingAlgo.LUMI_BASED, 8, 20, [700, 600, 700]),
        (SplittingAlgo.FILE_BASED, 1, 20, [2000]),
    ],
)
def test_a_task_is_cut_by_its_own_algorithm_and_number(
    algorithm: SplittingAlgo, per_job: int, lumis: int, expected: list[int]
) -> None:
    (level,) = unit([2000], (LevelPlan(2, 1, algorithm, per_job, Fraction(1)),), lumis).levels
    assert [node.events for node in level.nodes] == expected


def test_a_task_that_would_fill_a_dag_out_of_one_job_is_refused_by_name() -> None:
    plan = LevelPlan(2, 1, SplittingAlgo.EVENT_BASED, 1, Fraction(1))
    with pytest.raises(PlanningRefused, match="task 2: EventBased with 1 to a job makes 60000 jobs out of one job of task 1"):
        unit([60_000], (plan,))
    (fits,) = [unit([40], (plan,))]
    with pytest.raises(PlanningRefused, match="a work unit has 44 nodes, more than the 43 of a DAG"):
        fill_dag([fits], max_units=1, max_nodes=43)


@given(UNITS, trees())
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
    for line in next(group_dags(spec)).splitlines():
        if line.startswith("PARENT "):
            parents, children = line.removeprefix("PARENT ").split(" CHILD ")
            edges += len(parents.split()) * len(children.split())
    assert edges == edge_count(planned)


def test_nodes_of_all_tasks_count_for_a_dags_limit_and_only_the_first_task_claims() -> None:
    spec = dag_spec(task_tree(), jobs_per_work_unit=4)
    nodes = spec.units[0].processing_nodes + EXTRA_NODES
    assert nodes == 4 + 2 + 4 + 4 + EXTRA_NODES
    assert len(fill_dag(spec.units, max_units=10, max_nodes=2 * nodes).units) == 2
    assert len(fill_dag(spec.units, max_units=10, max_nodes=2 * nodes - 1).units) == 1
    assert [(c.kind, c.first, c.last) for c in spec.units[0].claims] == [(ClaimKind.GENERATED, 1, 400)]


def test_a_node_asks_for_what_its_own_task_needs() -> None:
    tree = task_tree()
    assert processing_request(task_resources(tree, 4), 90) == (BASE_DISK_KB + 90 * 512, 900)
    submits = [node_submit(dag_spec(tree), NodeRole.PROCESSING, task) for task in (3, 4)]
    assert "request_cpus = 1\n" in submits[0] and "$(MEMORY_$(JOB):$(TASK_3_MEMORY_MB))" in submits[0]
    assert "request_cpus = 8\n" in submits[1] and "$(MEMORY_$(JOB):$(TASK_4_MEMORY_MB))" in submits[1]
    sizes = sizes_of(tree, StepProfile()).files()["sizes.inc"].splitlines()
    assert {"TASK_3_MEMORY_MB = 3000", "TASK_4_MEMORY_MB = 16000"} <= set(sizes)
    assert "$(MEMORY_$(JOB):3000)" in node_submit(dag_spec(tree), NodeRole.MERGE), "the most per core of all tasks"


def test_a_node_of_a_later_task_has_room_for_the_files_that_it_may_have_to_fetch() -> None:
    """Whole files of the task before, at that task's size for each event, also where it is to read a share of one."""
    spec = dag_spec(task_tree())
    unit = spec.units[0]
    inputs = level_input_kb(spec.workflow, unit)
    nodes = {1: unit.jobs, **{level.task: level.nodes for level in unit.levels}}
    assert set(inputs) == {level.task for level in unit.levels} != set()
    (text, *_) = group_dags(spec)
    asked = dict(re.findall(r'^VARS (\w+) disk_kb="(\d+)"', text, re.MULTILINE))
    for level in unit.levels:
        size_kb = task_resources(spec.workflow, level.input_task).size_per_event_kb
        own = task_resources(spec.workflow, level.task)
        for name, node, input_kb in zip(nodes_of(unit)[level.task], level.nodes, inputs[level.task], strict=True):
            whole = sum(nodes[level.input_task][number].events for number in node.reads)
            assert input_kb == ceil(whole * size_kb) > 0
            assert int(asked[name]) == BASE_DISK_KB + input_kb + ceil(node.events * own.size_per_event_kb)


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
    first, last = node_submit(spec, NodeRole.PROCESSING), node_submit(spec, NodeRole.PROCESSING, 4)
    assert "request_gpus" not in first and ".input.json" not in first
    assert "request_gpus = 1" in last and "$(JOB).input.json" in last
    assert "request_memory = $(MEMORY_$(JOB):$(TASK_4_MEMORY_MB))" in last and "request_cpus = 2" in last
    assert levels_of((), [JobSpec(1, HERE)]) == ()
