"""What a step, and a task of steps, is expected to take in a slot, from what all rounds measured: busy cores, time and memory.

Measured numbers of the very same layout (processes x threads) go before models; models carry them over to layouts and job lengths
that have not run yet. Pure. Memory in MB, times in seconds. Spec 5.4 to 5.6; ADR 0009.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf, log2, sqrt
from typing import NamedTuple

from dags_app.planning.levels import FIRST_TASK, all_tasks
from dags_app.planning.measured import TARGET_WALL_SECONDS, Pins, SizingLimits, StepMeasured
from dags_app.planning.specs import MAX_WALL_SECONDS, StepSpec, TaskSpec, WorkflowSpec

#: What one more thread of a CMSSW process takes at most, where only one thread count has been measured.
THREAD_MB = 250
#: Rounds show a leak only when their jobs differ that much in length: else noise would make slopes.
LENGTHS_DIFFER = 1.5
#: Part of its memory that a step has to have grown by; less is noise.
_GROWTH = 0.03
#: Events that a filter has to have passed, or should have, before its measured efficiency is believed.
_FILTERED_EVENTS = 20
_LEAST_BUSY = 0.01
#: Part of the longest wall time that the p95 job may be expected to take.
WALL_ROOM = 0.9


class Layout(NamedTuple):
    """How a step runs inside a slot."""

    processes: int
    threads: int  # of each process


#: Step -> how it runs.
Layouts = Mapping[str, Layout]


class _Line(NamedTuple):
    """``y`` over ``x``, through the middle of what was measured."""

    x: float
    y: float
    slope: float

    def at(self, x: float) -> float:
        return self.y + self.slope * (x - self.x)


def _line(points: Iterable[tuple[float, float, float]]) -> _Line:
    """Weighted least squares through (x, y, weight); a single x has no slope."""
    points = list(points)
    total = sum(weight for _, _, weight in points)
    x = sum(weight * x for x, _, weight in points) / total
    y = sum(weight * y for _, y, weight in points) / total
    spread = sum(weight * (each - x) ** 2 for each, _, weight in points)
    slope = sum(weight * (each - x) * (value - y) for each, value, weight in points) / spread if spread > 1e-12 * x * x else 0.0
    return _Line(x, y, slope)


class StepModel(NamedTuple):
    """One step; ``rows`` of all rounds, and of each the events that the first step of the task read in those jobs.

    "Per event" is per event of the task, which its first step reads: a step behind a filter may read none in many jobs.
    """

    rows: tuple[StepMeasured, ...]
    events: tuple[float, ...]
    min_jobs: int

    @property
    def jobs(self) -> int:
        """That were measured."""
        return sum(row.jobs for row in self.rows)

    @property
    def cpu_per_event(self) -> float:
        """CPU seconds."""
        return sum(row.cpu_seconds for row in self.rows) / sum(self.events)

    def passes(self, hinted: float) -> float:
        """Share of events that the step writes of those it reads; as hinted until enough have passed, or should have."""
        written, read = sum(row.events_written for row in self.rows), sum(row.events_read for row in self.rows)
        if max(written, hinted * read) < _FILTERED_EVENTS:
            return hinted
        return min(max(written, 1) / read, 1.0)

    def bytes_per_event(self, module: str | None = None) -> float:
        """Bytes that the step (or one of its output modules) writes."""
        written = (size for row in self.rows for name, size in row.bytes_written.items() if module in (None, name))
        return sum(written) / sum(self.events)

    def events_per(self, what: str) -> float:
        """Events of an input lumi or file, as ``what`` (a splitting's parameter) counts; 0 when that is not known."""
        counted = [(row.lumis_read if what == "lumis_per_job" else row.files_read, row.events_read) for row in self.rows]
        pieces = sum(count for count, _ in counted)
        return sum(events for count, events in counted if count) / pieces if pieces else 0.0

    def lengths(self) -> list[float]:
        """Typical length of the step in each set of jobs."""
        return [row.job_seconds.p50 for row in self.rows]

    def _enough(self, rows: Sequence[StepMeasured]) -> bool:
        return sum(row.jobs for row in rows) >= self.min_jobs

    def _alike(self, layout: Layout) -> list[StepMeasured]:
        """What ran in just this layout, if it was enough."""
        rows = [row for row in self.rows if (row.processes, row.threads) == layout]
        return rows if self._enough(rows) else []

    def has_run(self, layout: Layout) -> bool:
        """Whether enough jobs ran the step just so."""
        return bool(self._alike(layout))

    def margin(self, layout: Layout, margin: float) -> float:
        """Margin that a layout must leave: none where the newest jobs ran so, or rounds would swing as means drift; little where
        earlier ones did, or it has fewer threads than what was measured.
        """
        if self.has_run(layout):
            newest = max(row.round_index for row in self.rows)
            last = any((row.processes, row.threads) == layout for row in self.rows if row.round_index == newest)
            return 0.0 if last else margin / 4
        return margin / 4 if len(self.thread_counts) == 1 and layout.threads < self.thread_counts[0] else margin

    @property
    def thread_counts(self) -> list[int]:
        """Of one process, ascending."""
        return sorted({row.threads for row in self.rows})

    def busy(self, threads: int) -> float:
        """Cores that one process keeps busy.

        One thread count measured: Amdahl's law from what was busy; below one core all CPU is serial, and threads share the
        waiting. From two on: wall time over 1/threads as a line, so that waiting and serial parts are distinguished.
        """
        rows = [row for row in self.rows if row.threads == threads]
        if self._enough(rows):
            return _busy(rows)
        counts = self.thread_counts
        points = [(1 / count, 1 / _busy(found), sum(row.jobs for row in found)) for count, found in self._by_threads()]
        if len(counts) > 1:
            line = _line(points)
            parallel = max(line.slope, 0.0)
            serial = max(line.y - parallel * line.x, 0.0)
            if not serial:
                parallel = line.y / line.x
        else:
            (count,), ((_, wall, _),) = counts, points
            parallel, serial = wall, 0.0
            if count > 1:
                serial = min(max((count * wall - 1) / (count - 1), 0.0), 1.0)
                parallel = count * (wall - serial)
        return min(1 / (parallel / threads + serial), float(threads))

    def _by_threads(self) -> list[tuple[int, list[StepMeasured]]]:
        return [(count, [row for row in self.rows if row.threads == count]) for count in self.thread_counts]

    def seconds_per_event(self, layout: Layout, cores: int) -> float:
        """Wall seconds of a job."""
        alike = [at for at, row in enumerate(self.rows) if (row.processes, row.threads) == layout]
        if self._enough([self.rows[at] for at in alike]):
            return sum(self.rows[at].wall_seconds for at in alike) / sum(self.events[at] for at in alike)
        return self.cpu_per_event / min(layout.processes * self.busy(layout.threads), cores)

    def slowness(self) -> float:
        """Wall time of the p95 job over that of all, for as many events; long jobs, which spread less, weigh more."""
        walls = sum(row.wall_seconds for row in self.rows)
        by_event = sum(row.seconds_per_event.p95 * row.events_read for row in self.rows)
        return max(min(by_event, sum(row.job_seconds.p95 * row.jobs for row in self.rows)) / walls, 1.0)

    def slot_rss(self, layout: Layout, seconds: float) -> float:
        """p95 of the memory of all processes of a layout, when the step runs that long in a job."""
        level, leak, surely = self._memory(layout)
        longer = seconds - level.x
        return max(level.y + leak * (longer if surely else max(longer, 0.0)), level.y / 2)

    def seconds_within(self, layout: Layout, memory_mb: float) -> float:
        """How long it may run until it takes this memory; infinite when it does not grow."""
        level, leak, _ = self._memory(layout)
        return level.x + (memory_mb - level.y) / leak if leak > 0 else inf

    def _memory(self, layout: Layout) -> tuple[_Line, float, bool]:
        """Memory over length at the middle of what was measured, MB it grows by in a second, whether that is sure.

        Where the layout itself ran at one length only, growth is at least what longer jobs of as few or fewer threads took more.
        """
        processes, threads = layout
        alike = self._alike(layout)
        if alike:
            points = [(row.job_seconds.p50, row.slot_rss_mb.p95, row.jobs) for row in alike]
        else:
            of_one = [row for row in self.rows if row.threads == threads]
            rows = of_one if self._enough(of_one) else self.rows
            points = [
                (row.job_seconds.p50, _together(row, processes) + processes * self._for_threads(row, threads), row.jobs)
                for row in rows
            ]
        level = _line(points)
        lengths = [length for length, _, _ in points]
        if lengths and max(lengths) >= LENGTHS_DIFFER * min(lengths):
            grown = level.slope * (max(lengths) - min(lengths))
            return level, level.slope if grown > _GROWTH * level.y else 0.0, True
        slopes = (
            (_together(long, processes) - _together(short, processes)) / (long.job_seconds.p50 - short.job_seconds.p50)
            for long in self.rows
            for short in self.rows
            if long.job_seconds.p50 > LENGTHS_DIFFER * short.job_seconds.p50 and threads <= long.threads <= short.threads
        )
        leak = max((0.0, *slopes))
        return level, leak if leak * level.x > _GROWTH * level.y else 0.0, False

    def _for_threads(self, row: StepMeasured, threads: int) -> float:
        """MB that one process takes more with other threads: along a line, else up by a fixed step and down not at all."""
        more = threads - row.threads
        points = [
            (float(count), sum(_together(each, 1) * each.jobs for each in rows) / jobs, jobs)
            for count, rows in self._by_threads()
            if (jobs := sum(each.jobs for each in rows))
        ]
        if len(points) == 1:
            return THREAD_MB * max(more, 0.0)
        return max(more * max(_line(points).slope, 0.0), -_together(row, 1) / 2)


def _together(row: StepMeasured, processes: int) -> float:
    """p95 of the memory of so many of these processes side by side: they do not all peak high in the same job."""
    typical, p95 = row.slot_rss_mb.p50, row.slot_rss_mb.p95
    return typical * processes / row.processes + (p95 - typical) * sqrt(processes / row.processes)


def _busy(rows: Sequence[StepMeasured]) -> float:
    """Cores that a process of these kept busy."""
    process_seconds = sum(row.wall_seconds * row.processes for row in rows)
    return max(sum(row.cpu_seconds for row in rows) / process_seconds, _LEAST_BUSY)


class JobEvents(NamedTuple):
    """Events of a job: how many it should have (infinite: not known) and may have, and what bounds each of these."""

    goal: float
    bound: str
    most: float
    most_by: str
    seconds: float  # of one


class TaskModel(NamedTuple):
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
        """Of the newest jobs measured, as far as their threads show it; 0 when only one round was measured."""
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
        longest = WALL_ROOM * MAX_WALL_SECONDS / slow_seconds
        return min((self.most_events, "the whole request"), (longest, "max_wall_seconds"))

    def events(self, layouts: Layouts, cores: int) -> JobEvents:
        """Of a job that takes as long as it should, or as pinned."""
        seconds = sum(self.seconds(layouts, cores).values())
        most = self.most(self.slow_seconds(layouts, cores))
        pinned = self.pins.events_per_job
        wanted = min((TARGET_WALL_SECONDS / seconds, ""), (self.most_to_merge, "max_merge_bytes"))
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

    def fits(self, step: str, layouts: Layouts, cores: int) -> bool:
        """Whether the step's memory fits what a job may ask for, with what of the margin it needs to."""
        margin = self.models[step].margin(layouts[step], self.limits.memory_margin)
        most_mb, _ = self.in_window(self.pins.memory_mb or self.limits.max_memory_per_core_mb * cores, cores)
        return self.rss(layouts, cores)[step] * (1 + margin) <= most_mb


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
        kept = [models[output.step].bytes_per_event(output.module) for output in workflow.outputs if output.step in models]
        largest = max(kept, default=0.0)
        most_to_merge = workflow.max_merge_bytes / largest if largest > 0 else inf
        found.append(TaskModel(task, own, models, limits, pins.of(task.number), most, most_to_merge))
    return found
