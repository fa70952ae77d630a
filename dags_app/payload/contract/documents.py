"""``job.json`` (what all jobs of a DAG share) and ``unit.json`` (the jobs of one work unit), as frozen values.

Owns the planner's two documents: it writes these values, the payload reads them. ``docs/payload-contract.md`` has their schemas.
Ranges are inclusive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Optional, Union
from uuid import UUID

from . import codes, lumis
from .codes import PayloadError
from .convert import Json, one_of, read
from .layout import JOB_FILE, JOB_SCHEMA, UNIT_FILE, UNIT_SCHEMA
from .lumis import LumiSet
from .reading import Value, load_document

#: How files of an output are merged: EDM files, NanoAOD kept in EDM files, DQM's own format, and plain trees.
EDM, NANO, DQMIO, PLAIN = MERGE_KINDS = ("edm", "nano", "dqmio", "plain")


#: Seconds between the tries of a file: an outage of minutes must not cost what took hours to make.
STAGE_OUT_PAUSES: tuple[float, ...] = (60, 300, 600)


def _read_id(value: Value) -> UUID:
    try:
        return UUID(value.text())
    except ValueError:
        raise value.refuse("expected a UUID") from None


class Pileup(NamedTuple):
    """A dataset that a step mixes in; its files are in ``pileup.json``."""

    kind: Annotated[str, one_of("mc", "data")]  # as in the PSet's mixing modules
    dataset: str


class Step(NamedTuple):
    """One cmsRun of the chain; ``input_step`` None reads the job's input or generates."""

    number: int
    name: str
    pset: str
    cmssw_version: str
    scram_arch: tuple[str, ...]
    global_tag: str
    threads: int
    event_streams: int
    input_step: Optional[str]
    input_module: Optional[str]
    keep_output: Annotated[bool, Json(absent=True)]
    output_modules: tuple[str, ...]
    seeding: str
    pileup: tuple[Pileup, ...] = ()
    deterministic_pileup: bool = False

    def left_out(self) -> Collection[str]:
        """Fields that are not written."""
        return () if self.pileup else ("pileup", "deterministic_pileup")


class Output(NamedTuple):
    """A kept output of a step: the dataset its merged files belong to, and where files are named."""

    step: str
    module: str
    tier: str
    dataset: str
    merged_lfn_base: str
    unmerged_lfn_base: str
    merge: Annotated[str, one_of(*MERGE_KINDS)]


@dataclass(frozen=True)
class Transient:
    """An output that only a later task reads: staged out beside the kept ones, never merged, removed at the end."""

    step: str
    module: str
    unmerged_lfn_base: str
    dataset: ClassVar[str] = ""


#: What a job stages out.
Staged = Union[Output, Transient]


class Task(NamedTuple):
    """Steps that run in one job; the first step of a later task reads files that jobs of an earlier one staged out."""

    number: int  # from 1; a task comes after the one it reads
    name: str
    steps: tuple[str, ...]
    input_step: Optional[str]
    input_module: Optional[str]


class MergeLimits(NamedTuple):
    """Sizes of merged files, in bytes and events."""

    min_bytes: int
    max_bytes: int
    max_events: int


