"""The ``merge`` command: the unmerged files of one unit become its merged files. Owns the order that makes it repeatable.

Journal first, then merge and stage out file by file, and last the manifest: a manifest therefore always speaks of files that are
there. Each start writes files of its own and removes none: whose files count is decided when its manifest is accepted.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ..contract import codes, documents, files, names
from ..contract.codes import PayloadError, exit_status
from ..contract.documents import DQMIO, JobDocument, Origins, Output, Step, UnitDocument
from ..contract.journal import Journals
from ..contract.layout import MANIFEST_FILE, MERGE
from ..contract.manifest import MergedFile, build_manifest
from ..contract.reports import NodeReport, OutputRecord, StepRecord, UnmergedFile
from ..run import storage
from ..run.attempt import AttemptReport
from ..run.processes import Finished, stop_requests_as_errors
from ..run.slot import read_slot
from ..run.storage import Volume
from . import groups as merging
from .collecting import read_merge_input
from .groups import Content, MergeGroup
from .parentage import Parentage
from .tools import MergeTask, run_merge

WORK = "work"


@dataclass(frozen=True)
class PlannedFile:
    """A merged file to be written."""

    output: Output
    lfn: str
    group: MergeGroup
    parents: tuple[str, ...]
    origins: Origins


def run_merge_job(directory: Path, node: str, attempt: int) -> int:
    """Run the attempt in ``directory``; its process status (0 done, else the low byte of the report's code)."""
    work = directory / WORK
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    with AttemptReport(node, attempt, MERGE, read_slot(), directory, work / "steps") as report, stop_requests_as_errors():
        volume = storage.site_volume(report.slot.site)
        job, unit = documents.read_job(directory), documents.read_unit(directory)
        reports = read_merge_input(directory, unit)
        merging.check_read_once(job.tasks[1:], reports)
        plan = plan_merge(job, unit, reports, report.slot.execution)
        journals = Journals(volume.path(names.journals_lfn(job, unit, MERGE)), job.dag_id)
        journal = journals.of(node, report.slot, (planned.lfn for planned in plan))
        journal.keep()
        merged = []
        for planned in plan:
            merged.append(_merge_one(report, volume, job, planned, work))
            journal.keep()
        files.write_json(directory / MANIFEST_FILE, build_manifest(job, unit, report.slot, volume.rse, reports, merged))
    shutil.rmtree(work, ignore_errors=True)
    return exit_status(report.exit_code)


def plan_merge(job: JobDocument, unit: UnitDocument, reports: tuple[NodeReport, ...], execution: str) -> list[PlannedFile]:
    """Every merged file of the unit, in the order of the outputs, as one start of the merge names them."""
    groups = [
        (output, names.merged_lfn(job, unit, output, number, execution), group)
        for output in job.outputs
        for number, group in enumerate(merging.group_files(_files_of(job, output, reports), job.merge))
    ]
    parentage = Parentage(reports, {file.lfn: lfn for _, lfn, group in groups for file in group.files})
    return [
        PlannedFile(output, lfn, group, parentage.of(group), unit.origins(file.node for file in group.files))
        for output, lfn, group in groups
    ]


def _files_of(job: JobDocument, output: Output, reports: tuple[NodeReport, ...]) -> list[UnmergedFile]:
    return merging.files_of(output, reports, job.task_of(output.step))


def _merge_one(report: AttemptReport, volume: Volume, job: JobDocument, planned: PlannedFile, work: Path) -> MergedFile:
    """Merge, verify and stage out one file; its local copy is removed to keep the scratch space for the next."""
    number = len(report.steps) + 1
    directory = report.steps_directory / f"merge{number}_{planned.output.module}"
    directory.mkdir(parents=True)
    report.exit_step = MERGE
    step = next(step for step in job.steps if step.name == planned.output.step)
    _check_inputs(volume, planned.group)
    inputs = [volume.path(file.lfn) for file in planned.group.files]
    run = run_merge(MergeTask(planned.output.merge, step, inputs, planned.lfn, directory, work))
    content = run.content
    merging.check_same(planned.group.content, content, planned.lfn, events=planned.output.merge != DQMIO)
    report.steps.append(_record(number, step, run.finished, planned, content))
    report.exit_step = "stageOut"
    stored = storage.stage_out(run.output, volume, planned.lfn, report.slot.execution)
    run.output.unlink()
    record = OutputRecord.of(planned.output, stored, content.events, content.lumis, planned.parents)
    report.outputs.append(record)
    report.exit_step = None
    return MergedFile(planned.output, record, planned.origins)


def _check_inputs(volume: Volume, group: MergeGroup) -> None:
    """Refuse an unmerged file that is not what its job staged out; one that is missing is told by ``run_merge``."""
    for file in group.files:
        path = volume.path(file.lfn)
        if not path.is_file():
            continue
        found = (path.stat().st_size, files.adler32(path))
        if found != (file.size_bytes, file.adler32):
            raise PayloadError(
                codes.FILE_OPEN_FAILED,
                f"{path} has {found[0]} bytes, adler32 {found[1]}; {file.node} staged out {file.size_bytes}, {file.adler32}",
            )


def _record(number: int, step: Step, finished: Finished, planned: PlannedFile, content: Content) -> StepRecord:
    return StepRecord(
        number=number,
        name=f"merge {step.name}/{planned.output.module}",
        exit_code=finished.exit_code,
        wall_seconds=finished.wall_seconds,
        cpu_seconds=finished.cpu_seconds,
        threads=1,
        peak_rss_mb=finished.peak_rss_mb,
        events_read=planned.group.content.events,
        events_written=content.events,
        input_files=tuple(file.lfn for file in planned.group.files),
    )
