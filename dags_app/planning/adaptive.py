"""How a round or a rescue is sized from what earlier jobs measured: slots, splitting, work units, how steps run inside a slot.

Pure: a sizing follows from the request's own figures and all measurements, never from the sizing before it. A task of which too
few jobs were measured keeps the request's figures. ``step_model`` says what is expected. Spec 5; ADR 0009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf, log2, prod, sqrt
from typing import Any

from dags_app.payload.contract.step_profile import StepProfile, StepRun
from dags_app.planning.levels import FIRST_TASK, level_plans
from dags_app.planning.lumis import round_to_lumis
from dags_app.planning.measured import CUTS, Decision, Pins, Sizing, SizingLimits, StepMeasured
from dags_app.planning.specs import GenerationSpec, ResourceSpec, SplittingSpec, TaskSpec, WorkflowSpec
from dags_app.planning.step_model import (
    LENGTHS_DIFFER,
    THREAD_MB,
    JobEvents,
    Layout,
    Layouts,
    StepModel,
    TaskModel,
    step_models,
    task_models,
)

#: A leak that was not seen yet may take so much of a step's memory in each further length of the longest job measured; jobs
#: only get longer while that fits what is asked for (five lengths, where nothing but the margin of 20 % is to spare), or by as
#: much as it takes to see a leak.
_UNSEEN_LEAK = 0.05
#: A step is split only when idle cores during it are at least this part of the job's core-seconds.
_WORTH_TRYING = 0.05
#: Cores are changed only when an event does not take that much more core time after it than it took in the newest jobs.
_WORTH_CHANGING = 1.05
#: A step that is split stays so until its undivided efficiency is clearly above the limit.
_STAYS_SPLIT = 1.2
#: Where several thread counts were measured, a step is split only when it is expected to be so much faster.
_WORTH_SPLITTING = 1.05
#: From here on a step has no bubbles that more threads would fill (spec 5.4).
_SATURATED = 0.9

NO_PINS = Pins()

#: So many lumis in a job make up for their being whole; of fewer, each is cut to fit.
_SMALL_LUMIS = 2.5


def size_round(workflow: WorkflowSpec, measured: Sequence[StepMeasured], limits: SizingLimits, pins: Pins = NO_PINS) -> Sizing:
    """Size the next round of a request.

    Args:
        workflow: as the request specified it, without any sizing.
        measured: of all its rounds.
    """
    known = step_models(workflow, measured, limits)
    tasks = task_models(workflow, known, limits, pins)
    workflow, decisions = _filters(workflow, known)
    runs: dict[str, StepRun] = {}
    for task in tasks:
        if not task.measured:
            workflow = _unmeasured(workflow, task, decisions)
            runs |= _pinned_runs(task, task.pins.cores or task.spec.resources.cores, decisions)
            continue
        cores = _cores(task, decisions)
        layouts = _layouts(task, cores)
        memory_mb = _memory(task, layouts, cores, decisions)
        events = _events(task, layouts, cores, memory_mb)
        sized = _resources(task, layouts, cores, memory_mb, decisions)
        workflow = _with_task(workflow, task, sized, cores)
        workflow = _split(workflow, task, events, decisions)
        runs |= _runs(task, layouts, cores, memory_mb, decisions)
    sizes = _bytes_per_event(workflow, known)
    units = _jobs_per_work_unit(workflow, known, sizes, limits, pins)
    return Sizing(workflow, int(units.chosen), sizes, StepProfile(steps=runs), (*decisions, units))


def size_rescue(workflow: WorkflowSpec, measured: Sequence[StepMeasured], limits: SizingLimits, pins: Pins = NO_PINS) -> Sizing:
    """Size another submission of a DAG: only memory, inside the window of its cores, and how steps run may change.

    Args:
        workflow: as the DAG's round was planned with.
        measured: of all rounds, also of this one.
    """
    known = step_models(workflow, measured, limits)
    decisions: list[Decision] = []
    runs: dict[str, StepRun] = {}
    for task in task_models(workflow, known, limits, pins):
        cores, task = task.spec.resources.cores, task._replace(as_long_as_before=True)
        layouts = _layouts(task, cores) if task.measured else {}
        memory_mb = _memory(task, layouts, cores, decisions)
        workflow = _with_task(workflow, task, replace(task.spec.resources, memory_mb=memory_mb), cores)
        runs |= _runs(task, layouts, cores, memory_mb, decisions) if task.measured else _pinned_runs(task, cores, decisions)
    return Sizing(
        workflow, limits.jobs_per_work_unit, _bytes_per_event(workflow, known), StepProfile(steps=runs), tuple(decisions)
    )


def _filters(workflow: WorkflowSpec, known: Mapping[str, StepModel]) -> tuple[WorkflowSpec, list[Decision]]:
    """The specification with the filter efficiencies that were measured."""
    steps, decisions = [], list[Decision]()
    for step in workflow.steps:
        model, hinted = known.get(step.name), step.filter_efficiency
        passes = float(f"{model.passes(hinted):.4g}") if model else hinted
        if passes != hinted:
            why = "events written of those read"
            decisions.append(Decision("filter_efficiency", hinted, passes, passes, why, _task_of(workflow, step.name), step.name))
        steps.append(replace(step, filter_efficiency=passes))
    return replace(workflow, steps=tuple(steps)), decisions


def _task_of(workflow: WorkflowSpec, step: str) -> int:
    return next((task.number for task in workflow.tasks if step in task.steps), FIRST_TASK)


def _unmeasured(workflow: WorkflowSpec, task: TaskModel, decisions: list[Decision]) -> WorkflowSpec:
    """The request's own figures, but for what is pinned."""
    given, pins, number = task.spec.resources, task.pins, task.spec.number
    cores = pins.cores or given.cores
    decisions.append(Decision("cores", given.cores, None, cores, task.unmeasured, number, pinned=bool(pins.cores)))
    memory_mb = _memory(task, {}, cores, decisions)
    workflow = _with_task(workflow, task, replace(given, cores=cores, memory_mb=memory_mb), cores)
    if any(getattr(pins, name) for name in CUTS):
        events = JobEvents(inf, "", *task.most(given.time_per_event_seconds), given.time_per_event_seconds)
        return _split(workflow, task, events, decisions)
    return workflow


