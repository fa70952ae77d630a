"""The ``cleanup`` command: once the merged files are safe it removes a unit's unmerged files, what other starts of its jobs
left, and the journals that name it.

Owns the check before: every file of the manifest is in the storage with its size, and the manifest covers every output
whose files are to go. If not, nothing is removed and the attempt fails; DAGMan's POST keeps that from failing the unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..contract import codes, documents, names
from ..contract.codes import PayloadError
from ..contract.documents import JobDocument, UnitDocument
from ..contract.layout import CLEANUP, MANIFEST_FILE, MANIFEST_SCHEMA, MERGE, PROCESSING
from ..contract.reading import load_document
from ..contract.reports import NodeReport
from ..run import storage
from ..run.attempt import attempt_of
from ..run.journal import Journals
from ..run.siteconf import StorageProblem
from ..run.storage import Volume
from .collecting import read_merge_input


class _Merged(NamedTuple):
    """Where a merged file lies, and its size."""

    rse: str
    size_bytes: int


def run_cleanup(directory: Path, node: str, attempt: int) -> int:
    """Run the attempt in ``directory``; its process status."""
    with attempt_of(directory, node, attempt, CLEANUP) as report:
        volumes = storage.site_volumes(report.slot.site)
        job, unit = documents.read_job(directory), documents.read_unit(directory)
        reports = read_merge_input(directory, unit)
        accepted = _check_merged(directory, job, unit, volumes, reports)
        unmerged = {(file.rse, file.lfn) for each in reports for file in each.outputs}
        failed = []
        for volume in volumes:
            try:
                _clean(volume, job, unit, {lfn for rse, lfn in unmerged if rse == volume.rse}, accepted)
            except StorageProblem as problem:
                failed.append(f"{volume.rse}: {problem}")
        if failed:
            raise PayloadError(codes.STAGE_OUT_FAILED, f"not everything could be removed: {'; '.join(failed)}")
    return report.exit_status


def _clean(volume: Volume, job: JobDocument, unit: UnitDocument, unmerged: set[str], accepted: Mapping[str, _Merged]) -> None:
    """Remove from a volume the unmerged files and all that its journals name, but not what counts.

    StorageProblem when something was refused; the rest is gone then, and the journals are kept.
    """
    journals = [Journals(volume, names.journals_lfn(job, unit, role)) for role in (PROCESSING, MERGE)]
    read = [each.read() for each in journals]
    doomed = unmerged | {lfn for each in read for planned in each.values() for lfn in planned}
    refused = []
    for lfn in sorted(doomed):
        try:
            merged = accepted.get(lfn)
            # a copy that went on to another volume may have left something under a merged file's name; what has the same size may
            # be the merged file itself, as two RSEs may be one storage
            if merged is None or (volume.rse != merged.rse and storage.size(volume, lfn) not in (None, merged.size_bytes)):
                storage.remove(volume, lfn)
        except StorageProblem as problem:
            refused.append(f"{lfn}: {problem}")
    if refused:
        raise StorageProblem(codes.STAGE_OUT_FAILED, f"{len(refused)} files could not be removed: {refused[0]}")
    for each, settled in zip(journals, read):
        each.remove(settled)


def _check_merged(
    directory: Path, job: JobDocument, unit: UnitDocument, volumes: Sequence[Volume], reports: tuple[NodeReport, ...]
) -> dict[str, _Merged]:
    """The merged files that the accepted manifest names, by LFN; PayloadError unless all is as it says."""
    manifest = load_document(directory / MANIFEST_FILE, MANIFEST_SCHEMA)
    if manifest["unit"].text() != unit.unit:
        raise manifest["unit"].refuse(f"expected {unit.unit}")
    accepted = {}
    covered = {(transient.step, transient.module) for transient in job.transients}  # these are never merged
    for output in manifest["outputs"].items():
        covered.add((output["step"].text(), output["module"].text()))
        for file in output["files"].items():
            lfn, merged = file["lfn"].text(), _Merged(file["rse"].text(), file["size_bytes"].integer())
            accepted[lfn] = merged
            size_bytes = storage.size(storage.volume_with(volumes, merged.rse), lfn)
            if size_bytes != merged.size_bytes:
                text = f"{lfn} at {merged.rse} has {size_bytes} bytes, the manifest says {merged.size_bytes}"
                raise PayloadError(codes.CLEANUP_REFUSED, text)
    uncovered = {(file.step, file.module) for report in reports for file in report.outputs} - covered
    if uncovered:
        raise PayloadError(codes.CLEANUP_REFUSED, f"the manifest has no output {min(uncovered)}, whose files would be removed")
    return accepted
