"""The ``cleanup`` command: once the merged files are safe it removes a unit's unmerged files, what other starts of its jobs
left, and the journals that told of it.

Owns the check before: every file of the manifest is in the storage with its size, and the manifest covers every output
whose files are to go. If not, nothing is removed and the attempt fails; DAGMan's POST keeps that from failing the unit.
"""

from __future__ import annotations

from pathlib import Path

from ..contract import codes, documents, names
from ..contract.codes import PayloadError, exit_status
from ..contract.documents import JobDocument, UnitDocument
from ..contract.journal import Journals
from ..contract.layout import CLEANUP, MANIFEST_FILE, MANIFEST_SCHEMA, MERGE, PROCESSING
from ..contract.reading import load_document
from ..contract.reports import NodeReport
from ..run import storage
from ..run.attempt import AttemptReport
from ..run.processes import stop_requests_as_errors
from ..run.slot import read_slot
from ..run.storage import Volume
from .collecting import read_merge_input


def run_cleanup(directory: Path, node: str, attempt: int) -> int:
    """Run the attempt in ``directory``; its process status (0 done, else the low byte of the report's code)."""
    with AttemptReport(node, attempt, CLEANUP, read_slot(), directory, directory / "work") as report, stop_requests_as_errors():
        volume = storage.site_volume(report.slot.site)
        job, unit = documents.read_job(directory), documents.read_unit(directory)
        reports = read_merge_input(directory, unit)
        accepted = _check_merged(directory, job, unit, volume, reports)
        journals = [Journals(volume.path(names.journals_lfn(job, unit, role)), job.dag_id) for role in (PROCESSING, MERGE)]
        read = [each.read() for each in journals]
        lfns = {file.lfn for each in reports for file in each.outputs}
        lfns |= {lfn for each in read for planned in each.values() for lfn in planned}
        failed = [problem for problem in (_remove(volume, lfn) for lfn in sorted(lfns - accepted)) if problem]
        if failed:
            raise PayloadError(codes.STAGE_OUT_FAILED, f"{len(failed)} files could not be removed: {failed[0]}")
        for each, settled in zip(journals, read):
            each.remove(settled)
    return exit_status(report.exit_code)


def _check_merged(
    directory: Path, job: JobDocument, unit: UnitDocument, volume: Volume, reports: tuple[NodeReport, ...]
) -> set[str]:
    """LFNs of the merged files that the accepted manifest names; PayloadError unless all is as it says."""
    manifest = load_document(directory / MANIFEST_FILE, MANIFEST_SCHEMA)
    if manifest["unit"].text() != unit.unit:
        raise manifest["unit"].refuse(f"expected {unit.unit}")
    if manifest["rse"].text() != volume.rse:
        raise manifest["rse"].refuse(f"the merged files are there, this job runs at {volume.site} with {volume.rse}")
    accepted = set()
    covered = {(transient.step, transient.module) for transient in job.transients}  # nobody merges these
    for output in manifest["outputs"].items():
        covered.add((output["step"].text(), output["module"].text()))
        for file in output["files"].items():
            accepted.add(file["lfn"].text())
            path = volume.path(file["lfn"].text())
            size_bytes = path.stat().st_size if path.is_file() else None
            if size_bytes != file["size_bytes"].integer():
                raise PayloadError(
                    codes.CLEANUP_REFUSED, f"{path} has {size_bytes} bytes, the manifest says {file['size_bytes'].raw}"
                )
    uncovered = {(file.step, file.module) for report in reports for file in report.outputs} - covered
    if uncovered:
        raise PayloadError(codes.CLEANUP_REFUSED, f"the manifest has no output {min(uncovered)}, whose files would be removed")
    return accepted


def _remove(volume: Volume, lfn: str) -> str:
    """Remove a file; a text when the storage refused, empty when it is gone."""
    try:
        storage.remove(volume, lfn)
    except OSError as error:
        return f"{lfn}: {error}"
    return ""
