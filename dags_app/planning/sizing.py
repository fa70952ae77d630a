"""What jobs ask of a slot: estimates of wall time, disk and output bytes; and what each submission of a DAG brings anew: the
memory its jobs ask for, and how their steps run (spec 5.3, 5.5; docs/adr/0009).

Pure arithmetic over the request's hints; measured sizes of earlier rounds come in as arguments. Memory in MB, disk in KB
(what ``request_disk`` takes), wall time in whole minutes (what ``MaxWallTimeMins`` takes).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.step_profile import StepProfile
from dags_app.planning.levels import FIRST_TASK, all_tasks, level_plans
from dags_app.planning.specs import (
    MAX_WALL_SECONDS,
    JobSpec,
    LevelNode,
    ResourceSpec,
    SplittingAlgo,
    WorkflowSpec,
    WorkUnitSpec,
)

#: Scratch that every payload job needs beside its data: sandbox, logs, job reports, conditions cache.
BASE_DISK_KB = 524_288
#: Shortest wall time asked for: start-up, reading conditions and stage-out dominate small jobs.
MIN_WALL_MINUTES = 60
#: Merging reads and writes at least this fast; storage, not CPU, sets the pace.
MERGE_BYTES_PER_SECOND = 10_000_000
#: So much larger than ``SizePerEvent`` says a small unit's output may be, and its merge still has room.
ESTIMATE_MARGIN = 4
#: Cleanup only deletes files.
CLEANUP_MEMORY_MB = 256


class SlotRequest(NamedTuple):  # a tuple: there is one for each job
    """What a node asks of its slot beyond what is the same for all nodes of its role and task."""

    disk_kb: int
    wall_minutes: int


def task_resources(workflow: WorkflowSpec, task: int = FIRST_TASK) -> ResourceSpec:
    """What one job of a task asks for; the request's own figures when it is one task."""
    return next(each.resources for each in all_tasks(workflow) if each.number == task)


def processing_request(resources: ResourceSpec, events: int, *, input_kb: int = 0) -> SlotRequest:
    """Slot of one processing job of a task that asks for ``resources``: room for its events, and events x TimePerEvent.

    ``SizePerEvent`` is the disk of all tiers together (docs/design/model.md, Sizes). ``input_kb``: of files of the unit itself,
    which are fetched where the site's storage cannot be read from.
    """
    disk_kb = BASE_DISK_KB + input_kb + ceil(events * resources.size_per_event_kb)
    return SlotRequest(disk_kb, _wall_minutes(events * resources.time_per_event_seconds))


def level_input_kb(workflow: WorkflowSpec, unit: WorkUnitSpec) -> dict[int, list[int]]:
    """By task, what each node of a later task reads at most, in KB: whole files also where it has only a share of them."""
    nodes: dict[int, Sequence[JobSpec | LevelNode]] = {
        FIRST_TASK: unit.jobs,
        **{level.task: level.nodes for level in unit.levels},
    }
    found = {}
    for level in unit.levels:
        before, size_kb = nodes[level.input_task], task_resources(workflow, level.input_task).size_per_event_kb
        found[level.task] = [ceil(sum(before[number].events for number in node.reads) * size_kb) for node in level.nodes]
    return found


def merge_request(unit: WorkUnitSpec, *, max_merge_bytes: int) -> SlotRequest:
    """Slot of a merge: room for one merged file beside its inputs, since one at a time is made, and time to copy all of them."""
    total_bytes = sum(unit.estimated_output_bytes.values())
    largest_bytes = min(max_merge_bytes, ESTIMATE_MARGIN * total_bytes)
    seconds = MIN_WALL_MINUTES * 60 + 2 * total_bytes / MERGE_BYTES_PER_SECOND
    return SlotRequest(BASE_DISK_KB + ceil(2 * largest_bytes / 1024), _wall_minutes(seconds))


#: Slot of a cleanup.
CLEANUP_REQUEST = SlotRequest(BASE_DISK_KB, MIN_WALL_MINUTES)


def bytes_per_event(workflow: WorkflowSpec, *, measured: Mapping[str, float] | None = None) -> dict[str, float]:
    """Output bytes of each dataset for every event that the first task's jobs work on.

    A request only knows the sum over a task's tiers, so the first round gives each of its kept outputs an equal share;
    filters before a task make its outputs smaller. ``measured`` (dataset -> bytes per event) replaces that where an earlier
    round has numbers.
    """
    shares = {FIRST_TASK: 1.0} | {plan.task: float(plan.share) for plan in level_plans(workflow)}
    sizes: dict[str, float] = {}
    for task in all_tasks(workflow):
        datasets = {output.dataset for output in workflow.outputs if output.step in task.steps}
        for dataset in datasets:
            size = task.resources.size_per_event_kb * 1024 * shares[task.number] / len(datasets)
            sizes[dataset] = sizes.get(dataset, 0.0) + size
    return {dataset: (measured or {}).get(dataset, sizes[dataset]) for dataset in sorted(sizes)}