@dataclass(frozen=True)
class JobDocument:
    """What the jobs of one DAG share. ``tasks`` is never empty once read; one task of all steps is not written."""

    SCHEMA: ClassVar[str] = JOB_SCHEMA

    instance: str
    request_name: str
    workflow_id: Annotated[UUID, Json(read=_read_id, write=str)]
    dag_id: str
    round_index: Annotated[int, Json(key="round")]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    tasks: Annotated[tuple[Task, ...], Json(absent=())]
    transients: Annotated[tuple[Transient, ...], Json(key="transient", absent=())]
    trust_pileup_sitelists: Annotated[bool, Json(absent=False)]
    stage_out_pauses_seconds: Annotated[tuple[float, ...], Json(absent=STAGE_OUT_PAUSES)]
    merge: MergeLimits

    def left_out(self) -> Collection[str]:
        """Fields that are not written."""
        left = [] if len(self.tasks) > 1 else ["tasks", "transients"]
        left += [] if any(step.pileup for step in self.steps) else ["trust_pileup_sitelists"]
        return left if self.stage_out_pauses_seconds != STAGE_OUT_PAUSES else [*left, "stage_out_pauses_seconds"]

    def problem(self) -> str:
        """What is wrong with the chain of its steps, or with its tasks."""
        return self._problem_of_steps() or (self._problem_of_tasks() if self.tasks else "")

    def _problem_of_steps(self) -> str:
        """Every step after the first reads a module of an earlier step, and every kept output is a module of a step."""
        seen: dict[str, tuple[str, ...]] = {}
        for step in self.steps:
            if step.name in seen:
                return f"the step name {step.name!r} appears twice"
            if step.input_step is None and seen:
                return f"{step.name!r}: only the first step may be without input_step"
            if step.input_step is not None and step.input_module not in seen.get(step.input_step, ()):
                source = f"module {step.input_module!r} of step {step.input_step!r}"
                return f"{step.name!r} reads {source}, which no earlier step writes"
            seen[step.name] = step.output_modules
        absent = (each for each in self.outputs if each.module not in seen.get(each.step, ()))
        missing = next((f"step {each.step!r} has no output module {each.module!r}" for each in absent), "")
        return missing if seen else "there is no step"

    def _problem_of_tasks(self) -> str:
        """Every step is in one task, and each task but the first begins with a staged-out output of an earlier one."""
        if sorted(name for task in self.tasks for name in task.steps) != sorted(step.name for step in self.steps):
            return "every step has to be in exactly one task"
        if [task.number for task in self.tasks] != list(range(1, len(self.tasks) + 1)):
            return "tasks have to be numbered from 1, in order"
        for task in self.tasks[1:]:
            first = self.steps_of(task.number)[0]
            if (first.input_step, first.input_module) != (task.input_step, task.input_module) or first.input_step in task.steps:
                return f"task {task.number} has to begin with what it reads, {task.input_step}/{task.input_module}"
            if self.task_of(first.input_step or "") >= task.number:
                return f"task {task.number} reads a task that does not come before it"
            if first.input_module not in self.staged_by(first.input_step or ""):
                return f"task {task.number} reads {task.input_step}/{task.input_module}, which is not staged out"
        return ""

    def staged_by(self, step: str) -> dict[str, Staged]:
        """Outputs of one step that are staged out, by module label."""
        every: tuple[Staged, ...] = (*self.outputs, *self.transients)
        return {output.module: output for output in every if output.step == step}

    def task(self, number: int) -> Task:
        """A task by its number; PayloadError when there is none."""
        found = next((task for task in self.tasks if task.number == number), None)
        if found is None:
            raise PayloadError(codes.INVALID_DOCUMENT, f"{JOB_FILE}: there is no task {number}")
        return found

    def steps_of(self, number: int) -> tuple[Step, ...]:
        """The steps of a task, in order."""
        names = self.task(number).steps
        return tuple(step for step in self.steps if step.name in names)

    def task_of(self, step: str) -> int:
        """Number of the task that runs a step."""
        return next(task.number for task in self.tasks if step in task.steps)


