"""``merge_output.json``, the unit's manifest: what the unit processed and what its merged files hold. Owns its schema.

Pure. WMS2 takes a unit as done only when the manifest equals the unit's claim (docs/design/model.md, A unit is done).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import lumis
from .convert import some_of
from .documents import JobDocument, Origins, Output, UnitDocument
from .layout import MANIFEST_VERSION, utc_now
from .reports import NodeReport, OutputRecord, Slot, StepRecord

#: Of a step's record, what its metrics name.
_MEASURED = (
    "processes", "threads", "wall_seconds", "cpu_seconds", "peak_rss_mb", "slot_rss_mb", "events_read", "events_written",
    "bytes_written",
)  # fmt: skip


#: A merged file in the storage, and what it was made of.
Merged = tuple[OutputRecord, Origins]


def build_manifest(
    job: JobDocument, unit: UnitDocument, slot: Slot, rse: str, reports: tuple[NodeReport, ...], merged: list[Merged]
) -> dict[str, Any]:
    """The manifest of a unit whose merge is done."""
    return {
        "schema": MANIFEST_VERSION,
        **some_of(job, ("instance", "request_name", "workflow_id", "dag_id")),
        "unit": unit.unit,
        **some_of(slot, ("fence", "job_id", "execution", "site")),
        "rse": rse,
        "written_at": utc_now(),
        "jobs": [
            {"node": each.node, **({"task": each.task} if len(job.tasks) > 1 else {}), "processed": each.processed}
            for each in reports
        ],
        "outputs": [_output(output, unit, reports, merged) for output in job.outputs],
        "metrics": {"steps": _metrics(reports)},
    }


def _output(output: Output, unit: UnitDocument, reports: tuple[NodeReport, ...], merged: list[Merged]) -> dict[str, Any]:
    kept = ("lfn", "rse", "size_bytes", "adler32", "events", "lumis", "parents")
    mine = [each for each in merged if (each[0].step, each[0].module) == (output.step, output.module)]
    return {
        **some_of(output, ("dataset", "module", "step", "tier")),
        "files": [{**some_of(file, kept), "pieces": _pieces(unit, reports, origins)} for file, origins in mine],
    }


def _pieces(unit: UnitDocument, reports: tuple[NodeReport, ...], origins: Origins) -> dict[str, Any]:
    """What the nodes of the first task behind a file made of the unit's claim."""
    processed = [report.processed for report in reports if report.node in origins.nodes]
    made = [unit.job(node).generate for node in origins.nodes]
    spans = [(int(run), a, b) for each in processed for run, pairs in each["lumis"].items() for a, b in pairs]
    return {
        "generated": [{"run": each.run, "first_event": each.first_event, "last_event": each.last_event} for each in made if each],
        "files": [file for each in processed for file in each["files"]],
        "lumis": lumis.compact_ranges(spans),
        "shared": origins.shared,
    }


def _metrics(reports: Iterable[NodeReport]) -> dict[str, Any]:
    """Every job that ran a step, by the step's name; nothing is averaged here."""
    by_step: dict[str, list[tuple[NodeReport, StepRecord]]] = {}
    for report in reports:
        for step in report.steps:
            by_step.setdefault(step.name, []).append((report, step))
    return {
        name: {
            "processes": max(step.processes for _, step in ran),
            "threads": max(step.threads for _, step in ran),
            "jobs": [
                {"node": report.node, "cgroup_peak_mb": report.cgroup_peak_mb, **some_of(step, _MEASURED)} for report, step in ran
            ],
        }
        for name, ran in by_step.items()
    }
