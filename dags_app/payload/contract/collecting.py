"""Reports of processing nodes as values, and ``merge_input.json`` that hands them to the merge job. Owns that document.

``collect`` is the PRE script of the merge node. Which attempt of a node counts is what its POST script wrote into
``<node>.post.json``, not the highest attempt number: DAGMan counts attempts from 0 again after a rescue.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import codes, documents, files, lumis, scripts
from .codes import PayloadError
from .documents import UnitDocument
from .layout import MERGE_INPUT_FILE, MERGE_INPUT_SCHEMA, POST_SCHEMA, REPORT_SCHEMA, SUCCESS_CATEGORY, post_name
from .lumis import LumiCounts
from .reading import Value, check_schema, load_document


@dataclass(frozen=True)
class UnmergedFile:
    """A staged-out file of one processing node."""

    node: str
    step: str
    module: str
    lfn: str
    size_bytes: int
    adler32: str
    events: int
    lumis: LumiCounts
    parents: tuple[str, ...]


@dataclass(frozen=True)
class StepFigures:
    """What a step of one job took."""

    name: str
    wall_seconds: float
    cpu_seconds: float
    threads: int
    peak_rss_mb: float
    events_read: int


@dataclass(frozen=True)
class NodeReport:
    """The report of a processing node that ended well. ``processed`` is kept as it was written."""

    node: str
    site: str
    processed: dict[str, Any]
    steps: tuple[StepFigures, ...]
    outputs: tuple[UnmergedFile, ...]
    task: int = 1

    @property
    def idle(self) -> bool:
        """Whether the node had nothing to do: one of a later task whose share of its upstream file is empty."""
        return self.task > 1 and not self.processed.get("files")


def collect(directory: Path) -> int:
    """Write ``merge_input.json`` of the unit in ``directory`` from the reports its nodes' POST scripts accepted; 0.

    PayloadError when a node has no accepted report, or one from another site than the unit's.
    """
    unit = documents.read_unit(directory)
    site = scripts.elected_site(directory)
    reports = []
    for job in unit.jobs:
        reports.append(accepted_report(directory, unit, job.node, site)[0].raw)
    document = {"schema": MERGE_INPUT_SCHEMA, "unit": unit.unit, "reports": reports}
    files.write_json(directory / MERGE_INPUT_FILE, document)
    return 0


def accepted_report(directory: Path, unit: UnitDocument, node: str, site: str | None) -> tuple[Value, NodeReport]:
    """The report that a node's POST script accepted, as it was written and as values.

    PayloadError when there is none, or it is from another site than ``site``.
    """
    name, job_id = _accepted(directory, node)
    report = load_document(directory / name, REPORT_SCHEMA)
    found = _checked(report, unit, node)
    if report["job_id"].text() != job_id:
        raise report["job_id"].refuse(f"expected {job_id}, the job whose end {post_name(node)} judges")
    if site is not None and found.site != site:
        raise report["site"].refuse(f"{node} ran at {found.site}, but the unit is at {site}: its output is elsewhere")
    return report, found


def _accepted(directory: Path, node: str) -> tuple[str, str]:
    """Name of the report that the node's POST script accepted, and the job it is of."""
    post = load_document(directory / post_name(node), POST_SCHEMA)
    if post["classification"]["category"].text() != SUCCESS_CATEGORY or not post["final"].boolean():
        raise PayloadError(codes.INVALID_DOCUMENT, f"{node}: its last attempt did not end well, see {post_name(node)}")
    return post["report"].text(), post["job_id"].text()


def read_merge_input(directory: Path, unit: UnitDocument) -> tuple[NodeReport, ...]:
    """The reports in ``merge_input.json``: exactly one of every node of the unit, in the unit's order."""
    document = load_document(directory / MERGE_INPUT_FILE, MERGE_INPUT_SCHEMA)
    found: dict[str, NodeReport] = {}
    for report in document["reports"].items():
        check_schema(report, REPORT_SCHEMA)
        node = report["node"].text()
        if node in found:
            raise report.refuse(f"a second report of {node}")
        found[node] = _checked(report, unit, node)
    lfns = [file.lfn for each in found.values() for file in each.outputs]
    if len(set(lfns)) != len(lfns):
        raise document["reports"].refuse(f"two reports have the file {next(lfn for lfn in lfns if lfns.count(lfn) > 1)}")
    wanted = [job.node for job in unit.jobs]
    if set(wanted) != set(found):
        missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        raise document["reports"].refuse(f"no report of {missing}" if missing else f"{extra} do not belong to {unit.unit}")
    return tuple(found[node] for node in wanted)


def _checked(report: Value, unit: UnitDocument, node: str) -> NodeReport:
    if report["node"].text() != node or report["unit"].text() != unit.unit:
        raise report.refuse(f"is of {report['unit'].text()}/{report['node'].text()}, expected {unit.unit}/{node}")
    if report["exit_code"].integer() != codes.SUCCESS:
        raise report["exit_code"].refuse(f"{node} failed: {report['error_message'].text()[:200]}")
    lumis.expand(report["processed"]["lumis"])
    return NodeReport(
        node=node,
        site=report["site"].text(),
        processed=report["processed"].raw,
        steps=tuple(_figures(item) for item in report["steps"].items()),
        outputs=tuple(_unmerged(node, item) for item in report["outputs"].items()),
        task=unit.job(node).task,
    )


def _figures(item: Value) -> StepFigures:
    return StepFigures(
        name=item["name"].text(),
        wall_seconds=item["wall_seconds"].number(),
        cpu_seconds=item["cpu_seconds"].number(),
        threads=item["threads"].integer(),
        peak_rss_mb=item["peak_rss_mb"].number(),
        events_read=item["events_read"].integer(),
    )


def _unmerged(node: str, item: Value) -> UnmergedFile:
    return UnmergedFile(
        node=node,
        step=item["step"].text(),
        module=item["module"].text(),
        lfn=item["lfn"].text(),
        size_bytes=item["size_bytes"].integer(),
        adler32=item["adler32"].text(),
        events=item["events"].integer(),
        lumis=lumis.counts_from_json(item["lumis"]),
        parents=item["parents"].texts(),
    )
