"""``job.json`` (what all jobs of a DAG share) and ``unit.json`` (the jobs of one work unit), as frozen values.

Owns the reading of the planner's two documents; ``docs/payload-contract.md`` has their schemas. Ranges are inclusive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Union
from uuid import UUID

from . import codes, lumis
from .codes import PayloadError
from .formats import JOB_FILE, JOB_SCHEMA, UNIT_FILE, UNIT_SCHEMA
from .lumis import LumiSet
from .reading import Value, load_document

#: How files of an output are merged: EDM files, NanoAOD kept in EDM files, DQM's own format, and plain trees.
EDM, NANO, DQMIO, PLAIN = MERGE_KINDS = ("edm", "nano", "dqmio", "plain")


@dataclass(frozen=True)
class Pileup:
    """A dataset that a step mixes in; its files are in ``pileup.json``."""

    kind: str  # "mc" or "data"
    dataset: str


@dataclass(frozen=True)
class Step:
    """One cmsRun of the chain; ``input_step`` None reads the job's input or generates."""

    number: int
    name: str
    pset: str
    cmssw_version: str
    scram_arch: tuple[str, ...]
    global_tag: str
    threads: int
    event_streams: int
    input_step: str | None
    input_module: str | None
    output_modules: tuple[str, ...]
    seeding: str
    pileup: tuple[Pileup, ...] = ()
    deterministic_pileup: bool = False


@dataclass(frozen=True)
class Output:
    """A kept output of a step: the dataset its merged files belong to, and where files are named."""

    step: str
    module: str
    tier: str
    dataset: str
    merged_lfn_base: str
    unmerged_lfn_base: str
    merge: str  # one of MERGE_KINDS


@dataclass(frozen=True)
class Transient:
    """An output that a later task reads and nobody keeps: staged out beside the kept ones, never merged, removed at the end."""

    step: str
    module: str
    unmerged_lfn_base: str
    dataset: str = ""


#: What a job stages out.
Staged = Union[Output, Transient]


@dataclass(frozen=True)
class Task:
    """Steps that run in one job; the first step of a later task reads files that jobs of an earlier one staged out."""

    number: int  # from 1; a task comes after the one it reads
    name: str
    steps: tuple[str, ...]
    input_step: str | None
    input_module: str | None


@dataclass(frozen=True)
class MergeLimits:
    """Sizes of merged files, in bytes and events."""

    min_bytes: int
    max_bytes: int
    max_events: int


@dataclass(frozen=True)
class JobDocument:
    """What the jobs of one DAG share."""

    instance: str
    request_name: str
    workflow_id: UUID
    dag_id: str
    round_index: int
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    merge: MergeLimits
    trust_pileup_sitelists: bool = False
    tasks: tuple[Task, ...] = ()  # never empty once read
    transients: tuple[Transient, ...] = ()

    def staged_by(self, step: str) -> dict[str, Staged]:
        """Outputs of one step that are staged out, by module label."""
        every: tuple[Staged, ...] = (*self.outputs, *self.transients)
        return {output.module: output for output in every if output.step == step}

    def task(self, number: int) -> Task:
        """A task by its number; PayloadError when there is none."""
        for task in self.tasks:
            if task.number == number:
                return task
        raise PayloadError(codes.INVALID_DOCUMENT, f"{JOB_FILE}: there is no task {number}")

    def steps_of(self, number: int) -> tuple[Step, ...]:
        """The steps of a task, in order."""
        names = self.task(number).steps
        return tuple(step for step in self.steps if step.name in names)

    def task_of(self, step: str) -> int:
        """Number of the task that runs a step."""
        return next(task.number for task in self.tasks if step in task.steps)


@dataclass(frozen=True)
class Generate:
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
        return {(self.run, lumi) for lumi in range(self.first_lumi, self.last_lumi + 1)}


@dataclass(frozen=True)
class InputFile:
    """An input file of a job; the event range counts from 0 inside the file and is None for the whole file."""

    lfn: str
    events: int
    first_event: int | None
    last_event: int | None
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Share:
    """Part ``part`` (from 0) of ``parts`` of the one file that a node of a later task reads."""

    part: int
    parts: int
    by_lumi: bool


@dataclass(frozen=True)
class UnitJob:
    """What one processing node does: generate, read files (under a lumi mask when ``mask`` is not None), or read what the
    nodes ``reads`` of an earlier task left, whole or a ``share`` of it."""

    node: str
    events: int
    generate: Generate | None
    files: tuple[InputFile, ...]
    mask: tuple[tuple[int, int, int], ...] | None  # (run, first, last)
    task: int = 1
    reads: tuple[str, ...] = ()
    share: Share | None = None
    mixed_before: int | None = None  # events of deterministic pileup that the jobs before this one mix

    @property
    def mask_lumis(self) -> LumiSet:
        """All (run, lumi) of the mask; empty without one."""
        return {(run, lumi) for run, first, last in self.mask or () for lumi in range(first, last + 1)}


