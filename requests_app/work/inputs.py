"""Input files as planning wants them: what is left of each, where it can be read, and which are left out (spec 4.5).

Owns the way from InputFile rows to ``InputFileSpec`` values and exclusions. Reading the catalogues is ``input_reading.py``,
places are ``input_places.py``, lumis ``input_lumis.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.specs import ExcludedFile, InputFileSpec, LumiRanges, WaitingFile
from requests_app.models import BY_BYTES, InputFile, Workflow
from requests_app.work.input_places import Places
from requests_app.work.ledger import files_left
from wms2 import clock

_CHUNK = 2000


def file_specs(workflow: Workflow, places: Places, *, tried: bool) -> Iterator[InputFileSpec | WaitingFile]:
    """Files with events left, LFNs ascending, with the event ranges left; fresh files or tried ones."""
    for row in files_left(workflow).filter(tried=tried).iterator(chunk_size=_CHUNK):
        yield _spec(row, places, left=_left(row) if row.unclaimed < row.weight else None)


def lumi_specs(workflow: Workflow, places: Places, left: LumiRanges) -> Iterator[InputFileSpec | WaitingFile]:
    """Files that hold any of the lumis ``left``, LFNs ascending, each with those it holds.

    A lumi is dealt once, with all files that hold it (docs/adr/0030): while one of them waits, the lumi waits.
    """
    rows = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True).order_by(BY_BYTES)
    specs: list[InputFileSpec] = []
    for row in rows.iterator(chunk_size=_CHUNK):
        mine = lumis.intersect(lumis.from_json(row.lumis), left)
        if not mine:
            continue
        spec = _spec(row, places, left_lumis=mine)
        if isinstance(spec, WaitingFile):
            left = lumis.subtract(left, mine)
            yield spec
        else:
            specs.append(spec)
    for spec in specs:
        todo = lumis.intersect(spec.left_lumis or {}, left)
        if todo:
            yield replace(spec, left_lumis=todo)


def exclude_files(*, workflow: Workflow, excluded: Iterable[ExcludedFile], actor: str = "planner") -> None:
    """Files that no job will read, each with its reason; in the caller's transaction."""
    now = clock.now()
    for file in excluded:
        InputFile.objects.filter(workflow=workflow, lfn=file.lfn, excluded_at__isnull=True).update(
            excluded_at=now,
            excluded_reason=file.reason,
            excluded_by=actor,
            excluded_kind=file.kind,
            waiting_since=None,
            waiting_reason="",
        )


def _spec(
    row: InputFile,
    places: Places,
    *,
    left: tuple[tuple[int, int], ...] | None = None,
    left_lumis: LumiRanges | None = None,
) -> InputFileSpec | WaitingFile:
    sites = places.of(row)
    if isinstance(sites, WaitingFile):
        return sites
    return InputFileSpec(
        lfn=row.lfn,
        size_bytes=row.size_bytes,
        events=row.events,
        lumis=lumis.from_json(row.lumis),
        locations=sites,
        parents=tuple(row.parents),
        left=left,
        left_lumis=left_lumis,
    )


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
