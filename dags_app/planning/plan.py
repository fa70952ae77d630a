"""One round of a request, planned: what is left of its work becomes jobs and work units of one DAG (spec 4.5).

Pure: everything it rests on is in ``PlanningInput``, everything that follows in ``Plan``; the same input gives the same plan.
Input files may come from an iterator: they are read as jobs are cut, no further than one DAG takes. Asking services, writing the
directory and recording the rows are the caller's (``requests_app.work.planner``); ``report.py`` plans offline with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from dags_app.payload.contract.documents import Generate
from dags_app.planning import sizing
from dags_app.planning.levels import level_plans
from dags_app.planning.pileup import jobs_at, pileup_sites
from dags_app.planning.specs import (
    DagSpec,
    ExcludedFile,
    GenerationLeft,
    InputFileSpec,
    JobSpec,
    RefusedLumi,
    WaitingFile,
    WorkflowSpec,
    WorkUnitSpec,
)
from dags_app.planning.splitters import split
from dags_app.planning.work_units import fill_dag, group_jobs
from wms2.errors import PlanningRefused


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """What a round may take.

    Attributes:
        generation: where a generation goes on; None for all of it, or for work on input.
        parts: input files, taken part by part; the parts share no work. LFNs ascend inside each set of locations of a part.
        waited: LFNs that no job could be planned for before.
        rows: LFN -> key and events of the files that have been read; fills while they are.
    """

    generation: GenerationLeft | None = None
    parts: Sequence[Iterable[InputFileSpec | WaitingFile]] = ()
    waited: frozenset[str] = frozenset()
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The deployment's settings that show in a plan, defaults as in ``wms2.conf``; one DAG's limits only where they are given.

    ``max_work``: the DAG ends with the unit that reaches it, in the unit of ``work_units.work_of``.
    ``full_units``: what does not fill a work unit is left; more of the input may come.
    ``max_jobs`` refuses a plan with more, those of later tasks included: without an end, a file of 10^12 events and one event to
    a job would fill the memory. None where the limits of a DAG end it.
    """

    jobs_per_work_unit: int = 8
    max_units: int = sys.maxsize
    max_nodes: int = sys.maxsize
    max_work: int = sys.maxsize
    max_jobs: int | None = 2_000_000
    full_units: bool = False


@dataclass(frozen=True, slots=True)
class PlanningInput:
    """Everything that a round is planned from.

    Attributes:
        dag: the DAG but for its units.
        bytes_per_event: output dataset -> bytes per event of the first task's jobs, where it was measured.
    """

    dag: DagSpec
    work: WorkLeft
    limits: PlanLimits
    bytes_per_event: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class LeftOut:
    """Files and lumis that no job takes, each with its reason.

    Attributes:
        lumis: also those that can be taken once their files have moved; those files wait.
        waiting: LFN -> why no job can be planned for it now; it is left.
        found: files that waited and that jobs can be planned for.
    """

    files: list[ExcludedFile] = field(default_factory=list)
    lumis: list[RefusedLumi] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.files or self.lumis or self.waiting or self.found)

    @property
    def refused(self) -> list[RefusedLumi]:
        """Lumis that no job will ever take."""
        return [lumi for lumi in self.lumis if not lumi.for_lack_of_site]


class Plan(NamedTuple):
    """What a round comes to.

    Attributes:
        dag: with its units; none when no job can be planned now.
        jobs: of the first task, in the order in which they were cut; may be more than the units take.
        more: work is left for a later round.
    """

    dag: DagSpec
    jobs: Sequence[JobSpec]
    left_out: LeftOut
    walls: tuple[sizing.LevelWalls, ...]
    more: bool

    @property
    def too_long(self) -> str | None:
        """What to say of jobs, at whichever level, that the wall-clock cap is expected to end; None when there are none."""
        return sizing.too_long(self.walls)

    @property
    def generated(self) -> list[Generate]:
        """The numbers that its jobs take."""
        return [job.generate for unit in self.dag.units for job in unit.jobs if job.generate is not None]


def plan(given: PlanningInput) -> Plan:
    """Plan one round.

    Raises:
        PlanningRefused: it cannot be planned as asked.
    """
    spec, limits = given.dag.workflow, given.limits
    sites = pileup_sites(spec, given.dag.pileup)
    left_out, cut = LeftOut(), list[JobSpec]()
    jobs = jobs_at(_within_limit(jobs_of(spec, given.work, left_out), cut, limits.max_jobs), sites)
    units = group_jobs(
        jobs,
        jobs_per_work_unit=limits.jobs_per_work_unit,
        bytes_per_event=sizing.bytes_per_event(spec, measured=given.bytes_per_event),
        levels=level_plans(spec),
    )
    if limits.full_units:
        units = (unit for unit in units if len(unit.jobs) == limits.jobs_per_work_unit)
    units = _few_enough(units, limits.max_jobs)
    filled = fill_dag(units, max_units=limits.max_units, max_nodes=limits.max_nodes, max_work=limits.max_work)
    return Plan(
        dag=replace(given.dag, units=filled.units),
        jobs=cut,
        left_out=left_out,
        walls=sizing.level_walls(spec, filled.units),
        more=filled.more,
    )


def jobs_of(spec: WorkflowSpec, work: WorkLeft, left_out: LeftOut) -> Iterator[JobSpec]:
    """The jobs of what is left, lazily; ``left_out`` fills while they are drawn.

    Raises:
        PlanningRefused: it cannot be planned as asked.
    """
    if spec.generation is not None:
        items = split(spec, generation_left=work.generation)
    else:
        items = chain.from_iterable(split(spec, _readable(files, work.waited, left_out)) for files in work.parts)
    for item in items:
        if isinstance(item, JobSpec):
            yield item
        elif isinstance(item, ExcludedFile):
            left_out.files.append(item)
        else:
            left_out.lumis.append(item)
            if item.for_lack_of_site:
                left_out.waiting |= dict.fromkeys(item.lfns, item.reason)


def _readable(files: Iterable[InputFileSpec | WaitingFile], waited: frozenset[str], left_out: LeftOut) -> Iterator[InputFileSpec]:
    """The files that jobs can read now; those that wait go to ``left_out``."""
    for file in files:
        if isinstance(file, WaitingFile):
            left_out.waiting[file.lfn] = file.reason
            continue
        if file.lfn in waited:
            left_out.found.append(file.lfn)
        yield file


def _within_limit(jobs: Iterator[JobSpec], cut: list[JobSpec], limit: int | None) -> Iterator[JobSpec]:
    for job in jobs:
        cut.append(job)
        _refuse_more(len(cut), limit, "jobs", ", whichever the splitting uses")
        yield job


def _few_enough(units: Iterator[WorkUnitSpec], limit: int | None) -> Iterator[WorkUnitSpec]:
    nodes = 0
    for unit in units:
        nodes += unit.processing_nodes
        _refuse_more(nodes, limit, "jobs with those of later tasks", " of the tasks")
        yield unit


def _refuse_more(many: int, limit: int | None, what: str, whose: str) -> None:
    if limit is not None and many > limit:
        raise PlanningRefused(
            f"the plan has more than {limit} {what}, which is as many as one answer holds; "
            f"raise EventsPerJob, FilesPerJob or LumisPerJob{whose}"
        )
