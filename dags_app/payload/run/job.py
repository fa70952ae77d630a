"""The ``job`` command: one attempt of one processing node. Owns its order: unpack, run the steps, stage out."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

from ..contract import codes, documents, names
from ..contract.codes import PayloadError
from ..contract.layout import PROCESSING, SANDBOX_FILE
from ..contract.reports import OutputRecord, Processed
from ..contract.step_profile import read_step_profile
from . import storage
from .attempt import WORK, attempt_of
from .gathering import read_node_input
from .journal import StageOut
from .slot import read_granted
from .steps import DoneStep, JobContext, run_chain


def run_job(directory: Path, node: str, attempt: int) -> int:
    """Run the attempt in ``directory``; its process status."""
    with attempt_of(directory, node, attempt, PROCESSING) as report:
        work, volumes = directory / WORK, storage.site_volumes(report.slot.site)
        job, unit = documents.read_job(directory), documents.read_unit(directory)
        sandbox = unpack_sandbox(directory / SANDBOX_FILE, work / "sandbox")
        unit_job = unit.job(node)
        gathered = read_node_input(directory, unit, unit_job, volumes, work / "inputs") if unit_job.reads else ()
        if unit_job.reads and not gathered:
            report.processed = Processed(0, set(), ())
        else:
            profile, granted = read_step_profile(directory), read_granted()
            context = JobContext(job, unit, unit_job, sandbox, work, report, gathered, profile, granted)
            done = run_chain(context)
            report.exit_step = "stageOut"
            _stage_out(context, volumes, done)
            report.exit_step = None
    return report.exit_status


def unpack_sandbox(archive: Path, target: Path) -> Path:
    """Unpack the sandbox; PayloadError when it cannot be read or would write outside ``target``."""
    root = target.resolve()
    try:
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                path = (target / member.name).resolve()
                if not (member.isfile() or member.isdir()) or root not in (path, *path.parents):
                    text = f"{archive.name}: {member.name} is not a plain file inside the sandbox"
                    raise PayloadError(codes.INVALID_DOCUMENT, text)
            packed.extractall(target)  # noqa: S202  (every member was checked above)
    except (OSError, tarfile.TarError) as error:
        raise PayloadError(codes.INVALID_DOCUMENT, f"{archive.name} cannot be unpacked: {error}") from error
    return target


def _stage_out(context: JobContext, volumes: Sequence[storage.Volume], done: dict[str, DoneStep]) -> None:
    """Stage out every output that is kept or that a later task reads, each recorded as soon as it is there."""
    job, report, parents = context.job, context.attempt, _parents(context)
    execution, files = report.slot.execution, []
    for step in done.values():
        for number, process in enumerate(step.processes):
            for module, output in job.staged_by(step.step.name).items():
                written, path = process.output(module, step.step.name)
                lfn = names.unmerged_lfn(job, context.unit, report.node, output, execution, number, written.guid)
                files.append((output, written, path, lfn))
    journals = names.journals_lfn(job, context.unit, PROCESSING)
    stage_out = StageOut(
        volumes, journals, job.dag_id, report.node, report.slot, [lfn for *_, lfn in files], job.stage_out_pauses_seconds
    )
    for output, written, path, lfn in files:
        stored = stage_out.store(path, lfn)
        report.outputs.append(OutputRecord.of(output, stored, written.events, written.lumis, parents))


def _parents(context: JobContext) -> tuple[str, ...]:
    """LFNs of the unit's input files behind this job, none for generation.

    A later step or task reads files that only this unit knows, so the parents of its output are those of what it read.
    """
    if context.gathered:
        return tuple(sorted({parent for file in context.gathered for parent in file.parents}))
    processed = context.attempt.processed
    return tuple(sorted({file.lfn for file in processed.files})) if processed else ()
