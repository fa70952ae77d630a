"""What jobs need, where they may run, how large merged files get. Owns the defaults; ``planning.sizing`` the memory window."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dags_app.planning.sizing import memory_window
from dags_app.planning.specs import BlockClosing, ResourceSpec
from requests_app.intake import lexicon
from requests_app.intake.chain import StepView
from requests_app.intake.draft import MemoryWindow
from requests_app.intake.findings import Findings
from requests_app.intake.gpus import read_gpu, together
from requests_app.intake.values import is_set, names, real, whole
from wms2.errors import PlanningRefused

#: CMS site names.
Sites = tuple[str, ...]

#: ReqMgr2's defaults (docs/design/services.md, Documents).
DEFAULT_MEMORY_MB = 2300.0
DEFAULT_TIME_PER_EVENT_SECONDS = 12.0
DEFAULT_SIZE_PER_EVENT_KB = 512.0
DEFAULT_MIN_MERGE_BYTES = 2 * 1024**3
DEFAULT_MAX_MERGE_BYTES = 4 * 1024**3
DEFAULT_MAX_MERGE_EVENTS = 100_000_000

_MAX_CORES = 256
_MAX_MEMORY_MB = 4_000_000.0
#: No job may take longer than this, so neither may one event (docs/splitting.md, ``job_time_limit``).
_MAX_TIME_PER_EVENT_SECONDS = 172_800.0
_MAX_SIZE_PER_EVENT_KB = 1e9
_MAX_MERGE_BYTES = 10**13


def read_resources(document: Mapping[str, object], views: Sequence[StepView], findings: Findings) -> ResourceSpec:
    """What one job that runs ``views`` asks: cores and memory are each the largest of the steps' (docs/design/model.md, Sizes).

    Memory as asked, in MB for the whole job. Time and size per event stand at the top; a task may have its own.
    """
    cores = [findings.read(*view.inherited("Multicore"), whole(1, _MAX_CORES), 1) for view in views]
    memory = [findings.read(*view.inherited("Memory"), real(1.0, _MAX_MEMORY_MB), DEFAULT_MEMORY_MB) for view in views]
    time, size = (
        views[0].inherited(key) if views and views[0].is_task else (key, document.get(key))
        for key in ("TimePerEvent", "SizePerEvent")
    )
    return ResourceSpec(
        cores=max(cores, default=1),
        memory_mb=math.ceil(max(memory, default=DEFAULT_MEMORY_MB)),
        time_per_event_seconds=findings.read(*time, real(1e-9, _MAX_TIME_PER_EVENT_SECONDS), DEFAULT_TIME_PER_EVENT_SECONDS),
        size_per_event_kb=findings.read(*size, real(1e-9, _MAX_SIZE_PER_EVENT_KB), DEFAULT_SIZE_PER_EVENT_KB),
        gpu=together([read_gpu(view, findings) for view in views], findings),
    )


def fit_memory(asked: ResourceSpec, window: MemoryWindow, findings: Findings, *, field: str = "Memory") -> ResourceSpec:
    """Bring the memory into the window: raised to the default per core, refused above the maximum per core (spec 5.2)."""
    try:
        cores, memory_mb = memory_window(
            memory_mb=(asked.memory_mb,),
            cores=(asked.cores,),
            default_memory_per_core_mb=window.default_per_core_mb,
            max_memory_per_core_mb=window.max_per_core_mb,
        )
    except PlanningRefused as refusal:
        findings.problem(field, str(refusal))
        return asked
    return replace(asked, cores=cores, memory_mb=memory_mb)


def read_sites(document: Mapping[str, object], rule: lexicon.NameRule, findings: Findings) -> tuple[Sites, Sites]:
    """White list and black list, each site once, named by ``rule``; an empty white list is left to the caller."""
    read = names(rule)
    white: Sites = findings.read("SiteWhitelist", document.get("SiteWhitelist"), read, ())
    return white, findings.read("SiteBlacklist", document.get("SiteBlacklist"), read, ())


def check_sites(
    document: Mapping[str, object], white: Sites, black: Sites, known_sites: Collection[str] | None, findings: Findings
) -> None:
    """Refuse a request that no site, or no known site, may run."""
    if not is_set(document.get("SiteWhitelist")):
        findings.problem("SiteWhitelist", "is missing: the request is not assigned to any site")
    for key, listed in (("SiteWhitelist", white), ("SiteBlacklist", black)):
        unknown = [site for site in listed if known_sites is not None and site not in known_sites]
        if unknown:
            findings.problem(key, f"unknown site(s): {', '.join(unknown)}")
    if white and not set(white) - set(black):
        findings.problem("SiteWhitelist", "every site of it is on SiteBlacklist, too")


def read_block_closing(document: Mapping[str, object], findings: Findings) -> BlockClosing:
    """When a block of output takes no more; 0 where the document does not say."""
    most = whole(0, 2**53)
    return BlockClosing(
        max_wait_seconds=findings.read("BlockCloseMaxWaitTime", document.get("BlockCloseMaxWaitTime"), most, 0),
        max_files=findings.read("BlockCloseMaxFiles", document.get("BlockCloseMaxFiles"), most, 0),
        max_events=findings.read("BlockCloseMaxEvents", document.get("BlockCloseMaxEvents"), most, 0),
        max_bytes=findings.read("BlockCloseMaxSize", document.get("BlockCloseMaxSize"), most, 0),
    )


def read_merge_limits(document: Mapping[str, object], findings: Findings) -> tuple[int, int, int]:
    """Sizes of merged files: the least and the most bytes, the most events."""
    size, count = whole(1, _MAX_MERGE_BYTES), whole(1, 2**53)
    least = findings.read("MinMergeSize", document.get("MinMergeSize"), size, DEFAULT_MIN_MERGE_BYTES)
    most = findings.read("MaxMergeSize", document.get("MaxMergeSize"), size, DEFAULT_MAX_MERGE_BYTES)
    if least > most:
        findings.problem("MinMergeSize", f"{least} bytes is more than MaxMergeSize ({most})")
    return least, most, findings.read("MaxMergeEvents", document.get("MaxMergeEvents"), count, DEFAULT_MAX_MERGE_EVENTS)
