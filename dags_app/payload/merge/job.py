"""The ``merge`` command: the unmerged files of one unit become its merged files. Owns the order that makes it repeatable.

Merge and stage out file by file, and last the manifest: a manifest therefore always speaks of files that are there. Each start
writes files of its own and removes none: whose files count is decided when its manifest is accepted. What cannot be read where it
lies is fetched for one merged file at a time, so that the scratch space never holds more than what goes into one and that one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from ..contract import codes, documents, files, names
from ..contract.documents import DQMIO, JobDocument, Origins, Output, Step, UnitDocument
from ..contract.layout import MANIFEST_FILE, MERGE
from ..contract.manifest import Merged, build_manifest
from ..contract.reports import NodeReport, OutputRecord, StepRecord, UnmergedFile
from ..run import storage
from ..run.attempt import WORK, AttemptReport, attempt_of
from ..run.journal import StageOut
from ..run.processes import Finished
from . import groups as merging
from .collecting import read_merge_input
from .groups import Content, MergeGroup, Parentage
from .tools import MERGED_FILE, MergeRun, MergeTask, run_merge


@dataclass(frozen=True)
class PlannedFile:
    """A merged file to be written."""

    output: Output
    lfn: str
    group: MergeGroup
    parents: tuple[str, ...]
    origins: Origins


def run_merge_job(directory: Path, node: str, attempt: int) -> int:
    """Run the attempt in ``directory``; its process status."""
    with attempt_of(directory, node, attempt, MERGE) as report:
        volumes = storage.site_volumes(report.slot.site)
        job, unit = documents.read_job(directory), documents.read_unit(directory)
        reports = read_merge_input(directory, unit)
        merging.check_read_once(job.tasks[1:], reports)
        plan = plan_merge(job, unit, reports, report.slot.execution)
        journals, lfns = names.journals_lfn(job, unit, MERGE), (planned.lfn for planned in plan)
        stage_out = StageOut(volumes, journals, job.dag_id, node, report.slot, lfns)
        merged = [_merge_one(report, stage_out, job, planned, directory / WORK) for planned in plan]
        files.write_json(directory / MANIFEST_FILE, build_manifest(job, unit, report.slot, volumes[0].rse, reports, merged))
    return report.exit_status


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
    task = job.task_of(output.step)
    return [file for report in reports if report.task == task for file in report.files_of(output.step, output.module)]


def _merge_one(report: AttemptReport, stage_out: StageOut, job: JobDocument, planned: PlannedFile, work: Path) -> Merged:
    """Merge, verify and stage out one file; local copies are removed to keep the scratch space for the next."""
    number = len(report.steps) + 1
    directory = report.steps_directory / f"merge{number}_{planned.output.module}"
    directory.mkdir(parents=True)
    report.exit_step = MERGE
    step = next(step for step in job.steps if step.name == planned.output.step)
    fetched = work / "inputs"
    fetched.mkdir()
    inputs = [storage.bring(stage_out.volumes, file, fetched) for file in planned.group.files]
    if merging.goes_past(planned.output, planned.group, job.merge):
        run = _copied(planned, inputs[0])
    else:
        run = run_merge(MergeTask(planned.output.merge, step, inputs, planned.lfn, directory, work))
        shutil.rmtree(fetched)
    content = run.content
    merging.check_same(planned.group.content, content, planned.lfn, events=planned.output.merge != DQMIO)
    report.steps.append(_record(number, step, run.finished, planned, content))
    report.exit_step = "stageOut"
    stored = stage_out.store(run.output, planned.lfn)
    (directory / MERGED_FILE).unlink(missing_ok=True)
    shutil.rmtree(fetched, ignore_errors=True)
    record = OutputRecord.of(planned.output, stored, content.events, content.lumis, planned.parents)
    report.outputs.append(record)
    report.exit_step = None
    return record, planned.origins


def _copied(planned: PlannedFile, path: Path) -> MergeRun:
    """A file that is merged as it is: byte for byte what its job wrote, so it holds what that reported."""
    events = 0 if planned.output.merge == DQMIO else planned.group.content.events
    return MergeRun(Finished(codes.SUCCESS, 0.0, 0.0, 0.0), path, replace(planned.group.content, events=events))


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
