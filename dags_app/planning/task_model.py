"""What a task is expected to take: its steps' models together, with the limits and pins that it is sized by. Pure. ADR 0009."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import NamedTuple

from dags_app.planning.levels import FIRST_TASK, all_tasks
from dags_app.planning.measured import Pins, SizingLimits, StepMeasured
from dags_app.planning.specs import StepSpec, TaskSpec, WorkflowSpec
from dags_app.planning.step_model import Layout, StepModel

#: Part of the longest wall time that the p95 job may be expected to take.
WALL_ROOM = 0.9

#: Step -> how it runs.
Layouts = Mapping[str, Layout]


class JobEvents(NamedTuple):
    """Events of a job: how many it should have (infinite: not known) and may have, and what bounds each of these."""

    goal: float
    bound: str
    most: float
    most_by: str
    seconds: float  # of one


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A task with what is known of its steps.

    ``most_events``: more than that no job of it can get; ``most_to_merge``: so many fill a merged file of a kept output, and what
    one job writes is never divided.
    """

    spec: TaskSpec
    steps: tuple[StepSpec, ...]
    models: Mapping[str, StepModel]
    limits: SizingLimits
    pins: Pins
    most_events: float
    most_to_merge: float
    as_long_as_before: bool = False  # a rescue: its jobs are cut already

    @property
    def measured(self) -> bool:
        """Enough to size it."""
        return all(step.name in self.models for step in self.steps)

    @property
    def unmeasured(self) -> str:
        """Why it is not sized."""
        return f"the request's own: fewer than {self.limits.min_jobs} jobs measured"

    def last_cores(self) -> int:
        """Of the newest jobs measured, as far as their threads tell; 0 when only one round was measured."""
        rows = [row for model in self.models.values() for row in model.rows]
        newest = max(row.round_index for row in rows)
        if newest == min(row.round_index for row in rows):
            return 0
        threads = max(row.processes * row.threads for row in rows if row.round_index == newest)
        hint = self.spec.resources.cores
        return hint if threads >= hint else 2 ** int(log2(threads))

    def layout(self, step: StepSpec, cores: int, processes: int = 1) -> Layout:
        """One that uses the cores, as far as the step has threads."""
        whole = self.spec.resources.cores
        return Layout(processes, max(min(cores // processes, cores if step.threads >= whole else step.threads), 1))

    def whole(self, cores: int) -> dict[str, Layout]:
        """No step is split but as pinned."""
        return {step.name: self.pinned(step.name, cores) or self.layout(step, cores) for step in self.steps}

    def pinned(self, step: str, cores: int) -> Layout | None:
        """As an operator has fixed it, as far as the cores go."""
        if step not in self.pins.layouts:
            return None
        processes, threads = self.pins.layouts[step]
        processes = min(processes, cores)
        return Layout(processes, max(min(threads, int(cores * self.limits.overcommit_max) // processes), 1))

    def seconds(self, layouts: Layouts, cores: int) -> dict[str, float]:
        """Wall seconds of each step for an event that the first one reads."""
        return {step: self.models[step].seconds_per_event(layout, cores) for step, layout in layouts.items()}

    def slow_seconds(self, layouts: Layouts, cores: int) -> float:
        """For an event, of the p95 job."""
        return sum(each * self.models[step].slowness() for step, each in self.seconds(layouts, cores).items())

    def most(self, slow_seconds: float) -> tuple[float, str]:
        """Events that a job may have at most."""
        longest = WALL_ROOM * self.limits.max_wall_seconds / slow_seconds
        return min((self.most_events, "the whole request"), (longest, "max_wall_seconds"))

    def events(self, layouts: Layouts, cores: int) -> JobEvents:
        """Of a job that takes as long as it should, or as pinned."""
        seconds = sum(self.seconds(layouts, cores).values())
        most = self.most(self.slow_seconds(layouts, cores))
        pinned = self.pins.events_per_job
        wanted = min((self.limits.target_wall_seconds / seconds, ""), (self.most_to_merge, "max_merge_bytes"))
        goal, bound = min((pinned, "") if pinned else wanted, most)
        return JobEvents(goal, bound, *most, seconds)

    def events_per(self, what: str) -> float:
        """Events of each piece that a splitting counts by ``what``; 0 when that is not known."""
        if what == "events_per_job":
            return 1.0
        return self.models[self.steps[0].name].events_per(what) if self.steps[0].name in self.models else 0.0

    def lengths(self, layouts: Layouts, cores: int) -> dict[str, float]:
        """How long each step will run in a job."""
        if self.as_long_as_before:
            return {step: max(self.models[step].lengths()) for step in layouts}
        events = self.events(layouts, cores).goal
        return {step: events * each for step, each in self.seconds(layouts, cores).items()}

    def rss(self, layouts: Layouts, cores: int) -> dict[str, float]:
        """p95 of the memory of all processes of each step."""
        lengths = self.lengths(layouts, cores)
        return {step: self.models[step].slot_rss(layout, lengths[step]) for step, layout in layouts.items()}

    def in_window(self, asked: int, cores: int) -> tuple[int, str]:
        """What is asked for of that memory, and what bounds it (spec 5.2)."""
        floor, ceiling = self.limits.default_memory_per_core_mb * cores, self.limits.max_memory_per_core_mb * cores
        if asked < floor:
            return floor, "default_memory_per_core_mb"
        return (asked, "") if asked <= ceiling else (ceiling, "max_memory_per_core_mb")

    def most_mb(self, cores: int) -> int:
        """What a job may ask for."""
        return self.in_window(self.pins.memory_mb or self.limits.max_memory_per_core_mb * cores, cores)[0]

    def fits(self, step: str, layouts: Layouts, cores: int) -> bool:
        """Whether the step's memory fits, with what of the margin it needs to."""
        margin = self.models[step].margin(layouts[step], self.limits.memory_margin)
        return self.rss(layouts, cores)[step] * (1 + margin) <= self.most_mb(cores)


def step_models(workflow: WorkflowSpec, measured: Sequence[StepMeasured], limits: SizingLimits) -> dict[str, StepModel]:
    """Step -> what is known of it, for steps of which enough jobs were measured."""
    first = {name: task.steps[0] for task in workflow.tasks for name in task.steps}
    read, jobs = defaultdict[tuple[str, int], float](float), defaultdict[tuple[str, int], int](int)
    rows = defaultdict[str, list[StepMeasured]](list)
    for row in measured:
        read[row.step, row.round_index] += row.events_read
        jobs[row.step, row.round_index] += row.jobs
        rows[row.step].append(row)
    models = {}
    for step, all_rows in rows.items():
        head = first.get(step, workflow.steps[0].name)
        used = [row for row in all_rows if row.jobs > 0 and row.wall_seconds > 0 and read[head, row.round_index] > 0]
        events = tuple(row.jobs * read[head, row.round_index] / jobs[head, row.round_index] for row in used)
        model = StepModel(tuple(used), events, limits.min_jobs)
        if model.jobs >= limits.min_jobs:
            models[step] = model
    return models


def task_models(workflow: WorkflowSpec, known: Mapping[str, StepModel], limits: SizingLimits, pins: Pins) -> list[TaskModel]:
    """One for each task, in order."""
    steps = {step.name: step for step in workflow.steps}
    found = []
    for task in all_tasks(workflow):
        own, models = tuple(steps[name] for name in task.steps), {name: known[name] for name in task.steps if name in known}
        most = workflow.generation.events if workflow.generation and task.number == FIRST_TASK else inf
        found.append(TaskModel(task, own, models, limits, pins.of(task.number), most, _most_to_merge(workflow, models)))
    return found


def _most_to_merge(workflow: WorkflowSpec, known: Mapping[str, StepModel]) -> float:
    kept = [known[output.step].bytes_per_event(output.module) for output in workflow.outputs if output.step in known]
    largest = max(kept, default=0.0)
    return workflow.max_merge_bytes / largest if largest > 0 else inf
