"""Input files as planning wants them: what is left of each, where it can be read, and which are left out (spec 4.5).

Owns the way from InputFile rows to ``InputFileSpec`` values and exclusions. Reading the catalogues is ``input_reading.py``,
places are ``input_places.py``, lumis ``input_lumis.py``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet, TextField
from django.db.models.functions import Cast

from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.specs import ExcludedFile, ExclusionKind, InputFileSpec, LumiRanges, WaitingFile
from requests_app.models import BY_BYTES, InputFile, Workflow
from requests_app.work.input_places import InputRow, Places
from requests_app.work.ledger import files_left
from wms2 import clock

_CHUNK = 2000


def file_specs(
    workflow: Workflow, places: Places, keys: dict[str, tuple[int, int]], *, tried: bool
) -> Iterator[InputFileSpec | WaitingFile]:
    """Files with events left, LFNs ascending, with the event ranges left; fresh files or tried ones.

    Args:
        keys: fills with LFN -> key and events of each row.
    """
    for row, partly in _rows(files_left(workflow).filter(tried=tried), partly=Q(unclaimed__lt=F("weight"))):
        keys[row.lfn] = row.pk, row.events
        yield _spec(row, places, left=_left(row) if partly else None)


def lumi_specs(workflow: Workflow, places: Places, left: LumiRanges) -> Iterator[InputFileSpec | WaitingFile]:
    """Files that hold any of the lumis ``left``, LFNs ascending, each with those it holds.

    A lumi is dealt once, with all files that hold it (docs/adr/0030): while one of them waits, the lumi waits.
    """
    rows = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True).order_by(BY_BYTES)
    specs: list[InputFileSpec] = []
    for row, _ in _rows(rows):
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
            yield spec._replace(left_lumis=todo)


def exclude_files(*, workflow: Workflow, excluded: Iterable[ExcludedFile], actor: str = "planner") -> None:
    """Files that no job will read, each with its reason; in the caller's transaction."""
    now, alike = clock.now(), defaultdict[tuple[str, ExclusionKind], list[str]](list)
    for file in excluded:
        alike[file.reason, file.kind].append(file.lfn)
    for (reason, kind), lfns in alike.items():
        InputFile.objects.filter(workflow=workflow, lfn__in=lfns, excluded_at__isnull=True).update(
            excluded_at=now,
            excluded_reason=reason,
            excluded_by=actor,
            excluded_kind=kind,
            waiting_since=None,
            waiting_reason="",
        )


def _rows(files: QuerySet[Any], partly: Q | None = None) -> Iterator[tuple[InputRow, bool]]:
    """The files as the query orders them, streamed; JSON is read here, as of places there are few different lists."""
    texts = [Cast(name, TextField()) for name in ("lumis", "parents", "rses", "parent_rses")]
    fields = ("pk", "lfn", "size_bytes", "events", "restored_at")
    found = files.values_list(*fields, *texts, ExpressionWrapper(partly or Q(pk__isnull=True), BooleanField()))
    known: dict[str, tuple[Any, ...]] = {"[]": ()}
    rows = found.iterator(chunk_size=_CHUNK)
    for pk, lfn, size_bytes, events, restored_at, held, parents, rses, parent_rses, cut in rows:
        for text in (rses, parent_rses):
            if text not in known:
                known[text] = tuple(tuple(each) if isinstance(each, list) else each for each in json.loads(text))
        read = () if parents == "[]" else tuple(json.loads(parents))
        places = known[rses], known[parent_rses]
        yield InputRow(pk, lfn, size_bytes, events, json.loads(held), restored_at, read, *places), cut


def _spec(
    row: InputRow,
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
        parents=row.parents,
        left=left,
        left_lumis=left_lumis,
    )


def _left(row: InputRow) -> tuple[tuple[int, int], ...]:
    """Event ranges of a partly claimed file that nobody has claimed, 0-based and inclusive."""
    claimed = WorkUnitClaim.objects.filter(input_file_id=row.pk, live=True).order_by("first").values_list("first", "last")
    found, start = [], 0
    for first, last in claimed:
        if first > start:
            found.append((start, first - 1))
        start = max(start, last + 1)
    if start < row.events:
        found.append((start, row.events - 1))
    return tuple(found)
