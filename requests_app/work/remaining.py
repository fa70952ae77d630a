"""What is left of a request's work as planning wants it, and rows for what planning leaves out of it, with its reason (spec 4.5;
docs/design/model.md, Ledger).

Owns the way from InputFile rows to ``InputFileSpec`` values and exclusions. Fresh work comes before that of failed units
(error-handling 5.2). Nothing is written while jobs are drawn: what a splitter leaves out is collected
(``dags_app.planning.plan``), and recorded by ``record_left_out`` before the round is.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, F, Max, Q, QuerySet, TextField
from django.db.models.functions import Cast

from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.plan import LeftOut, WorkLeft
from dags_app.planning.specs import (
    ExclusionKind,
    GenerationLeft,
    GenerationSpec,
    InputFileSpec,
    LumiRanges,
    WaitingFile,
    WorkflowSpec,
)
from outputs_app.blocks.ownership import lumi_next
from requests_app.models import BY_BYTES, InputFile, Workflow
from requests_app.work.input_lumis import lumis_rebuild, lumis_refuse
from requests_app.work.input_places import InputRow, Places, waiting_files, waiting_record
from requests_app.work.ledger import Ledger, files_left
from requests_app.work.lumi_account import lumis_left
from wms2.errors import ShortOfEvents
from wms2.runtime import clock
from wms2.runtime.in_force import in_force


def work_left(workflow: Workflow, spec: WorkflowSpec, ledger: Ledger) -> WorkLeft | None:
    """What a round may take, input files as iterators over their rows; None when nothing is left.

    Raises:
        ShortOfEvents: rounds keep losing events.
    """
    if not ledger.work_left:
        return None
    if spec.generation is not None:
        _refuse_runaway(spec.generation, ledger)
        lumi = max(workflow.next_first_lumi, lumi_next(request_id=workflow.request.pk))
        return WorkLeft(GenerationLeft(event_next(workflow), lumi, ledger.left_events))
    places, rows = Places(workflow, spec), dict[str, tuple[int, int]]()
    if spec.splitting.algorithm.by_lumi:
        # the parts share no lumi, so a lumi in several files is in one part, with all of them
        left = lumis_left(workflow)
        parts = [lumi_specs(workflow, places, part) for part in (left.fresh, left.tried) if part]
    else:
        some = {False: ledger.left_files, True: ledger.attempted_files}
        parts = [file_specs(workflow, places, rows, tried=tried) for tried, number in some.items() if number]
    return WorkLeft(parts=parts, waited=frozenset(waiting_files(workflow).values_list("lfn", flat=True)), rows=rows)


def record_left_out(workflow: Workflow, spec: WorkflowSpec, left_out: LeftOut, *, actor: str = "planner") -> None:
    """Exclusions, each with its reason, and refusals as rows; in the caller's transaction."""
    waiting_record(workflow, waiting=left_out.waiting, found=left_out.found)
    alike = defaultdict[tuple[str, ExclusionKind], list[str]](list)
    for file in left_out.files:
        alike[file.reason, file.kind].append(file.lfn)
    for (reason, kind), lfns in alike.items():
        out = {"excluded_at": clock.now(), "excluded_reason": reason, "excluded_by": actor, "excluded_kind": kind}
        rows = InputFile.objects.filter(workflow=workflow, lfn__in=lfns, excluded_at__isnull=True)
        rows.update(**out, waiting_since=None, waiting_reason="")
    refused = left_out.refused
    if spec.input is not None and spec.splitting.algorithm.by_lumi and (left_out.files or refused):
        lumis_refuse(workflow, refused)
        lumis_rebuild(workflow, spec.input)


def event_next(workflow: Workflow) -> int:
    """Its first event number that is free, also of requests it shares a generation with: derived ones, and what these were
    derived from. To be looked up after the lumi: of two that plan at once, the lumis refuse one."""
    request = workflow.request
    if not request.derived_by and request.derived_from_id is None:
        return workflow.next_first_event
    shared = Workflow.objects.filter(~Q(request__derived_by="") | Q(request__derived_from__isnull=False))
    found: int = shared.filter(request__family=request.family).aggregate(most=Max("next_first_event"))["most"]
    return max(workflow.next_first_event, found or 1)


def events_most(asked: GenerationSpec) -> int:
    """As many events are planned at most, lost ones and extensions included."""
    return int(asked.events * in_force().generation_excess_factor)


def _refuse_runaway(asked: GenerationSpec, ledger: Ledger) -> None:
    """Rounds that keep losing events end at a multiple of the request; then a person looks (docs/design/model.md, Ledger)."""
    most, made = events_most(asked), ledger.made_events
    if made + ledger.left_events > most:
        raise ShortOfEvents(
            f"{made} events were planned for {asked.events} asked, {ledger.left_events} are left; "
            f"planning them would pass {most}: most work fails, see the errors of the last round"
        )


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

    A lumi is dealt once, with all files that hold it (docs/adr/0007): while one of them waits, the lumi waits.
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


def _rows(files: QuerySet[Any], partly: Q | None = None) -> Iterator[tuple[InputRow, bool]]:
    """The files as the query orders them, streamed; JSON is read here, as of places there are few different lists."""
    texts = [Cast(name, TextField()) for name in ("lumis", "odd_lumis", "parents", "rses", "parent_rses")]
    fields = ("pk", "lfn", "size_bytes", "events", "restored_at")
    found = files.values_list(*fields, *texts, ExpressionWrapper(partly or Q(pk__isnull=True), BooleanField()))
    known: dict[str, tuple[Any, ...]] = {"[]": ()}
    rows = found.iterator(chunk_size=_CHUNK)
    for pk, lfn, size_bytes, events, restored_at, held, odd, parents, rses, parent_rses, cut in rows:
        for text in (rses, parent_rses):
            if text not in known:
                known[text] = tuple(tuple(each) if isinstance(each, list) else each for each in json.loads(text))
        read = () if parents == "[]" else tuple(json.loads(parents))
        odd_lumis = () if odd == "[]" else tuple(tuple(each) for each in json.loads(odd))
        where = known[rses], known[parent_rses]
        yield InputRow(pk, lfn, size_bytes, events, json.loads(held), restored_at, read, *where, odd_lumis), cut


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
        odd_lumis=row.odd_lumis,
    )


def _left(row: InputRow) -> tuple[tuple[int, int], ...]:
    """Event ranges of a partly claimed file that nothing claims, 0-based and inclusive."""
    claimed = WorkUnitClaim.objects.filter(input_file_id=row.pk, live=True).order_by("first").values_list("first", "last")
    found, start = [], 0
    for first, last in claimed:
        if first > start:
            found.append((start, first - 1))
        start = max(start, last + 1)
    if start < row.events:
        found.append((start, row.events - 1))
    return tuple(found)
