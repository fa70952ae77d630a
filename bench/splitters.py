"""Splitting, grouping into units and writing, each apart and together, without a database; and a mask of 20 million lumis.

Jobs a second are jobs by CPU second of this process, the kernel's part included, the input made beforehand. *disk* is planned and
written, the figure that compares with other planners; *ready* writes the same bytes, made beforehand, with nothing else.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dags_app.planning import sizing, work_units, writer
from dags_app.planning.specs import (
    DagLimits,
    DagSpec,
    GenerationSpec,
    InputFileSpec,
    InputSpec,
    JobSpec,
    LumiRanges,
    OutputSpec,
    ResourceSpec,
    SplittingAlgo,
    SplittingSpec,
    StepSpec,
    WorkflowSpec,
    WorkUnitSpec,
)
from dags_app.planning.splitters import split

JOBS = (10_000, 100_000)
SITES = ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue")
JOBS_PER_WORK_UNIT = 8
WORKFLOW_ID = "00000000-0000-4000-8000-000000000001"
#: Units of the DAG that is written: as many as one may have.
UNITS_PER_DAG = 5000


def workflow(
    splitting: SplittingSpec, *, generation: GenerationSpec | None = None, lumi_list: LumiRanges | None = None
) -> WorkflowSpec:
    """One step, one output."""
    output = OutputSpec(
        "Step", "out", "AOD", "/Bench/Era-Proc-v1/AOD", "/store/mc/Era/Bench/AOD/Proc-v1",
        "/store/unmerged/Era/Bench/AOD/Proc-v1", "Bench", "Era-Proc-v1", "Era", "Proc", 1,
    )  # fmt: skip
    return WorkflowSpec(
        request_name="bench",
        campaign="Bench",
        steps=(StepSpec(1, "Step", "c", "CMSSW_14_0_0", ("el8_amd64_gcc12",), "GT", 1, 0, output_modules=("out",)),),
        outputs=(output,),
        resources=ResourceSpec(1, 2000, 1.0, 10.0),
        splitting=splitting,
        generation=generation,
        input=None if generation else InputSpec("/Bench/Era-v1/RAW", lumi_list=lumi_list or {}),
        site_whitelist=SITES,
    )


def files(count: int, events: int, lumis: int = 1) -> list[InputFileSpec]:
    """Input files at the three sites in turn, LFNs ascending, each with the next lumis of a run of 1000 files."""
    locations = [frozenset({site}) for site in SITES]
    made = []
    for n in range(count):
        lfn = f"/store/data/Era/Bench/RAW/v1/000/000/001/00000/{n:09d}.root"
        first = n % 1000 * lumis + 1
        made.append(InputFileSpec(lfn, 10**9, events, {n // 1000 + 1: ((first, first + lumis - 1),)}, locations[n % 3]))
    return made


@dataclass(frozen=True, slots=True)
class Case:
    """A request and its input."""

    name: str
    spec: WorkflowSpec
    files: Sequence[InputFileSpec] = ()

    def jobs(self) -> Iterator[JobSpec]:
        """A new plan."""
        return (item for item in split(self.spec, self.files) if isinstance(item, JobSpec))


def cases(jobs: int) -> Iterator[Case]:
    """Each algorithm with about so many jobs: FileBased two files a job, by lumis 3 jobs (of 8 lumis, 100 events) to 2 files."""
    generation = GenerationSpec(1, 1, 1, 100 * jobs, 100, 10)
    algo = SplittingAlgo
    yield Case("generation", workflow(SplittingSpec(algo.EVENT_BASED, events_per_job=100), generation=generation))
    yield Case("FileBased", workflow(SplittingSpec(algo.FILE_BASED, files_per_job=2)), files(2 * jobs, 100))
    yield Case("EventBased", workflow(SplittingSpec(algo.EVENT_BASED, events_per_job=100)), files(jobs // 10, 1000))
    some = files(2 * jobs // 3, 150, 12)
    yield Case("LumiBased", workflow(SplittingSpec(algo.LUMI_BASED, lumis_per_job=8)), some)
    yield Case("EventAwareLumi", workflow(SplittingSpec(algo.EVENT_AWARE_LUMI_BASED, events_per_job=100)), some)


def main() -> None:
    """Print a table for each size, the ratios between the sizes, and the large mask."""
    columns = ("split/s", "group/s", "plan/s", "write/s", "disk/s", "ready/s", "write s", "ready s", "ratio", "files/job")
    print(f"{'algorithm':14} {'jobs':>8} {'written':>8}" + "".join(f"{each:>10}" for each in columns))
    # Nothing is removed before the end: ext4 does not take an inode again for minutes, and to look at each of those that were
    # freed cost the next files ten times what a file costs.
    with tempfile.TemporaryDirectory() as directory:
        small, large = ({case.name: _measure(case, Path(directory)) for case in cases(jobs)} for jobs in JOBS)
    for name in small:
        print(f"{name:14} plan rate at {JOBS[1]:,} over {JOBS[0]:,} jobs: {large[name] / small[name]:.2f}")
    _large_mask()


def _cpu_seconds(work: Callable[[], object]) -> float:
    gc.collect()
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _units(spec: WorkflowSpec, jobs: Iterator[JobSpec]) -> Iterator[WorkUnitSpec]:
    return work_units.group_jobs(jobs, jobs_per_work_unit=JOBS_PER_WORK_UNIT, bytes_per_event=sizing.bytes_per_event(spec))


def _measure(case: Case, parent: Path) -> float:
    """Splitting and grouping alone with nothing kept; planning is both, all units kept; jobs planned a second of CPU time."""
    gc.freeze()  # the input: a planner reads it from rows, and Python's cycle collector shall not walk it over and over
    split_seconds = _cpu_seconds(lambda: deque(case.jobs(), maxlen=0))
    jobs = list(case.jobs())
    count, waiting = len(jobs), iter(jobs)
    group_seconds = _cpu_seconds(lambda: deque(_units(case.spec, waiting), maxlen=0))
    jobs.clear()
    units: list[WorkUnitSpec] = []
    plan_seconds = _cpu_seconds(
        lambda: units.extend(work_units.fill_dag(_units(case.spec, case.jobs()), max_units=count, max_nodes=10**9).units)
    )
    dag = tuple(units[:UNITS_PER_DAG])
    written = sum(len(unit.jobs) for unit in dag)
    write_seconds, directory, made = _write(case.spec, dag, parent / f"{case.name}-{count}")
    ready_seconds = _write_ready(directory)
    rates = (
        count / split_seconds, count / group_seconds, count / plan_seconds, written / write_seconds,
        written / (plan_seconds * written / count + write_seconds), written / ready_seconds,
    )  # fmt: skip
    print(
        f"{case.name:14} {count:8,} {written:8,}" + "".join(f"{rate:10,.0f}" for rate in rates),
        f"{write_seconds:9.3f}{ready_seconds:10.3f}{write_seconds / ready_seconds:10.2f}{made / written:10.3f}",
        flush=True,
    )
    return count / plan_seconds


def _write(spec: WorkflowSpec, units: tuple[WorkUnitSpec, ...], parent: Path) -> tuple[float, Path, int]:
    """CPU time of writing one DAG; its directory and number of files."""
    programs = writer.Programs(payload=b"#!/usr/bin/env python3\n", sandbox=b"sandbox", rules=b"{}")
    made: list[writer.WrittenDag] = []

    def write() -> None:
        dag = DagSpec("bench-dag", WORKFLOW_ID, "bench", 0, spec, units, DagLimits())
        made.append(writer.write_dag_directory(dag, programs, parent=parent))

    seconds = _cpu_seconds(write)
    directory = made[0].directory
    return seconds, directory, sum(path.is_file() for path in directory.rglob("*"))


def _write_ready(directory: Path) -> float:
    """CPU time of writing the directories and files of ``directory`` beside it and bringing them to disk."""
    paths = sorted(directory.rglob("*"))
    copy = directory.with_name("ready")
    directories = [copy / path.relative_to(directory) for path in paths if path.is_dir()]
    ready = {str(copy / path.relative_to(directory)): path.read_bytes() for path in paths if path.is_file()}

    def write() -> None:
        for made in (copy, *directories):
            made.mkdir()
        for path, data in ready.items():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(descriptor, data)
            os.close(descriptor)
        root = os.open(copy, os.O_RDONLY)
        writer.sync_filesystem(root)
        os.close(root)

    return _cpu_seconds(write)


def _large_mask() -> None:
    """20 million lumis in 10,000 files under a LumiList that wants 9 of each 10 in 20,000 intervals."""
    wanted = {run: tuple((first, first + 899) for first in range(1, 2_000_000, 1000)) for run in range(1, 11)}
    for algorithm in (SplittingAlgo.LUMI_BASED, SplittingAlgo.EVENT_AWARE_LUMI_BASED):
        some = files(10_000, 2000, 2000)
        case = Case(
            algorithm.value, workflow(SplittingSpec(algorithm, lumis_per_job=200, events_per_job=200), lumi_list=wanted), some
        )
        count = 0

        def plan(case: Case = case) -> None:
            nonlocal count
            count = sum(1 for _ in case.jobs())

        seconds = _cpu_seconds(plan)
        tracemalloc.start()
        plan()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(
            f"{algorithm.value}: 20,000,000 lumis in {len(some):,} files, 18,000,000 wanted: {count:,} jobs, "
            f"{count / seconds:,.0f} jobs/s, {peak / 10**6:.0f} MB beyond the input",
            flush=True,
        )