def _cores(task: TaskModel, decisions: list[Decision]) -> int:
    """A power of two by what the steps together keep busy, raised when their memory needs more of them."""
    hint, pinned = task.spec.resources.cores, task.pins.cores
    cpu = {step: task.models[step].cpu_per_event for step in task.models}
    busy = sum(cpu.values()) / sum(
        cpu[step] / (layout.processes * task.models[step].busy(layout.threads)) for step, layout in task.whole(hint).items()
    )
    cores, bound = 2 ** max(round(log2(max(busy, 0.1))), 0), ""
    taken = max(
        (layout.processes * layout.threads for step, layout in task.whole(hint).items() if step in task.pins.layouts), default=1
    )
    floor = min(taken, hint)
    if not floor <= cores <= hint:
        cores, bound = min(max(cores, floor), hint), "layouts" if cores < floor else "Multicore"
    while cores < hint and not _window_holds(task, cores):
        cores, bound = min(2 * cores, hint), "max_memory_per_core_mb"
    why = f"{busy:.2f} of {hint} cores are kept busy"
    last = task.last_cores()
    if (
        cores != last >= floor
        and _window_holds(task, last)
        and _core_seconds(task, cores) > _WORTH_CHANGING * _core_seconds(task, last)
    ):
        cores, why = last, f"{why}; jobs on {last} took less core time"
    decisions.append(
        Decision("cores", hint, busy, pinned or cores, why, task.spec.number, bound="" if pinned else bound, pinned=bool(pinned))
    )
    return pinned or cores


def _core_seconds(task: TaskModel, cores: int) -> float:
    """For an event, as the steps would run."""
    return cores * sum(task.seconds(_layouts(task, cores), cores).values())


def _window_holds(task: TaskModel, cores: int) -> bool:
    if task.pins.memory_mb:
        return task.pins.memory_mb <= task.limits.max_memory_per_core_mb * cores
    whole = task.whole(cores)
    return all(task.fits(step, whole, cores) for step in whole)


