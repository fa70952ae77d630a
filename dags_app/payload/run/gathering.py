"""What a node of a later task reads: the files that its upstream nodes left in the site's storage. Owns ``<node>.input.json``.

``gather`` is the PRE script of such a node: it takes the reports that the upstream nodes' POST scripts accepted, as ``collect``
does for the merge. The file is transferred to the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from ..contract import documents, files, scripts
from ..contract.convert import read, some_of
from ..contract.documents import UnitDocument, UnitJob
from ..contract.layout import NODE_INPUT_SCHEMA, node_input_name
from ..contract.lumis import Counts
from ..contract.reading import load_document
from ..contract.reports import StoredFile, accepted_report
from . import storage
from .shares import Held, Part, parts_of
from .storage import Volume

_GATHERED = ("node", "lfn", "pfn", "rse", "size_bytes", "adler32", "events", "lumis", "parents")


class GatheredFile(NamedTuple):
    """A file of an upstream node; ``parents`` are the unit's input files behind it. ``part`` None: it is to be read whole.

    ``url``: what cmsRun opens, ``file:`` with a path or ``root:``.
    """

    node: str
    lfn: str
    url: str
    events: int
    lumis: Counts
    parents: tuple[str, ...]
    part: Optional[Part] = None


def gather(directory: Path, node: str) -> int:
    """Write ``<node>.input.json`` in the unit's ``directory``; 0.

    PayloadError when an upstream node has no accepted report, one from another site, or not as many files to read as its step
    ran processes. Only a node that had nothing to do itself left none.
    """
    job, unit = documents.read_job(directory.parent), documents.read_unit(directory)
    unit_job, site = unit.job(node), scripts.elected_site(directory)
    task = job.task(unit_job.task)
    found, idle = [], []
    for upstream in unit_job.reads:
        _, report = accepted_report(directory, unit, upstream, site)
        left = report.files_of(task.input_step or "", task.input_module or "")
        found += [some_of(file, _GATHERED) for file in left]
        idle += [] if left else [upstream]
    document = {"schema": NODE_INPUT_SCHEMA, "unit": unit.unit, "node": node, "files": found, "idle": idle}
    files.write_json(directory / node_input_name(node), document)
    return 0


def read_node_input(
    directory: Path, unit: UnitDocument, job: UnitJob, volumes: Sequence[Volume], scratch: Path
) -> tuple[GatheredFile, ...]:
    """The files that a job is to read, at their places in the site's storage: those of each upstream node, in order.

    None at all when its share is empty, or the upstream nodes had nothing to do: then the job has nothing to do. A file that
    cmsRun cannot read where it lies is fetched to ``scratch``.
    """
    document = load_document(directory / node_input_name(job.node), NODE_INPUT_SCHEMA)
    if (document["unit"].text(), document["node"].text()) != (unit.unit, job.node):
        raise document["node"].refuse(f"expected {unit.unit}/{job.node}")
    stored = {item["lfn"].text(): read(item, StoredFile) for item in document["files"].items()}
    found = tuple(read(item, GatheredFile, url="", part=None) for item in document["files"].items())
    idle = document.get("idle")
    nodes = [*dict.fromkeys(file.node for file in found), *(idle.texts() if idle else ())]
    if sorted(nodes) != sorted(job.reads):
        raise document["files"].refuse(f"expected the files of each of {', '.join(job.reads)}")
    if len(stored) != len(found):
        raise document["files"].refuse("a file is there twice")
    if (share := job.share) is not None:
        held = [Held(file.events, file.lumis) for file in found]
        parts = parts_of(held, share.part, share.parts, by_lumi=share.by_lumi)
        found = in_order(file._replace(part=part) for file, part in zip(found, parts) if part is None or not part.is_empty)
    return tuple(file._replace(url=_place(volumes, stored[file.lfn], scratch)) for file in found)


def _place(volumes: Sequence[Volume], file: StoredFile, scratch: Path) -> str:
    url = storage.readable(volumes, file)
    if url is None:
        scratch.mkdir(exist_ok=True)
        url = f"file:{storage.bring(volumes, file, scratch).resolve()}"
    return url


def in_order(files: Iterable[GatheredFile]) -> tuple[GatheredFile, ...]:
    """Files without events first: cmsRun opens none after the last event that it is to read."""
    return tuple(sorted(files, key=lambda file: file.events > 0))
