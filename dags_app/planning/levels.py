"""The later tasks of a chain as levels of nodes inside a work unit: who reads whom, and how many events that is likely to be.

A level is what one task adds to one unit. Each of its nodes reads whole outputs of consecutive nodes of the task before it, or
one of several parts of a single output; together they read each output once. Pure; names of nodes are here too, since a level's
position is in them. docs/design/model.md, Tasks of a chain; ADR 0008.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from dags_app.payload.contract.documents import Share
from dags_app.planning import lumis
from dags_app.planning.specs import JobSpec, LevelNode, LevelSpec, SplittingAlgo, StepSpec, TaskSpec, WorkflowSpec, WorkUnitSpec
from wms2.errors import PlanningRefused

#: A level of one unit with more nodes is a typing error; the unit would not fit into any DAG.
MAX_LEVEL_NODES = 50_000
#: The task whose jobs the splitters plan; further tasks are levels.
FIRST_TASK = 1


class LevelPlan(NamedTuple):
    """What is the same for a task's level in every unit."""

    task: int
    input_task: int
    algorithm: SplittingAlgo
    per_job: int  # events, lumis or files, as ``algorithm`` counts; 0: one upstream file each
    share: Fraction  # events that reach the task, of each event that the first task's job works on


class _Expected(NamedTuple):
    """What one node is likely to leave to the level after it."""

    origin: Fraction  # events of the first task's jobs behind it; times a plan's ``share``, those that reach the task
    lumis: int  # at least 1; filters drop events and keep lumis


@lru_cache(4096)
def node_name(index: int, task: int = FIRST_TASK) -> str:
    """Name of the ``index``-th processing node of a task inside its unit."""
    return f"proc_{index:06d}" if task == FIRST_TASK else f"t{task}_{index:06d}"


def all_tasks(workflow: WorkflowSpec) -> tuple[TaskSpec, ...]:
    """In order; a request of one task has all steps in it."""
    whole = TaskSpec(FIRST_TASK, "", tuple(step.name for step in workflow.steps), workflow.resources)
    return workflow.tasks or (whole,)


def level_plans(workflow: WorkflowSpec) -> tuple[LevelPlan, ...]:
    """One plan for each later task, in order.

    Raises:
        ValueError: a task reads one that does not come before it, or not by its first step.
    """
    steps = {step.name: step for step in workflow.steps}
    numbers = {task.name: task.number for task in workflow.tasks}
    plans: list[LevelPlan] = []
    for task in workflow.tasks[1:]:
        first = steps[task.steps[0]]
        before = numbers.get(task.input_task or "", task.number)
        if before >= task.number or (first.input_step, first.input_module) != (task.input_step, task.input_module):
            raise ValueError(
                f"task {task.name}: its first step has to read an output of an earlier task, not {task.input_task!r}"
            )
        per_job = int(getattr(task, task.algorithm.parameters[0]))
        plans.append(LevelPlan(task.number, before, task.algorithm, per_job, share_passed(steps, task.input_step)))
    return tuple(plans)


def share_passed(steps: Mapping[str, StepSpec], name: str | None) -> Fraction:
    """Product of the filter efficiencies of ``name`` and all steps before it, exactly as they are written."""
    share = Fraction(1)
    while name is not None:
        step = steps[name]
        share *= Fraction(str(step.filter_efficiency))
        name = step.input_step
    return share


def levels_of(plans: Sequence[LevelPlan], jobs: Sequence[JobSpec]) -> tuple[LevelSpec, ...]:
    """The levels of a unit of ``jobs``: upstream nodes in order, put together or cut as each task's splitting says.

    Raises:
        PlanningRefused: a level would have more nodes than any DAG takes.
    """
    made = {FIRST_TASK: [_Expected(Fraction(job.events), _lumis_of(job)) for job in jobs]}
    levels = []
    for plan in plans:
        groups = _grouped(plan, made[plan.input_task])
        cut = [(reads, piece, share) for reads, whole in groups for share, piece in _cut(plan, whole)]
        made[plan.task] = [piece for _, piece, _ in cut]
        nodes = tuple(LevelNode(ceil(piece.origin * plan.share), reads, share) for reads, piece, share in cut)
        levels.append(LevelSpec(plan.task, plan.input_task, nodes))
    return tuple(levels)


