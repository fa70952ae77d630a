"""Input files as planning wants them: what is left of each, where it can be read, and which are left out (spec 4.5).

Owns the way from InputFile rows to ``InputFileSpec`` values and exclusions. Reading the catalogues is ``input_reading.py``,
lumis are ``input_lumis.py``. Sites come through CRIC's many-to-many mapping at planning time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.specs import ExcludedFile, InputFileSpec, LumiRanges
from requests_app.ledger import files_left
from requests_app.models import InputFile, Workflow
from sites_app.selectors import sites_by_rse
from wms2 import clock

Sites = Mapping[str, Iterable[str]]
_CHUNK = 2000


def file_specs(workflow: Workflow, *, tried: bool, anywhere: bool) -> Iterator[InputFileSpec | ExcludedFile]:
    """Files with events left, LFNs ascending, with the event ranges left; fresh files or tried ones.

    Args:
        anywhere: files are read from wherever they are (TrustSitelists), so those of a job need no site in common.
    """
    sites = sites_by_rse()
    for row in files_left(workflow).filter(tried=tried).iterator(chunk_size=_CHUNK):
        yield _spec(row, sites, anywhere=anywhere, left=_left(row) if row.unclaimed < row.weight else None)


def lumi_specs(workflow: Workflow, left: LumiRanges, *, anywhere: bool) -> Iterator[InputFileSpec | ExcludedFile]:
    """Files that hold any of the lumis ``left``, LFNs ascending, each with those it holds."""
    sites = sites_by_rse()
    rows = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True).order_by("lfn")
    for row in rows.iterator(chunk_size=_CHUNK):
        mine = lumis.intersect(lumis.from_json(row.lumis), left)
        if mine:
            yield _spec(row, sites, anywhere=anywhere, left_lumis=mine)


def exclude_files(*, workflow: Workflow, excluded: Iterable[ExcludedFile], actor: str = "planner") -> None:
    """Files that no job will read, each with its reason; in the caller's transaction."""
    now = clock.now()
    for file in excluded:
        InputFile.objects.filter(workflow=workflow, lfn=file.lfn, excluded_at__isnull=True).update(
            excluded_at=now, excluded_reason=file.reason, excluded_by=actor
        )


def _spec(
    row: InputFile,
    sites: Sites,
    *,
    anywhere: bool,
    left: tuple[tuple[int, int], ...] | None = None,
    left_lumis: LumiRanges | None = None,
) -> InputFileSpec | ExcludedFile:
    places = _sites(row.rses, sites)
    if places and row.parent_rses and not anywhere:
        together = places.intersection(*(_sites(rses, sites) for rses in row.parent_rses))
        if not together:
            return ExcludedFile(row.lfn, f"no site has both the file and its parents; the file is at {', '.join(sorted(places))}")
        places = together
    return InputFileSpec(
        lfn=row.lfn,
        size_bytes=row.size_bytes,
        events=row.events,
        lumis=lumis.from_json(row.lumis),
        locations=places,
        parents=tuple(row.parents),
        left=left,
        left_lumis=left_lumis,
    )


def _sites(rses: Iterable[str], sites: Sites) -> frozenset[str]:
    return frozenset(site for rse in rses for site in sites.get(rse, ()))


def _left(row: Any) -> tuple[tuple[int, int], ...]:
    """Event ranges of a partly claimed file that nobody has claimed, 0-based and inclusive."""
    claimed = sorted((c.span.lower, c.span.upper - 1) for c in WorkUnitClaim.objects.filter(input_file=row, live=True))
    found, start = [], 0
    for first, last in claimed:
        if first > start:
            found.append((start, first - 1))
        start = max(start, last + 1)
    if start < row.events:
        found.append((start, row.events - 1))
    return tuple(found)
