"""The report of one attempt (``<node>.<attempt>.report.json``) in its parts. Owns schema ``wms2.report/1``.

``run.attempt`` writes it as the attempt ends. Which attempt of a node counts is what its POST script wrote into
``<node>.post.json``, not the highest attempt number: DAGMan counts attempts from 0 again after a rescue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Optional

from . import codes, lumis
from .codes import PayloadError
from .convert import Json, read
from .documents import Staged, UnitDocument
from .layout import POST_SCHEMA, REPORT_SCHEMA, SUCCESS_CATEGORY, post_name
from .lumis import Counts, LumiCounts, LumiSet
from .reading import Value, load_document

_Seconds = Annotated[float, Json(write=partial(round, ndigits=3))]
_Lumis = Annotated[LumiSet, Json(read=lambda ranges: lumis.expand(lumis.range_triples(ranges)), write=lumis.compact)]
_Megabytes = Annotated[float, Json(write=partial(round, ndigits=1))]


class Slot(NamedTuple):
    """The slot and the HTCondor job of an attempt."""

    site: str
    host: str
    job_id: str  # "<cluster>.<proc>", what DAGMan calls $JOBID
    schedd: Optional[str]
    unit: str
    fence: int
    #: A random id of this start of the job. HTCondor starts a job again under the same number, after a partition even while the
    #: earlier start still runs; what both write must not meet.
    execution: str


class ReadFile(NamedTuple):
    """An input file with the number of events read; a range (from 0) when the job was given only a part of it.

    ``last_event`` is None for a whole file, and for a part without events.
    """

    lfn: str
    events: int
    first_event: Optional[int] = None
    last_event: Optional[int] = None


class Processed(NamedTuple):
    """What a step really read or generated. ``files`` is empty for generation."""

    events: int
    lumis: _Lumis
    files: tuple[ReadFile, ...]


@dataclass(frozen=True)
class StepRecord:
    """One step (or merge command) as it ended. Memory in MB of 1024 x 1024 bytes.

    Of several cmsRun side by side: ``wall_seconds`` until the last one ended, ``cpu_seconds`` of all, ``threads`` of each,
    ``peak_rss_mb`` the largest of one, ``slot_rss_mb`` their peaks added up. ``undivided``: why fewer ran than the step profile
    says, empty when it was obeyed.
    """

    number: int
    name: str
    exit_code: int
    wall_seconds: _Seconds
    cpu_seconds: _Seconds
    threads: int
    peak_rss_mb: _Megabytes
    events_read: int
    events_written: int
    skipped_files: tuple[str, ...] = ()
    input_files: tuple[str, ...] = ()
    processes: int = 1
    slot_rss_mb: _Megabytes = 0.0
    bytes_written: dict[str, int] = field(default_factory=dict)  # by output module, kept or not
    undivided: str = ""


@dataclass(frozen=True)
class StoredFile:
    """A file that has been staged out: where, how big, and the checksum of what is really on the disk."""

    lfn: str
    pfn: str
    rse: str
    size_bytes: int
    adler32: str


@dataclass(frozen=True)
class OutputRecord(StoredFile):
    """A file that was staged out, and what it holds."""

    module: str
    step: str
    dataset: str
    events: int
    lumis: Counts
    parents: tuple[str, ...]

    @classmethod
    def of(cls, output: Staged, stored: StoredFile, events: int, counts: LumiCounts, parents: tuple[str, ...]) -> OutputRecord:
        """The record of a file of ``output``."""
        what = {**vars(stored), "module": output.module, "step": output.step, "dataset": output.dataset}
        return cls(**what, events=events, lumis=counts, parents=parents)


@dataclass(frozen=True)
class UnmergedFile(OutputRecord):
    """A staged-out file of one processing node."""

    node: str


class NodeReport(NamedTuple):
    """The report of a processing node that ended well. ``processed`` is kept as it was written."""

    node: str
    site: str
    processed: dict[str, Any]
    steps: tuple[StepRecord, ...]
    outputs: tuple[UnmergedFile, ...]
    task: int = 1
    cgroup_peak_mb: Optional[int] = None

    @property
    def idle(self) -> bool:
        """Whether the node had nothing to do: one of a later task whose share of its upstream file is empty."""
        return self.task > 1 and not self.processed.get("files")

    def files_of(self, step: str, module: str) -> list[UnmergedFile]:
        """The files of an output module of a step, of each of its processes one; none of a node that had nothing to do.

        PayloadError when there are not as many.
        """
        expected = 0 if self.idle else next((each.processes for each in self.steps if each.name == step), 1)
        found = [] if self.idle else [file for file in self.outputs if (file.step, file.module) == (step, module)]
        if len(found) != expected:
            text = f"{self.node} reports {len(found)} files of {step}/{module}, expected {expected}"
            raise PayloadError(codes.INVALID_DOCUMENT, text)
        return found


def accepted_report(directory: Path, unit: UnitDocument, node: str, site: str | None) -> tuple[Value, NodeReport]:
    """The report that a node's POST script accepted, as it was written and as values.

    PayloadError when there is none, or it is from another site than ``site``.
    """
    post = load_document(directory / post_name(node), POST_SCHEMA)
    if post["classification"]["category"].text() != SUCCESS_CATEGORY or not post["final"].boolean():
        raise PayloadError(codes.INVALID_DOCUMENT, f"{node}: its last attempt did not end well, see {post_name(node)}")
    report, job_id = load_document(directory / post["report"].text(), REPORT_SCHEMA), post["job_id"].text()
    found = node_report(report, unit, node)
    if report["job_id"].text() != job_id:
        raise report["job_id"].refuse(f"expected {job_id}, the job whose end {post_name(node)} judges")
    if site is not None and found.site != site:
        raise report["site"].refuse(f"{node} ran at {found.site}, but the unit is at {site}: its output is elsewhere")
    return report, found


def node_report(report: Value, unit: UnitDocument, node: str) -> NodeReport:
    """The values of a node's report; PayloadError when it is another's, or of an attempt that failed."""
    if report["node"].text() != node or report["unit"].text() != unit.unit:
        raise report.refuse(f"is of {report['unit'].text()}/{report['node'].text()}, expected {unit.unit}/{node}")
    if report["exit_code"].integer() != codes.SUCCESS:
        raise report["exit_code"].refuse(f"{node} failed: {report['error_message'].text()[:200]}")
    read(report["processed"], Processed)
    outputs = tuple(read(item, UnmergedFile, node=node) for item in report["outputs"].items())
    return read(report, NodeReport, node=node, outputs=outputs, task=unit.job(node).task)