@dataclass(frozen=True)
class Origins:
    """Nodes of the first task behind a file, in the unit's order; ``shared`` when other files hold other parts of their work."""

    nodes: tuple[str, ...]
    shared: bool


@dataclass(frozen=True)
class UnitDocument:
    """One work unit."""

    unit: str
    index: int
    jobs: tuple[UnitJob, ...]

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
    """Read ``job.json`` in ``directory``; PayloadError names the field that is wrong."""
    document = load_document(directory / JOB_FILE, JOB_SCHEMA)
    try:
        workflow_id = UUID(document["workflow_id"].text())
    except ValueError:
        raise document["workflow_id"].refuse("expected a UUID") from None
    merge = document["merge"]
    job = JobDocument(
        instance=document["instance"].text(),
        request_name=document["request_name"].text(),
        workflow_id=workflow_id,
        dag_id=document["dag_id"].text(),
        round_index=document["round"].integer(),
        steps=tuple(_step(item) for item in document["steps"].items()),
        outputs=tuple(_output(item) for item in document["outputs"].items()),
        merge=MergeLimits(merge["min_bytes"].integer(), merge["max_bytes"].integer(), merge["max_events"].integer()),
        trust_pileup_sitelists=_flag(document, "trust_pileup_sitelists"),
        tasks=_tasks(document),
        transients=_transients(document),
    )
    _check_chain(job, document)
    _check_tasks(job, document)
    return job


def _tasks(document: Value) -> tuple[Task, ...]:
    """The tasks; one of all steps where the document names none."""
    tasks = document.get("tasks")
    if tasks is None:
        return (Task(1, "", tuple(step["name"].text() for step in document["steps"].items()), None, None),)
    return tuple(_task(item) for item in tasks.items())


def _task(item: Value) -> Task:
    input_step, input_module = item.get("input_step"), item.get("input_module")
    return Task(
        number=item["number"].integer(),
        name=item["name"].text(),
        steps=item["steps"].texts(),
        input_step=input_step.text() if input_step else None,
        input_module=input_module.text() if input_module else None,
    )


def _transients(document: Value) -> tuple[Transient, ...]:
    transients = document.get("transient")
    return tuple(
        Transient(item["step"].text(), item["module"].text(), item["unmerged_lfn_base"].text())
        for item in (transients.items() if transients else ())
    )


def _step(item: Value) -> Step:
    input_step, input_module, pileup = item.get("input_step"), item.get("input_module"), item.get("pileup")
    return Step(
        number=item["number"].integer(),
        name=item["name"].text(),
        pset=item["pset"].text(),
        cmssw_version=item["cmssw_version"].text(),
        scram_arch=item["scram_arch"].texts(),
        global_tag=item["global_tag"].text(),
        threads=item["threads"].integer(),
        event_streams=item["event_streams"].integer(),
        input_step=input_step.text() if input_step else None,
        input_module=input_module.text() if input_module else None,
        output_modules=item["output_modules"].texts(),
        seeding=item["seeding"].text(),
        pileup=tuple(_pileup(each) for each in pileup.items()) if pileup else (),
        deterministic_pileup=_flag(item, "deterministic_pileup"),
    )


def _pileup(item: Value) -> Pileup:
    kind = item["kind"]
    if kind.text() not in ("mc", "data"):
        raise kind.refuse(f"pileup is mc or data, not {kind.text()!r}")
    return Pileup(kind.text(), item["dataset"].text())


def _flag(item: Value, name: str) -> bool:
    """An optional field that is false when it is absent."""
    value = item.get(name)
    return value is not None and value.boolean()


def _output(item: Value) -> Output:
    merge = item["merge"].text()
    if merge not in MERGE_KINDS:
        raise item["merge"].refuse(f"expected one of {', '.join(MERGE_KINDS)}")
    return Output(
        step=item["step"].text(),
        module=item["module"].text(),
        tier=item["tier"].text(),
        dataset=item["dataset"].text(),
        merged_lfn_base=item["merged_lfn_base"].text(),
        unmerged_lfn_base=item["unmerged_lfn_base"].text(),
        merge=merge,
    )


