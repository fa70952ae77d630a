"""The later tasks of a chain as levels of nodes inside a work unit: who reads whom, and how many events that is likely to be.

A level is what one task adds to one unit. Its nodes read whole outputs of consecutive nodes of the task before it, each output
once. Pure; names of nodes are here too, since a level's position is in them. ``model.md`` section 3, "TaskChain is a tree".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dags_app.planning.specs import JobSpec, LevelNode, LevelSpec, StepSpec, TaskSpec, WorkflowSpec, WorkUnitSpec

#: The task whose jobs the splitters plan; further tasks are levels.
FIRST_TASK = 1


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """What is the same for a task's level in every unit."""

    task: int
    input_task: int
    events_per_job: int  # 0: one upstream node each
    share: Fraction  # events that reach the task, of each event that the first task's job works on


def node_name(index: int, task: int = FIRST_TASK) -> str:
    """Name of the ``index``-th processing node of a task inside its unit."""
    return f"proc_{index:06d}" if task == FIRST_TASK else f"t{task}_{index:06d}"


def later_tasks(workflow: WorkflowSpec) -> tuple[TaskSpec, ...]:
    """Tasks that are levels; none for a request of one task."""
    return workflow.tasks[1:]


def level_plans(workflow: WorkflowSpec) -> tuple[LevelPlan, ...]:
    """One plan for each later task, in order.

    Raises:
        ValueError: a task reads one that does not come before it, or not by its first step.
    """
    steps = {step.name: step for step in workflow.steps}
    numbers = {task.name: task.number for task in workflow.tasks}
    plans: list[LevelPlan] = []
    for task in later_tasks(workflow):
        first = steps[task.steps[0]]
        before = numbers.get(task.input_task or "", task.number)
        if before >= task.number or (first.input_step, first.input_module) != (task.input_step, task.input_module):
            raise ValueError(
                f"task {task.name}: its first step has to read an output of an earlier task, not {task.input_task!r}"
            )
        plans.append(LevelPlan(task.number, before, task.events_per_job, _share(steps, task.input_step)))
    return tuple(plans)


def _share(steps: dict[str, StepSpec], name: str | None) -> Fraction:
    """Product of the filter efficiencies of ``name`` and all steps before it, exactly as they are written."""
    share = Fraction(1)
    while name is not None:
        step = steps[name]
        share *= Fraction(str(step.filter_efficiency))
        name = step.input_step
    return share


def levels_of(plans: Sequence[LevelPlan], jobs: Sequence[JobSpec]) -> tuple[LevelSpec, ...]:
    """The levels of a unit of ``jobs``: upstream nodes in order, grouped by their expected events."""
    origins = {FIRST_TASK: [job.events for job in jobs]}
    levels = []
    for plan in plans:
        groups = _groups(plan, origins[plan.input_task])
        sums = [sum(origins[plan.input_task][index] for index in group) for group in groups]
        origins[plan.task] = sums
        nodes = tuple(LevelNode(-(-total * plan.share // 1), group) for total, group in zip(sums, groups, strict=True))
        levels.append(LevelSpec(plan.task, plan.input_task, nodes))
    return tuple(levels)


def _groups(plan: LevelPlan, origins: list[int]) -> list[tuple[int, ...]]:
    """``origins``: for each upstream node the events of the first task's jobs behind it."""
    groups: list[list[int]] = []
    total = 0
    for index, events in enumerate(origins):
        total += events
        if groups and plan.events_per_job and total * plan.share <= plan.events_per_job:
            groups[-1].append(index)
        else:
            groups.append([index])
            total = events
    return [tuple(group) for group in groups]


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
