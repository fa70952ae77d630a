"""What earlier rounds measured, what bounds a sizing, and what it decides: values between the rows and the rules of sizing.

Pure, no Django. Memory in MB of 1024 x 1024 bytes, times in seconds, sizes in bytes. Spec 5.2 to 5.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dags_app.payload.contract.step_profile import StepProfile
from dags_app.planning.levels import FIRST_TASK
from dags_app.planning.specs import WorkflowSpec

#: How input is cut, by the names of the numbers that algorithms read.
CUTS = ("events_per_job", "lumis_per_job", "files_per_job")
#: What may be pinned for one task.
OF_A_TASK = ("memory_mb", "cores", *CUTS)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a quantity is spread over jobs."""

    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class StepMeasured:
    """One step over those jobs of one round that ran it alike (as many processes, as many threads).

    ``wall_seconds`` and ``cpu_seconds`` are sums over the jobs; a job's wall is that of its slot, not of its processes together.
    ``rss_mb`` is of one process at its peak, ``slot_rss_mb`` of all that ran side by side in a job.
    """

    step: str
    round_index: int
    processes: int
    threads: int  # of each process
    jobs: int
    events_read: int
    events_written: int
    wall_seconds: float
    cpu_seconds: float
    job_seconds: Spread
    seconds_per_event: Spread
    rss_mb: Spread
    slot_rss_mb: Spread
    bytes_written: dict[str, int] = field(default_factory=dict)  # output module -> bytes of all jobs
    lumis_read: int = 0  # of a task's first step, by all jobs; 0: not known, so lumis per job stay as hinted
    files_read: int = 0  # likewise


#: How long a job is to take where a round's splitting is sized by what was measured.
TARGET_WALL_SECONDS = 8 * 3600


@dataclass(frozen=True, slots=True)
class SizingLimits:
    """What bounds a sizing: the limits in force, constants, and how units are made where nothing is measured."""

    default_memory_per_core_mb: int
    max_memory_per_core_mb: int
    memory_margin: float = 0.20
    min_jobs: int = 8
    split_below: float = 0.5  # a step that keeps a smaller share of its cores busy runs as several processes
    overcommit_max: float = 1.0  # threads of a step's processes together, as a multiple of the job's cores
    jobs_per_work_unit: int = 8
    max_jobs_per_work_unit: int = 200  # that a sized round merges together at most


@dataclass(frozen=True, slots=True)
class Pins:
    """What an operator has fixed for the request; None, and steps without a layout: it is sized.

    Memory and cores are of the jobs of every task, how input is cut of the first task's; ``tasks`` says by number and name of
    the size what is another for one task.
    """

    memory_mb: int | None = None
    cores: int | None = None
    layouts: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # step -> processes, threads of each
    events_per_job: int | None = None
    lumis_per_job: int | None = None
    files_per_job: int | None = None
    jobs_per_work_unit: int | None = None
    tasks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def of(self, task: int) -> Pins:
        """Those of one task."""
        rest: dict[str, Any] = {} if task == FIRST_TASK else dict.fromkeys(CUTS)
        return replace(self, **{**rest, **self.tasks.get(task, {})})


@dataclass(frozen=True, slots=True)
class Decision:
    """One number that was chosen, as a person reads it: what it was before, what was measured, why, and what bounded it.

    ``what`` is one of cores, memory_mb, time_per_event_seconds, size_per_event_kb, events_per_job, lumis_per_job,
    files_per_job, events_per_lumi, filter_efficiency, jobs_per_work_unit, processes, threads. ``bound`` is empty when nothing
    bounded it.
    """

    what: str
    before: float | None
    measured: float | None
    chosen: float
    why: str
    task: int = 1
    step: str = ""
    bound: str = ""
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Sizing:
    """What a round is planned with, or a rescue submitted with.

    ``workflow`` is the given one with the resources and splitting that were chosen; ``bytes_per_event`` output bytes of each
    dataset for an event of the first task, empty where nothing is measured.
    """

    workflow: WorkflowSpec
    jobs_per_work_unit: int
    bytes_per_event: dict[str, float]
    profile: StepProfile
    decisions: tuple[Decision, ...] = ()
