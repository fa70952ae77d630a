"""Splitting, and splitting with writing: jobs a second, files a job, and where the time goes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dags_app.planning import blocks, sizing, work_units, writer
from dags_app.planning.specs import (
    DagLimits,
    DagSpec,
    GenerationSpec,
    InputFileSpec,
    InputSpec,
    JobSpec,
    OutputSpec,
    PlanItem,
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


def workflow(algorithm: SplittingAlgo, jobs: int, *, generation: bool = False) -> WorkflowSpec:
    """One step, one output; as many jobs as asked for."""
    output = OutputSpec(
        "Step", "out", "AOD", "/Bench/Era-Proc-v1/AOD", "/store/mc/Era/Bench/AOD/Proc-v1",
        "/store/unmerged/Era/Bench/AOD/Proc-v1", "Bench", "Era-Proc-v1", "Era", "Proc", 1,
    )  # fmt: skip
    made = GenerationSpec(1, 1, 1, 100 * jobs, 100, 10) if generation else None
    return WorkflowSpec(
        request_name="bench",
        campaign="Bench",
        steps=(StepSpec(1, "Step", "c", "CMSSW_14_0_0", ("el8_amd64_gcc12",), "GT", 1, 0, output_modules=("out",)),),
        outputs=(output,),
        resources=ResourceSpec(1, 2000, 1.0, 10.0),
        splitting=SplittingSpec(algorithm, files_per_job=1, events_per_job=100),
        generation=made,
        input=None if generation else InputSpec("/Bench/Era-v1/RAW"),
        site_whitelist=SITES,
    )


def files(count: int, events: int) -> Iterator[InputFileSpec]:
    """Input files at the three sites in turn, LFNs ascending."""
    locations = [frozenset({site}) for site in SITES]
    for n in range(count):
        lfn = f"/store/data/Era/Bench/RAW/v1/000/000/001/00000/{n:09d}.root"
        yield InputFileSpec(lfn, 10**9, events, {1: ((n + 1, n + 1),)}, locations[n % 3])


def main() -> None:
    """Print a table, and the ratios between the sizes."""
    cases: dict[str, Callable[[int], tuple[WorkflowSpec, Iterator[PlanItem]]]] = {
        "generation": lambda n: _case(workflow(SplittingAlgo.EVENT_BASED, n, generation=True), 0, 0),
        "FileBased": lambda n: _case(workflow(SplittingAlgo.FILE_BASED, n), n, 100),
        "EventBased": lambda n: _case(workflow(SplittingAlgo.EVENT_BASED, n), n // 10, 1000),
    }
    print(f"{'algorithm':12} {'jobs':>8} {'split/s':>9} {'+units/s':>9} {'+write/s':>9} {'files/job':>9}")
    for name, case in cases.items():
        rates = [_measure(name, case, jobs) for jobs in JOBS]
        print(f"{name:12} rate at {JOBS[1]:,} over {JOBS[0]:,} jobs: split {rates[1] / rates[0]:.2f}")


def _case(spec: WorkflowSpec, count: int, events: int) -> tuple[WorkflowSpec, Iterator[PlanItem]]:
    return spec, split(spec, files(count, events))


def _measure(name: str, case: Callable[[int], tuple[WorkflowSpec, Iterator[PlanItem]]], jobs: int) -> float:
    spec, items = case(jobs)
    begun = time.process_time()
    count = sum(isinstance(item, JobSpec) for item in items)
    split_seconds = time.process_time() - begun
    spec, items = case(jobs)
    begun = time.process_time()
    jobs_only = (item for item in items if isinstance(item, JobSpec))
    units = list(work_units.group_jobs(jobs_only, jobs_per_work_unit=8, bytes_per_event=sizing.bytes_per_event(spec)))
    units_seconds = time.process_time() - begun
    written, write_seconds, total_files = 0, 0.0, 0
    for start in range(0, min(len(units), 5000), 5000):
        part = units[start : start + 5000]
        seconds, made = _write(spec, tuple(part))
        write_seconds, total_files = write_seconds + seconds, total_files + made
        written += sum(len(unit.jobs) for unit in part)
    print(
        f"{name:12} {count:8,} {count / split_seconds:9,.0f} {count / units_seconds:9,.0f} "
        f"{written / write_seconds:9,.0f} {total_files / written:9.2f}",
        flush=True,
    )
    return count / split_seconds


def _write(spec: WorkflowSpec, units: tuple[WorkUnitSpec, ...]) -> tuple[float, int]:
    """Wall time of writing one DAG of at most 5,000 units, and its number of files."""
    placed = blocks.assign_blocks(units, open_blocks=[], block_counts={}, target_bytes=10**12)
    dag = DagSpec("bench-dag", "bench-workflow", "bench", 0, spec, placed.units, DagLimits(), 172_800)
    programs = writer.Programs(payload=b"#!/usr/bin/env python3\n", sandbox=b"sandbox", rules=b"{}\n")
    with tempfile.TemporaryDirectory() as directory:
        begun = time.perf_counter()
        made = writer.write_dag_directory(dag, programs, parent=Path(directory))
        return time.perf_counter() - begun, made.files