def _layouts(task: TaskModel, cores: int) -> dict[str, Layout]:
    """How each step runs: whole, or split where it would leave most of the cores idle, as far as memory allows (spec 5.4)."""
    chosen = task.whole(cores)
    if task.spec.resources.gpu is not None:
        return chosen
    seconds = task.seconds(chosen, cores)
    for step in task.steps:
        model, base = task.models[step.name], chosen[step.name]
        if step.name in task.pins.layouts:
            continue
        limit = task.limits.split_below * (_STAYS_SPLIT if any(row.processes > 1 for row in model.rows) else 1)
        busy = min(model.busy(base.threads), cores) / cores
        if busy >= limit or (1 - busy) * seconds[step.name] < _WORTH_TRYING * sum(seconds.values()):
            continue
        layouts = [task.layout(step, cores, 2**power) for power in range(1, int(log2(cores)) + 1)]
        fitting = [base, *(each for each in layouts if task.fits(step.name, {**chosen, step.name: each}, cores))]
        best = fitting[-1]
        if len(model.thread_counts) > 1:  # what splitting brings is known by now
            walls = [model.seconds_per_event(layout, cores) for layout in (base, best)]
            best = best if walls[0] > _WORTH_SPLITTING * walls[1] else base
        chosen[step.name] = best
    return chosen


def _memory(task: TaskModel, layouts: Layouts, cores: int, decisions: list[Decision]) -> int:
    """By the step that takes most; without layouts what was asked for before."""
    margin, pinned, before = task.limits.memory_margin, task.pins.memory_mb, task.spec.resources.memory_mb
    rss = task.rss(layouts, cores) if layouts else {}
    most = max(rss, key=lambda step: rss[step], default="")
    memory_mb, bound = task.in_window(pinned or (ceil(rss[most] * (1 + margin)) if rss else before), cores)
    if rss and not bound and not task.models[most].has_run(layouts[most]):
        bound = "a layout that has not run yet"  # an estimate from others, on the safe side
    why = f"p95 of {most} + {margin:.0%}, {memory_mb // cores} MB a core" if rss else task.unmeasured
    measured = round(rss[most]) if rss else None
    decisions.append(Decision("memory_mb", before, measured, memory_mb, why, task.spec.number, most, bound, pinned is not None))
    return memory_mb


def _events(task: TaskModel, layouts: Layouts, cores: int, memory_mb: int) -> JobEvents:
    """Events of a job: few enough also for a leak, one that is known and one that was not seen yet."""
    events = task.events(layouts, cores)
    bounds = [(events.goal, events.bound)]
    for step, seconds in task.seconds(layouts, cores).items():
        model, layout = task.models[step], layouts[step]
        longest, shortest = max(model.lengths()), min(model.lengths())
        within = model.seconds_within(layout, memory_mb / (1 + task.limits.memory_margin / 2))
        spare = memory_mb / model.slot_rss(layout, longest) - 1
        bounds += [
            (max(within, shortest) / seconds, f"memory of {step}, which grows"),
            (longest * max(1 + spare / _UNSEEN_LEAK, LENGTHS_DIFFER) / seconds, "the longest job measured"),
        ]
    goal, bound = min(bounds)
    return events._replace(goal=goal, bound=bound)


def _resources(task: TaskModel, layouts: Layouts, cores: int, memory_mb: int, decisions: list[Decision]) -> ResourceSpec:
    given, number = task.spec.resources, task.spec.number
    seconds = float(f"{task.slow_seconds(layouts, cores):.4g}")
    disk = sum(model.bytes_per_event() for model in task.models.values()) / 1024
    size = float(f"{disk * (1 + task.limits.memory_margin):.4g}") or given.size_per_event_kb
    mean = sum(task.seconds(layouts, cores).values())
    decisions += [
        Decision("time_per_event_seconds", given.time_per_event_seconds, mean, seconds, "of the p95 job", number),
        Decision("size_per_event_kb", given.size_per_event_kb, disk, size, "all outputs of all steps, with a margin", number),
    ]
    return replace(given, cores=cores, memory_mb=memory_mb, time_per_event_seconds=seconds, size_per_event_kb=size)


def _with_task(workflow: WorkflowSpec, task: TaskModel, resources: ResourceSpec, cores: int) -> WorkflowSpec:
    """With the resources of a task, and the threads that its steps have on that many cores."""
    threads = {name: layout.threads for name, layout in task.whole(cores).items()}
    steps = tuple(replace(step, threads=threads.get(step.name, step.threads)) for step in workflow.steps)
    tasks = tuple(replace(each, resources=resources) if each.number == task.spec.number else each for each in workflow.tasks)
    first = resources if task.spec.number == FIRST_TASK else workflow.resources
    return replace(workflow, steps=steps, tasks=tasks, resources=first)


