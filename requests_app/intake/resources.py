"""What jobs need, where they may run, how large merged files get. Owns the defaults and the memory window (spec 5.2)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from dags_app.planning.specs import BlockClosing, ResourceSpec
from requests_app.intake import lexicon
from requests_app.intake.chain import Part
from requests_app.intake.findings import Findings
from requests_app.intake.gpus import read_gpu, together
from requests_app.intake.values import is_set, names, real, whole
from wms2.conf import Limits

#: CMS site names.
Sites = tuple[str, ...]

#: ReqMgr2's defaults (docs/design/services.md, Documents).
DEFAULT_MEMORY_MB = 2300.0
DEFAULT_TIME_PER_EVENT_SECONDS = 12.0
DEFAULT_SIZE_PER_EVENT_KB = 512.0
DEFAULT_MIN_MERGE_BYTES = 2 * 1024**3
DEFAULT_MAX_MERGE_BYTES = 4 * 1024**3
DEFAULT_MAX_MERGE_EVENTS = 100_000_000

MAX_CORES = 256
_MAX_MEMORY_MB = 4_000_000.0
#: No job may take longer than this, so neither may one event (docs/splitting.md, ``job_time_limit``).
_MAX_TIME_PER_EVENT_SECONDS = 172_800.0
_MAX_SIZE_PER_EVENT_KB = 1e9
_MAX_MERGE_BYTES = 10**13


def read_resources(document: Part, parts: Sequence[Part]) -> ResourceSpec:
    """What one job that runs ``parts`` asks: cores and memory are each the largest of the steps' (docs/design/model.md, Sizes).

    Memory as asked, in MB for the whole job. Time and size per event stand at the top; a task may have its own.
    """
    cores = [part.read_inherited("Multicore", whole(1, MAX_CORES), 1) for part in parts]
    memory = [part.read_inherited("Memory", real(1.0, _MAX_MEMORY_MB), DEFAULT_MEMORY_MB) for part in parts]
    read = parts[0].read_inherited if parts and parts[0].is_task else document.read
    return ResourceSpec(
        cores=max(cores, default=1),
        memory_mb=math.ceil(max(memory, default=DEFAULT_MEMORY_MB)),
        time_per_event_seconds=read("TimePerEvent", real(1e-9, _MAX_TIME_PER_EVENT_SECONDS), DEFAULT_TIME_PER_EVENT_SECONDS),
        size_per_event_kb=read("SizePerEvent", real(1e-9, _MAX_SIZE_PER_EVENT_KB), DEFAULT_SIZE_PER_EVENT_KB),
        gpu=together([read_gpu(part) for part in parts], document.findings),
    )


def fit_memory(asked: ResourceSpec, limits: Limits, findings: Findings, *, field: str = "Memory") -> ResourceSpec:
    """Bring the memory into the window: raised to the default per core, refused above the maximum per core."""
    cores, memory_mb, most = asked.cores, asked.memory_mb, limits.max_memory_per_core_mb
    if memory_mb > most * cores:
        findings.problem(
            field,
            f"Memory {memory_mb} MB with Multicore {cores} is {-(-memory_mb // cores)} MB per core, and sites offer at "
            f"most {most} MB per core; ask for {-(-memory_mb // most)} cores or less memory",
        )
        return asked
    return replace(asked, memory_mb=max(memory_mb, limits.default_memory_per_core_mb * cores))


def read_sites(document: Part, rule: lexicon.NameRule) -> tuple[Sites, Sites]:
    """White list and black list, each site once, named by ``rule``; an empty white list is left to the caller."""
    return document.read("SiteWhitelist", names(rule), ()), document.read("SiteBlacklist", names(rule), ())


def check_sites(document: Part, white: Sites, black: Sites, known_sites: Collection[str] | None) -> None:
    """Refuse a request that no site, or no known site, may run."""
    if not is_set(document.own.get("SiteWhitelist")):
        document.problem("SiteWhitelist", "is missing: the request is not assigned to any site")
    for key, listed in (("SiteWhitelist", white), ("SiteBlacklist", black)):
        unknown = [site for site in listed if known_sites is not None and site not in known_sites]
        if unknown:
            document.problem(key, f"unknown site(s): {', '.join(unknown)}")
    if white and not set(white) - set(black):
        document.problem("SiteWhitelist", "every site of it is on SiteBlacklist, too")


def read_block_closing(document: Part) -> BlockClosing:
    """When a block of output takes no more; 0 where the document does not say."""
    most = whole(0, 2**53)
    return BlockClosing(
        max_wait_seconds=document.read("BlockCloseMaxWaitTime", most, 0),
        max_files=document.read("BlockCloseMaxFiles", most, 0),
        max_events=document.read("BlockCloseMaxEvents", most, 0),
        max_bytes=document.read("BlockCloseMaxSize", most, 0),
    )


def read_merge_limits(document: Part) -> tuple[int, int, int]:
    """Sizes of merged files: the least and the most bytes, the most events."""
    size, count = whole(1, _MAX_MERGE_BYTES), whole(1, 2**53)
    least = document.read("MinMergeSize", size, DEFAULT_MIN_MERGE_BYTES)
    most = document.read("MaxMergeSize", size, DEFAULT_MAX_MERGE_BYTES)
    if least > most:
        document.problem("MinMergeSize", f"{least} bytes is more than MaxMergeSize ({most})")
    return least, most, document.read("MaxMergeEvents", count, DEFAULT_MAX_MERGE_EVENTS)
