"""The ``merge`` command: the unmerged files of one unit become its merged files. Owns the order that makes it repeatable.

Merge and stage out file by file, and last the manifest: a manifest therefore always speaks of files that are there. Each start
writes files of its own and removes none: whose files count is decided when its manifest is accepted. What cannot be read where it
lies is fetched for one merged file at a time, so that the scratch space never holds more than what goes into one and that one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from ..contract import codes, documents, files, names
from ..contract.documents import DQMIO, EDM, NANO, PLAIN, JobDocument, Origins, Output, UnitDocument
from ..contract.layout import MANIFEST_FILE, MERGE
from ..contract.manifest import Merged, build_manifest
from ..contract.reports import NodeReport, OutputRecord, StepRecord, UnmergedFile
from ..run import storage
from ..run.attempt import WORK, AttemptReport, attempt_of
from ..run.journal import StageOut
from ..run.processes import Finished
from . import groups as merging
from .collecting import read_merge_input
from .groups import Group, Parentage
from .tools import MERGED_FILE, MergeRun, MergeTask, by_cmsrun, by_hadd


class PlannedFile(NamedTuple):
    """A merged file to be written, the ``number``-th of its output."""

    output: Output
    number: int
    group: Group
    origins: Origins


def run_merge_job(directory: Path, node: str, attempt: int) -> int:
    """Run the attempt in ``directory``; its process status."""
    with attempt_of(directory, node, attempt, MERGE) as report:
        volumes = storage.site_volumes(report.slot.site)
        job, unit = documents.read_job(directory), documents.read_unit(directory)
        reports = read_merge_input(directory, unit)
        merging.check_read_once(job.tasks[1:], reports)
        stage_out = StageOut(
            volumes, names.journals_lfn(job, unit, MERGE), job.dag_id, node, report.slot, pauses=job.stage_out_pauses_seconds
        )
        merge = _Merge(job, unit, report, stage_out, Parentage(reports, {}), directory / WORK)
        merged = [merge.one(planned) for planned in plan_merge(job, unit, reports)]
        files.write_json(directory / MANIFEST_FILE, build_manifest(job, unit, report.slot, volumes[0].rse, reports, merged))
    return report.exit_status


def plan_merge(job: JobDocument, unit: UnitDocument, reports: tuple[NodeReport, ...]) -> list[PlannedFile]:
    """Every merged file of the unit: those of earlier tasks first, since files of later ones name them as parents."""
    return [
        PlannedFile(output, number, group, unit.origins(file.node for file in group))
        for output in sorted(job.outputs, key=lambda output: job.task_of(output.step))
        for number, group in enumerate(merging.group_files(_files_of(job, output, reports), job.merge))
    ]


def _files_of(job: JobDocument, output: Output, reports: tuple[NodeReport, ...]) -> list[UnmergedFile]:
    task = job.task_of(output.step)
    return [file for report in reports if report.task == task for file in report.files_of(output.step, output.module)]


class _Merge(NamedTuple):
    """One start of a unit's merge. ``parentage`` learns of each merged file."""

    job: JobDocument
    unit: UnitDocument
    report: AttemptReport
    stage_out: StageOut
    parentage: Parentage
    work: Path

    def one(self, planned: PlannedFile) -> Merged:
        """Merge, verify and stage out one file; local copies are removed to keep the scratch space for the next."""
        report, output, group = self.report, planned.output, planned.group
        number = len(report.steps) + 1
        directory = report.steps_directory / f"merge{number}_{output.module}"
        directory.mkdir(parents=True)
        report.exit_step = MERGE
        step = next(step for step in self.job.steps if step.name == output.step)
        fetched = self.work / "inputs"
        fetched.mkdir()
        inputs = [storage.bring(self.stage_out.volumes, file, fetched) for file in group]
        expected, holds_events = merging.content_of(group), output.merge != DQMIO
        if output.merge != NANO and len(group) == 1 and group[0].size_bytes > self.job.merge.max_bytes:
            # larger than a merged file may be already, and of the right format: byte for byte what its job wrote and reported
            held = expected if holds_events else expected._replace(events=0)
            run = MergeRun(Finished(codes.SUCCESS, 0.0, 0.0, 0.0), inputs[0], held)
        else:
            by_tool = by_hadd if output.merge == PLAIN else by_cmsrun
            run = by_tool(MergeTask(output.merge, step, inputs, directory, self.work))
            shutil.rmtree(fetched)
        lfn, content = self._lfn(planned, run), run.content
        merging.check_same(expected, content, lfn, events=holds_events)
        report.steps.append(
            StepRecord(
                number=number,
                name=f"merge {step.name}/{output.module}",
                exit_code=run.finished.exit_code,
                wall_seconds=run.finished.wall_seconds,
                cpu_seconds=run.finished.cpu_seconds,
                threads=1,
                peak_rss_mb=run.finished.peak_rss_mb,
                events_read=expected.events,
                events_written=content.events,
                input_files=tuple(file.lfn for file in group),
            )
        )
        report.exit_step = "stageOut"
        self.stage_out.add(lfn)
        stored = self.stage_out.store(run.output, lfn)
        (directory / MERGED_FILE).unlink(missing_ok=True)
        shutil.rmtree(fetched, ignore_errors=True)
        record = OutputRecord.of(output, stored, content.events, content.lumis, self.parentage.of(group))
        self.parentage.merged.update((file.lfn, lfn) for file in group)
        report.outputs.append(record)
        report.exit_step = None
        return record, planned.origins

    def _lfn(self, planned: PlannedFile, run: MergeRun) -> str:
        """An EDM file that was not merged keeps its GUID."""
        execution, kept = self.report.slot.execution, names.guid_of(planned.group[0].lfn)
        if planned.output.merge == EDM and kept and run.guid is None:
            return names.copied_lfn(self.job, self.unit, planned.output, execution, kept)
        return names.merged_lfn(self.job, self.unit, planned.output, planned.number, execution, run.guid)
