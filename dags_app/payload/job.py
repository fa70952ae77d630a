"""The ``job`` command: one attempt of one processing node. Owns its order: unpack, run the steps, stage out.

Works in ``work/`` below HTCondor's scratch directory; only the report and the logs stay at the top, because HTCondor
brings back every new file it finds there.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from . import codes, documents, names, storage
from .codes import PayloadError, exit_status
from .documents import JobDocument, UnitDocument
from .formats import SANDBOX_FILE
from .processes import stop_requests_as_errors
from .reports import AttemptReport, OutputRecord
from .slot import read_slot
from .steps import DoneStep, JobContext, run_chain

ROLE = "processing"
WORK = "work"


def run_job(directory: Path, node: str, attempt: int) -> int:
    """Run the attempt in ``directory``; its process status (0 done, else the low byte of the report's code)."""
    work = directory / WORK
    shutil.rmtree(work, ignore_errors=True)  # a job that HTCondor started again in the same place
    work.mkdir()
    with AttemptReport(node, attempt, ROLE, read_slot(), directory, work / "steps") as report, stop_requests_as_errors():
        volume = storage.site_volume(report.slot.site)
        job, unit = documents.read_job(directory), documents.read_unit(directory)
        sandbox = unpack_sandbox(directory / SANDBOX_FILE, work / "sandbox")
        done = run_chain(JobContext(job, unit, unit.job(node), sandbox, work, report))
        report.exit_step = "stageOut"
        _stage_out(report, volume, job, unit, done)
        report.exit_step = None
    shutil.rmtree(work, ignore_errors=True)
    return exit_status(report.exit_code)


def unpack_sandbox(archive: Path, target: Path) -> Path:
    """Unpack the sandbox; PayloadError when it cannot be read or would write outside ``target``."""
    try:
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                if not (member.isfile() or member.isdir()) or not _is_inside(target / member.name, target):
                    raise PayloadError(
                        codes.INVALID_DOCUMENT, f"{archive.name}: {member.name} is not a plain file inside the sandbox"
                    )
            packed.extractall(target)  # noqa: S202  (every member was checked above)
    except (OSError, tarfile.TarError) as error:
        raise PayloadError(codes.INVALID_DOCUMENT, f"{archive.name} cannot be unpacked: {error}") from error
    return target


def _is_inside(path: Path, directory: Path) -> bool:
    root = directory.resolve()
    return root in (path.resolve(), *path.resolve().parents)


def _stage_out(
    report: AttemptReport, volume: storage.Volume, job: JobDocument, unit: UnitDocument, done: dict[str, DoneStep]
) -> None:
    """Stage out every kept output, each recorded as soon as it is there."""
    for output in job.outputs:
        step = done[output.step]
        written = step.report.output(output.module)
        if written is None:  # steps.py has refused this already
            raise PayloadError(codes.OUTPUT_NOT_REPORTED, f"step {output.step}: no file of {output.module}")
        lfn = names.unmerged_lfn(job, unit, report.node, output)
        stored = storage.stage_out(step.output_path(output.module), volume, lfn, report.slot.job_id)
        record = OutputRecord(output.step, output.module, output.dataset, stored, written.events, written.lumis, _parents(report))
        report.outputs.append(record)


def _parents(report: AttemptReport) -> tuple[str, ...]:
    """LFNs of the job's input files, none for generation.

    A later step reads a file of this job that nobody keeps, so the parents of its output are the job's inputs too.
    """
    return tuple(sorted({file.lfn for file in report.processed.files})) if report.processed else ()