def _split(workflow: WorkflowSpec, task: TaskModel, events: JobEvents, decisions: list[Decision]) -> WorkflowSpec:
    """With jobs of so many events, as the task's algorithm counts them."""
    number = task.spec.number
    if number != FIRST_TASK:
        cut = _cut(task.spec, 0, task, events, decisions)
        return replace(workflow, tasks=tuple(replace(each, **cut) if each.number == number else each for each in workflow.tasks))
    if workflow.generation is not None:
        return replace(workflow, generation=_generation(workflow.generation, task, events, decisions))
    splitting = workflow.splitting
    return replace(workflow, splitting=replace(splitting, **_cut(splitting, splitting.events_per_lumi, task, events, decisions)))


def _cut(
    spec: TaskSpec | SplittingSpec, per_lumi: int, task: TaskModel, events: JobEvents, decisions: list[Decision]
) -> dict[str, Any]:
    """The number that the algorithm cuts input by; it stays where the events of a lumi or a file are not known."""
    what = spec.algorithm.parameters[0]
    before, each = getattr(spec, what), task.events_per(what)
    measured = events.seconds if what == "events_per_job" else each
    pin = getattr(task.pins, what, None)
    bound, why = "", f"{events.goal:.0f} events take as long as a job should"
    if not each or (pin is None and events.goal == inf):
        chosen, why = pin or before, "how many events each has is not measured"
    elif pin is None:
        chosen, bound = max(int(events.goal / each), 1), events.bound
    else:
        chosen, why = max(min(pin, int(events.most / each)), 1), "as pinned"
        bound = events.most_by if chosen < pin else ""
    if what == "events_per_job":
        chosen = round_to_lumis(chosen, per_lumi)
    decisions.append(Decision(what, before, measured or None, chosen, why, task.spec.number, bound=bound, pinned=pin is not None))
    return {what: chosen}