def _lumis_of(job: JobSpec) -> int:
    if job.generate is not None:
        return job.generate.last_lumi - job.generate.first_lumi + 1
    return max(job.file_lumis if job.mask is None else lumis.count(job.mask), 1)


def _grouped(plan: LevelPlan, upstream: Sequence[_Expected]) -> list[tuple[tuple[int, ...], _Expected]]:
    """Upstream nodes in order, as many together as one job may take; at least one."""
    groups: list[tuple[tuple[int, ...], _Expected]] = []
    for index, file in enumerate(upstream):
        if groups:
            reads, have = groups[-1]
            both = _Expected(have.origin + file.origin, have.lumis + file.lumis)
            if _fits(plan, len(reads) + 1, both):
                groups[-1] = (*reads, index), both
                continue
        groups.append(((index,), file))
    return groups


def _fits(plan: LevelPlan, files: int, what: _Expected) -> bool:
    if plan.algorithm.by_file:
        return files <= plan.per_job
    if plan.algorithm.by_lumi_number:
        return what.lumis <= plan.per_job
    return what.origin * plan.share <= plan.per_job > 0


def _cut(plan: LevelPlan, whole: _Expected) -> Iterator[tuple[Share | None, _Expected]]:
    """The parts of what may be more than one job takes: whole, if it is not; else equal numbers of events, or of lumis."""
    parts, by_lumi = _parts(plan, whole), plan.algorithm.by_lumi
    if parts > MAX_LEVEL_NODES:
        raise PlanningRefused(
            f"task {plan.task}: {plan.algorithm} with {plan.per_job} to a job makes {parts} jobs out of one job of task "
            f"{plan.input_task}, more than the {MAX_LEVEL_NODES} that a DAG may hold; raise the number"
        )
    if parts == 1:
        yield None, whole
        return
    for part in range(parts):
        if by_lumi:
            held = _before(part + 1, parts, whole.lumis) - _before(part, parts, whole.lumis)
            yield Share(part, parts, by_lumi), _Expected(whole.origin * held / whole.lumis, held)
        else:
            yield Share(part, parts, by_lumi), _Expected(whole.origin / parts, -(-whole.lumis // parts))


def _parts(plan: LevelPlan, whole: _Expected) -> int:
    if plan.algorithm.by_file or plan.per_job < 1:
        return 1
    if plan.algorithm.by_lumi_number:
        return -(-whole.lumis // plan.per_job)
    events = whole.origin * plan.share
    if plan.algorithm.by_event:
        return max(ceil(events / plan.per_job), 1)
    if events <= plan.per_job:
        return 1
    lumis_per_job = max(plan.per_job * whole.lumis // events, 1)  # a lumi is never cut
    return int(-(-whole.lumis // lumis_per_job))


def _before(part: int, parts: int, held: int) -> int:
    """How many of ``held`` lumis of equal size have their middle before the beginning of ``part``: so the payload's ``shares``
    deals them out."""
    return -(-(2 * part * held - parts) // (2 * parts))


def nodes_of(unit: WorkUnitSpec) -> dict[int, list[str]]:
    """Names of all processing nodes of a unit, by task."""
    names = {FIRST_TASK: [node_name(index) for index in range(len(unit.jobs))]}
    for level in unit.levels:
        names[level.task] = [node_name(index, level.task) for index in range(len(level.nodes))]
    return names


def last_nodes(unit: WorkUnitSpec) -> list[str]:
    """Nodes that no other node reads: when they are done, all are."""
    read = {level.input_task for level in unit.levels}
    return [name for task, names in nodes_of(unit).items() if task not in read for name in names]


def upstream_names(level: LevelSpec) -> Iterator[tuple[str, list[str]]]:
    """(node, the nodes it reads) of a level."""
    for index, node in enumerate(level.nodes):
        yield node_name(index, level.task), [node_name(read, level.input_task) for read in node.reads]


def edge_count(unit: WorkUnitSpec) -> int:
    """Edges of the unit's inner DAG."""
    reads = sum(len(node.reads) for level in unit.levels for node in level.nodes)
    return len(unit.jobs) + reads + len(last_nodes(unit)) + 1