def _check_chain(job: JobDocument, document: Value) -> None:
    """Every step after the first reads a module of an earlier step, and every kept output is a module of a step."""
    seen: dict[str, tuple[str, ...]] = {}
    for step, item in zip(job.steps, document["steps"].items()):
        if step.name in seen:
            raise item.refuse(f"the step name {step.name!r} appears twice")
        if step.input_step is not None and step.input_module not in seen.get(step.input_step, ()):
            raise item.refuse(f"reads module {step.input_module!r} of step {step.input_step!r}, which no earlier step writes")
        if step.input_step is None and seen:
            raise item.refuse("only the first step may be without input_step")
        seen[step.name] = step.output_modules
    if not seen:
        raise document["steps"].refuse("there is no step")
    for output, item in zip(job.outputs, document["outputs"].items()):
        if output.module not in seen.get(output.step, ()):
            raise item.refuse(f"step {output.step!r} has no output module {output.module!r}")


def _check_tasks(job: JobDocument, document: Value) -> None:
    """Every step is in one task, and each task but the first begins with a staged-out output of an earlier one."""
    ran = [name for task in job.tasks for name in task.steps]
    if sorted(ran) != sorted(step.name for step in job.steps):
        raise document["tasks"].refuse("every step has to be in exactly one task")
    if [task.number for task in job.tasks] != list(range(1, len(job.tasks) + 1)):
        raise document["tasks"].refuse("tasks have to be numbered from 1, in order")
    for task in job.tasks[1:]:
        item = document["tasks"]
        first = job.steps_of(task.number)[0]
        if (first.input_step, first.input_module) != (task.input_step, task.input_module) or first.input_step in task.steps:
            raise item.refuse(f"task {task.number} has to begin with what it reads, {task.input_step}/{task.input_module}")
        if job.task_of(first.input_step or "") >= task.number:
            raise item.refuse(f"task {task.number} reads a task that does not come before it")
        if first.input_module not in job.staged_by(first.input_step or ""):
            raise item.refuse(f"task {task.number} reads {task.input_step}/{task.input_module}, which is not staged out")


def read_unit(directory: Path) -> UnitDocument:
    """Read ``unit.json`` in ``directory``; PayloadError names the field that is wrong."""
    document = load_document(directory / UNIT_FILE, UNIT_SCHEMA)
    jobs: list[UnitJob] = []
    for item in document["jobs"].items():
        job = _unit_job(item)
        if not set(job.reads) <= {before.node for before in jobs}:
            raise item["reads"].refuse(f"{job.node} reads a node that does not come before it")
        jobs.append(job)
    return UnitDocument(unit=document["unit"].text(), index=document["index"].integer(), jobs=tuple(jobs))


def _unit_job(item: Value) -> UnitJob:
    generate, mask, task, reads = item.get("generate"), item.get("mask"), item.get("task"), item.get("reads")
    share, mixed = item.get("share"), item.get("mixed_before")
    job = UnitJob(
        node=item["node"].text(),
        events=item["events"].integer(),
        generate=_generate(generate) if generate else None,
        files=tuple(_input_file(each) for each in item["files"].items()),
        mask=tuple(lumis.range_triples(mask)) if mask else None,
        task=task.integer() if task else 1,
        reads=reads.texts() if reads else (),
        share=_share(share) if share else None,
        mixed_before=mixed.integer() if mixed else None,
    )
    if job.share is not None and len(job.reads) != 1:
        raise item.refuse("a share needs a job that reads one node")
    if [job.generate is not None, bool(job.files), bool(job.reads)].count(True) != 1:
        raise item.refuse("a job either generates or reads files, its own or those of other nodes")
    if len(job.files) > 1 and any(file.first_event is not None for file in job.files):
        raise item["files"].refuse("an event range needs a job with one file")
    return job


def _share(item: Value) -> Share:
    share = Share(item["part"].integer(), item["parts"].integer(), item["by"].text() == "lumis")
    if not 0 <= share.part < share.parts:
        raise item.refuse(f"there is no part {share.part} of {share.parts}, they count from 0")
    return share


def _generate(item: Value) -> Generate:
    names = ("run", "first_event", "last_event", "first_lumi", "last_lumi", "events_per_lumi")
    generate = Generate(*(item[name].integer() for name in names))
    needed = -(-generate.events // generate.events_per_lumi) if generate.events_per_lumi > 0 else 0
    if generate.events < 1 or generate.last_lumi - generate.first_lumi + 1 != needed:
        raise item.refuse(
            f"{generate.events} events of {generate.events_per_lumi} a lumi need {needed} lumis, and at least 1 event"
        )
    return generate


def _input_file(item: Value) -> InputFile:
    first, last = item.get("first_event"), item.get("last_event")
    return InputFile(
        lfn=item["lfn"].text(),
        events=item["events"].integer(),
        first_event=first.integer() if first else None,
        last_event=last.integer() if last else None,
        parents=item["parents"].texts(),
    )