class Generate(NamedTuple):
    """Event and lumi numbers one job generates, in one run."""

    run: int
    first_event: int
    last_event: int
    first_lumi: int
    last_lumi: int
    events_per_lumi: int

    @property
    def events(self) -> int:
        """Number of events."""
        return self.last_event - self.first_event + 1

    @property
    def lumis(self) -> LumiSet:
        """All (run, lumi)."""
        return lumis.expand([(self.run, self.first_lumi, self.last_lumi)])

    def problem(self) -> str:
        """What is wrong with the numbers."""
        needed = -(-self.events // self.events_per_lumi) if self.events_per_lumi > 0 else 0
        if self.events < 1 or self.last_lumi - self.first_lumi + 1 != needed:
            return f"{self.events} events of {self.events_per_lumi} a lumi need {needed} lumis, and at least 1 event"
        return ""


class InputFile(NamedTuple):  # a tuple: there is one for each file of each job, and tuples are made in half the time
    """An input file of a job; the event range counts from 0 inside the file and is None for the whole file."""

    lfn: str
    size_bytes: Annotated[int, Json(absent=0)]
    events: int
    first_event: Optional[int] = None
    last_event: Optional[int] = None
    parents: tuple[str, ...] = ()


class Share(NamedTuple):
    """Part ``part`` (from 0) of ``parts`` of the one file that a node of a later task reads: whole lumis, or a range of events.

    What that is follows from what the file really holds.
    """

    part: int
    parts: int
    by_lumi: Annotated[
        bool, Json(key="by", read=lambda value: value.text() == "lumis", write=lambda held: "lumis" if held else "events")
    ]

    def problem(self) -> str:
        """What is wrong with the numbers."""
        return "" if 0 <= self.part < self.parts else f"there is no part {self.part} of {self.parts}, they count from 0"


#: (run, first, last) of every interval.
Mask = Annotated[
    tuple[tuple[int, int, int], ...], Json(read=lambda ranges: tuple(lumis.range_triples(ranges)), write=lumis.compact_ranges)
]


class UnitJob(NamedTuple):
    """What one processing node does: generate, read files (under a lumi mask when ``mask`` is not None), or read what the
    nodes ``reads`` of an earlier task left, whole or a ``share`` of it."""

    node: str
    task: Annotated[int, Json(absent=1)]
    events: int
    reads: Annotated[tuple[str, ...], Json(absent=())]
    share: Optional[Share]
    generate: Optional[Generate]
    files: tuple[InputFile, ...]
    mask: Optional[Mask]
    mixed_before: Optional[int]  # events of deterministic pileup that the jobs before this one mix

    @property
    def mask_lumis(self) -> LumiSet:
        """All (run, lumi) of the mask; empty without one."""
        return lumis.expand(self.mask or ())

    def left_out(self) -> Collection[str]:
        """Fields that are not written."""
        return [name for name in ("reads", "share", "mixed_before") if getattr(self, name) in ((), None)]

    def problem(self) -> str:
        """What is wrong with what the job is given."""
        if self.share is not None and len(self.reads) != 1:
            return "a share needs a job that reads one node"
        if [self.generate is not None, bool(self.files), bool(self.reads)].count(True) != 1:
            return "a job either generates or reads files, its own or those of other nodes"
        if len(self.files) > 1 and any(file.first_event is not None for file in self.files):
            return "an event range needs a job with one file"
        return ""


class Origins(NamedTuple):
    """Nodes of the first task behind a file, in the unit's order; ``shared`` when other files hold other parts of their work."""

    nodes: tuple[str, ...]
    shared: bool


@dataclass(frozen=True)
class UnitDocument:
    """One work unit."""

    SCHEMA: ClassVar[str] = UNIT_SCHEMA

    unit: str
    index: int
    jobs: tuple[UnitJob, ...]

    def problem(self) -> str:
        """What is wrong with the order of its jobs."""
        before: set[str] = set()
        for job in self.jobs:
            if not before.issuperset(job.reads):
                return f"{job.node} reads a node that does not come before it"
            before.add(job.node)
        return ""

    def job(self, node: str) -> UnitJob:
        """The job of a node; PayloadError when the unit has no such node."""
        for job in self.jobs:
            if job.node == node:
                return job
        raise PayloadError(codes.INVALID_DOCUMENT, f"{UNIT_FILE}: {self.unit} has no node {node!r}")

    def origins(self, nodes: Iterable[str]) -> Origins:
        """The first task's nodes whose work is in what ``nodes`` wrote."""
        found: set[str] = set()
        shared = False
        waiting = [self.job(node) for node in nodes]
        while waiting:
            job = waiting.pop()
            found.update(() if job.reads else (job.node,))
            shared = shared or job.share is not None
            waiting += [self.job(node) for node in job.reads]
        return Origins(tuple(job.node for job in self.jobs if job.node in found), shared)


def read_job(directory: Path) -> JobDocument:
    """Read ``job.json`` in ``directory``; PayloadError names what is wrong."""
    job = read(load_document(directory / JOB_FILE, JOB_SCHEMA), JobDocument)
    return job if job.tasks else replace(job, tasks=(Task(1, "", tuple(step.name for step in job.steps), None, None),))


def read_unit(directory: Path) -> UnitDocument:
    """Read ``unit.json`` in ``directory``; PayloadError names what is wrong."""
    return read(load_document(directory / UNIT_FILE, UNIT_SCHEMA), UnitDocument)