def _generation(given: GenerationSpec, task: TaskModel, events: JobEvents, decisions: list[Decision]) -> GenerationSpec:
    """Lumis that keep as many events after the filters as the request meant, and jobs of whole lumis, at least one."""
    pins = task.pins
    hinted = prod(step.filter_efficiency for step in task.steps)
    passes = prod(task.models[step.name].passes(step.filter_efficiency) for step in task.steps) if task.measured else hinted
    goal = min(pins.events_per_job or events.goal, events.most)
    meant = given.events_per_lumi * hinted / passes
    per_lumi = max(round(meant), 1)
    if goal < inf and goal < _SMALL_LUMIS * per_lumi:  # so few of them would be far from the goal
        per_lumi = max(int(goal / max(round(goal / meant), 1)), 1)
    if pins.lumis_per_job and not pins.events_per_job:
        goal = min(float(pins.lumis_per_job * per_lumi), events.most)
    per_job = round_to_lumis(max(int(goal), 1), per_lumi)
    if per_job > max(events.most, per_lumi):
        per_job = max(int(events.most) // per_lumi, 1) * per_lumi
    pinned = bool(pins.events_per_job or pins.lumis_per_job)
    bound = events.bound if not pinned else events.most_by if goal == events.most else ""
    lumi_bound = "events_per_job" if per_lumi != max(round(meant), 1) else ""
    lumi_why = f"{given.events_per_lumi * hinted:.3g} events of a lumi pass the filters"
    job_why = f"{per_job * events.seconds / 3600:.1f} h, whole lumis"
    decisions += [
        Decision("events_per_lumi", given.events_per_lumi, passes, per_lumi, lumi_why, bound=lumi_bound),
        Decision("events_per_job", given.events_per_job, events.seconds, per_job, job_why, bound=bound, pinned=pinned),
    ]
    return replace(given, events_per_job=per_job, events_per_lumi=per_lumi)


def _runs(task: TaskModel, layouts: Layouts, cores: int, memory_mb: int, decisions: list[Decision]) -> dict[str, StepRun]:
    """How each step runs in the slot, with more threads than cores where that fills bubbles and memory allows (spec 5.4)."""
    runs, rss, margin = {}, task.rss(layouts, cores), 1 + task.limits.memory_margin
    for step in task.steps:
        model, (processes, threads) = task.models[step.name], layouts[step.name]
        needed, busy = rss[step.name], min(processes * model.busy(threads), cores) / cores
        pinned = step.name in task.pins.layouts
        if pinned:
            _record_pinned(task, step.name, layouts[step.name], decisions)
        elif processes > 1:
            why = f"as one process it keeps {min(model.busy(task.layout(step, cores).threads), cores):.2f} of {cores} cores busy"
            decisions.append(Decision("processes", 1, round(needed), processes, why, task.spec.number, step.name))
        if not pinned and task.limits.split_below <= busy < _SATURATED:
            for more in range(int(threads * task.limits.overcommit_max), threads, -1):
                filled = needed + processes * THREAD_MB * (more - threads)
                if max(filled, model.slot_rss(Layout(processes, more), max(model.lengths()))) * margin <= memory_mb:
                    why = f"{busy:.0%} of the cores are busy"
                    decisions.append(Decision("threads", threads, busy, more, why, task.spec.number, step.name))
                    threads, needed = more, filled
                    break
        runs[step.name] = StepRun(processes, threads, int(min(needed * margin, memory_mb) / processes))
    return runs


def _pinned_runs(task: TaskModel, cores: int, decisions: list[Decision]) -> dict[str, StepRun]:
    """Of a task of which nothing is known yet, neither what its steps take of the memory."""
    runs = {step: StepRun(*layout) for step, layout in task.whole(cores).items() if step in task.pins.layouts}
    for step, run in runs.items():
        _record_pinned(task, step, Layout(run.processes, run.threads), decisions)
    return runs


def _record_pinned(task: TaskModel, step: str, layout: Layout, decisions: list[Decision]) -> None:
    for what, asked, chosen in zip(("processes", "threads"), task.pins.layouts[step], layout, strict=True):
        bound = "the cores of a job" if chosen < asked else ""
        decisions.append(Decision(what, None, None, chosen, "as pinned", task.spec.number, step, bound, pinned=True))


def _bytes_per_event(workflow: WorkflowSpec, known: Mapping[str, StepModel]) -> dict[str, float]:
    """Dataset -> bytes for an event of the first task, where its step and the first one of its task were measured."""
    shares = {FIRST_TASK: 1.0} | {plan.task: float(plan.share) for plan in level_plans(workflow)}
    sizes: dict[str, float] = {}
    for output in workflow.outputs:
        if output.step in known:
            size = known[output.step].bytes_per_event(output.module) * shares[_task_of(workflow, output.step)]
            sizes[output.dataset] = sizes.get(output.dataset, 0.0) + size
    return {dataset: size for dataset, size in sizes.items() if size > 0}


def _jobs_per_work_unit(
    workflow: WorkflowSpec, known: Mapping[str, StepModel], sizes: Mapping[str, float], limits: SizingLimits, pins: Pins
) -> Decision:
    """So many that the largest kept output merges to files of the middle between its limits, as factors go."""
    before, most = limits.jobs_per_work_unit, limits.max_jobs_per_work_unit
    events = _events_of_a_job(workflow, known)
    per_job = {dataset: size * events for dataset, size in sizes.items() if size * events > 0}
    if not per_job:
        wanted, why, measured = before, "the installation's: no output size is measured", None
    else:
        largest = max(per_job, key=lambda dataset: per_job[dataset])
        measured = per_job[largest]
        factor = sqrt(workflow.min_merge_bytes * workflow.max_merge_bytes) / measured
        low = int(factor)  # or the number above it, whichever is nearer as a factor
        wanted = max(1, low if low and factor * factor <= low * (low + 1) else low + 1)
        others = ", ".join(f"{name} {_shown(size * wanted)}" for name, size in per_job.items() if name != largest)
        why = f"{largest} merges to {_shown(measured * wanted)}" + (f"; {others}" if others else "")
    asked = pins.jobs_per_work_unit or wanted
    chosen = min(asked, most)
    bound = "max_jobs_per_work_unit" if chosen < asked else ""
    if measured and measured > workflow.max_merge_bytes and not bound:
        bound = "a job writes more than a merged file holds"
    return Decision("jobs_per_work_unit", before, measured, chosen, why, bound=bound, pinned=pins.jobs_per_work_unit is not None)


def _shown(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _events_of_a_job(workflow: WorkflowSpec, known: Mapping[str, StepModel]) -> float:
    """Of the first task, as planned."""
    if workflow.generation is not None:
        return min(workflow.generation.events_per_job, workflow.generation.events)
    model, what = known.get(workflow.steps[0].name), workflow.splitting.algorithm.parameters[0]
    each = model.events_per(what) if model else 0.0
    if each:
        return float(getattr(workflow.splitting, what) * each)
    return sum(model.events) / model.jobs if model else 0.0
