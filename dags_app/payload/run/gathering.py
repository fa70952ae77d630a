"""What a node of a later task reads: the files that its upstream nodes left in the site's storage. Owns ``<node>.input.json``.

``gather`` is the PRE script of such a node: it takes the reports that the upstream nodes' POST scripts accepted, as ``collect``
does for the merge. The file is transferred to the job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from ..contract import codes, documents, files, scripts
from ..contract.codes import PayloadError
from ..contract.convert import read
from ..contract.documents import Share, Task, UnitDocument, UnitJob
from ..contract.layout import NODE_INPUT_SCHEMA, node_input_name
from ..contract.lumis import Counts
from ..contract.reading import Value, load_document
from ..contract.reports import accepted_report
from .shares import Part, part_of
from .storage import Volume


@dataclass(frozen=True)
class GatheredFile:
    """A file of an upstream node; ``parents`` are the unit's input files behind it. ``part`` None: it is to be read whole."""

    node: str
    lfn: str
    path: Path
    events: int
    lumis: Counts
    parents: tuple[str, ...]
    part: Optional[Part] = None


def gather(directory: Path, node: str) -> int:
    """Write ``<node>.input.json`` in the unit's ``directory``; 0.

    PayloadError when an upstream node has no accepted report, one from another site, or not exactly one file to read. Only a
    node that had nothing to do itself left none.
    """
    job, unit = documents.read_job(directory.parent), documents.read_unit(directory)
    unit_job, site = unit.job(node), scripts.elected_site(directory)
    task = job.task(unit_job.task)
    found, idle = [], []
    for upstream in unit_job.reads:
        file = _file_of(directory, unit, task, upstream, site)
        if file is None:
            idle.append(upstream)
        else:
            found.append(file)
    document = {"schema": NODE_INPUT_SCHEMA, "unit": unit.unit, "node": node, "files": found, "idle": idle}
    files.write_json(directory / node_input_name(node), document)
    return 0


def _file_of(directory: Path, unit: UnitDocument, task: Task, node: str, site: str | None) -> dict[str, Any] | None:
    report, accepted = accepted_report(directory, unit, node, site)
    if accepted.idle:
        return None
    mine = [item for item in report["outputs"].items() if (item["step"].text(), item["module"].text()) == _read_by(task)]
    if len(mine) != 1:
        raise PayloadError(
            codes.INVALID_DOCUMENT,
            f"{node} reports {len(mine)} files of {task.input_step}/{task.input_module} for task {task.name}, expected one",
        )
    copied = ("lfn", "size_bytes", "adler32", "events", "lumis", "parents")
    return {"node": node, **{name: mine[0][name].raw for name in copied}}


def _read_by(task: Task) -> tuple[str, str]:
    return task.input_step or "", task.input_module or ""


def read_node_input(directory: Path, unit: UnitDocument, job: UnitJob, volume: Volume) -> tuple[GatheredFile, ...]:
    """The files that a job is to read, at their places in the site's storage: one of each upstream node, in order.

    None at all when its share is empty, or the upstream nodes had nothing to do: then the job has nothing to do.
    """
    document = load_document(directory / node_input_name(job.node), NODE_INPUT_SCHEMA)
    if (document["unit"].text(), document["node"].text()) != (unit.unit, job.node):
        raise document["node"].refuse(f"expected {unit.unit}/{job.node}")
    found = tuple(_gathered(item, job.share, volume) for item in document["files"].items())
    idle = document.get("idle")
    nodes = [*(file.node for file in found), *(idle.texts() if idle else ())]
    if sorted(nodes) != sorted(job.reads):
        raise document["files"].refuse(f"expected one file of each of {', '.join(job.reads)}")
    return tuple(file for file in found if file.part is None or not file.part.is_empty)


def _gathered(item: Value, share: Share | None, volume: Volume) -> GatheredFile:
    file = read(item, GatheredFile, path=volume.path(item["lfn"].text()), part=None)
    if share is None:
        return file
    return replace(file, part=part_of(file.events, file.lumis, share.part, share.parts, by_lumi=share.by_lumi))