class LevelWalls(NamedTuple):
    """What the jobs of one task are expected to take. ``name`` is empty for a request of one task."""

    task: int
    name: str
    algorithm: SplittingAlgo
    jobs: int
    most_events: int
    longest_seconds: float
    total_seconds: float
    too_long: int  # jobs above the wall-clock cap


def level_walls(workflow: WorkflowSpec, units: Iterable[WorkUnitSpec]) -> tuple[LevelWalls, ...]:
    """The expected walls of every task's jobs in ``units``, the first task's first."""
    events: dict[int, list[int]] = {task.number: [] for task in all_tasks(workflow)}
    for unit in units:
        events[FIRST_TASK] += [job.events for job in unit.jobs]
        for level in unit.levels:
            events[level.task] += [node.events for node in level.nodes]
    walls = []
    for task in all_tasks(workflow):
        many, seconds = events[task.number], task.resources.time_per_event_seconds
        most, algorithm = max(many, default=0), workflow.splitting.algorithm if task.number == FIRST_TASK else task.algorithm
        above = sum(each * seconds > MAX_WALL_SECONDS for each in many) if most * seconds > MAX_WALL_SECONDS else 0
        total = sum(many) * seconds
        walls.append(LevelWalls(task.number, task.name, algorithm, len(many), most, most * seconds, total, above))
    return tuple(walls)


def too_long(walls: Iterable[LevelWalls]) -> str | None:
    """What to say when jobs of any task are expected to run longer than the wall-clock cap lets them, else None."""
    found = []
    for level in walls:
        if level.too_long:
            whose = f" of task {level.task} ({level.name})" if level.name else ""
            found.append(
                f"{level.too_long} of the jobs{whose} are expected to take longer than {MAX_WALL_SECONDS / 3600:g} h, which is "
                f"as long as a job may run (the longest {level.longest_seconds / 3600:.1f} h); {_remedy(level)}"
            )
    return "; ".join(found) or None


def _remedy(level: LevelWalls) -> str:
    if level.task == FIRST_TASK:
        return "lower EventsPerJob, LumisPerJob or FilesPerJob, or correct TimePerEvent"
    if level.algorithm.by_file:
        return "it takes whole files: split the task by EventBased or EventAwareLumiBased, or correct its TimePerEvent"
    if level.algorithm.by_event:
        return "lower its EventsPerJob, or correct its TimePerEvent"
    return (
        "a lumi is never cut: lower the task's EventsPerJob or LumisPerJob, give the first task a lower EventsPerLumi, split the "
        "task by EventBased, or correct its TimePerEvent"
    )


def _wall_minutes(seconds: float) -> int:
    """The shortest time only for a job that it leaves its margin (``submitfiles``)."""
    minutes = ceil(seconds / 60)
    shortest = MIN_WALL_MINUTES + (minutes * layout.WALL_FACTOR > MIN_WALL_MINUTES)
    return min(max(minutes, shortest), MAX_WALL_SECONDS // 60)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Memory in MB of a job by task, and the step profile. ``DAG.sizes`` keeps it.

    ``sizes.inc`` is read by HTCondor as a node is submitted, ``step_profile.json`` goes with the job; neither is among the
    rendered, immutable files.
    """

    memory_mb: dict[int, int] = field(default_factory=dict)
    profile: StepProfile = field(default_factory=StepProfile)

    def files(self) -> dict[str, str]:
        """Name in the DAG's directory -> text."""
        macros = "".join(f"{memory_macro(task)} = {memory}\n" for task, memory in sorted(self.memory_mb.items()))
        return {
            layout.SIZES_INCLUDE: macros,
            layout.STEP_PROFILE_FILE: json.dumps(to_json(self.profile), indent=1) + "\n",
        }


_ADAPTER = TypeAdapter(Sizes)


def memory_macro(task: int) -> str:
    """The macro of ``sizes.inc`` that holds a task's memory."""
    return f"TASK_{task}_MEMORY_MB"


def sizes_of(workflow: WorkflowSpec, profile: StepProfile) -> Sizes:
    """What the jobs of a workflow ask for."""
    return Sizes({task.number: task.resources.memory_mb for task in all_tasks(workflow)}, profile)


def after(before: Sizes, now: Sizes) -> Sizes:
    """``now``, its profile with the version that follows ``before``'s: one higher if it says anything else."""
    changed = now.profile.steps != before.profile.steps
    return replace(now, profile=replace(now.profile, version=before.profile.version + changed))


def sizes_to_json(sizes: Sizes) -> dict[str, Any]:
    """The form kept in the row."""
    dumped: dict[str, Any] = _ADAPTER.dump_python(sizes, mode="json")
    return dumped


def sizes_from_json(stored: Mapping[str, Any]) -> Sizes:
    """Out of the row."""
    return _ADAPTER.validate_python(stored)
