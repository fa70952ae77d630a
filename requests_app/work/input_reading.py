"""Input files read from DBS and Rucio: once at import, again while the dataset may grow (spec 4.3).

Streamed and committed block by block: memory is bounded by the largest block, and a crash goes on where it stopped. Where files
are is ``input_places.py``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import structlog
from django.db.models import Count, F, Sum
from django.db.models.functions import Coalesce

from dags_app.planning import lumis
from dags_app.planning.selection import NO_WANTED_LUMI, WantedLumis, wanted_share
from dags_app.planning.specs import ExclusionKind, InputSpec, LumiRanges, WorkflowSpec
from dags_app.planning.splitters.lumi_files import NO_LUMI
from requests_app.feed import emit_event
from requests_app.models import InputFile, Workflow
from requests_app.work.input_lumis import lumis_out_of_reach, lumis_rebuild
from requests_app.work.input_places import Location, Places
from requests_app.work.input_validity import blocks_short, dataset_unusable, read_steadily, request_warn
from requests_app.work.spec import spec_of
from wms2.adapters import factory
from wms2.adapters.types import BlockInfo, DbsFileInfo
from wms2.errors import PlanningRefused, ServiceRejected, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.copying import copy_rows
from wms2.runtime.crash import crash_point
from wms2.runtime.locks import Fenced

log = structlog.get_logger(__name__)
_COLUMNS = (
    *("workflow", "block_name", "located_at", "waiting_reason", "lfn", "size_bytes", "events", "adler32", "wanted_events"),
    *("odd_lumis", "lumis", "parents", "rses", "parent_rses", "excluded_kind", "excluded_reason", "excluded_by", "excluded_at"),
)


class NewFile(NamedTuple):
    """An InputFile that is not written yet. ``is_short``: DBS says less of its lumis or parents than of most files'."""

    lfn: str
    size_bytes: int
    events: int
    adler32: str
    lumis: LumiRanges
    odd_lumis: tuple[tuple[int, int, int, int], ...]
    parents: list[str]
    location: Location
    wanted_events: int | None = None
    excluded_kind: str = ""
    excluded_reason: str = ""
    is_short: bool = False


def inputs_import(*, workflow: Workflow, fenced: Fenced) -> None:
    """Read the input dataset into InputFile rows. Repeatable: blocks that are stored are skipped.

    Raises:
        PlanningRefused: the dataset does not exist, or is not live, before or after it was read; or has no
            file that is wanted and cannot get one any more.
        ServiceUnavailable: DBS or Rucio did not answer; what is stored stays.
    """
    spec = spec_of(workflow)
    if spec.input is None or workflow.input_imported_at is not None:
        return
    wanted = spec.input
    if why := dataset_unusable(wanted.dataset):
        raise PlanningRefused(f"input dataset {why}")
    stored = _stored(workflow)
    counts: dict[str, int] = {}
    for block in factory.dbs().blocks(spec.input.dataset):
        if not _is_chosen(block, spec.input):
            continue
        counts[block.block_name] = block.file_count
        if block.block_name not in stored:
            rows = read_steadily(block.block_name, partial(_rows_of, workflow, spec, wanted, block.block_name), _is_short)
            with fenced():
                input_rows_write(workflow, block.block_name, rows)
            crash_point("import.called")
    if not wanted.open_seconds:
        _refuse_other_blocks(wanted, counts)
    if why := dataset_unusable(wanted.dataset):
        raise PlanningRefused(f"input dataset {why}, which it was not when its first file was read")
    with fenced():
        _finish_import(workflow, spec, wanted, counts)
    workflow.refresh_from_db()
    log.info(
        "input imported",
        request_name=workflow.request_id,
        dataset=spec.input.dataset,
        events=workflow.requested_events,
        open_seconds=spec.input.open_seconds,
    )


def inputs_reread(*, workflow: Workflow, fenced: Fenced) -> int:
    """Look for files that DBS has now and had not before; the number of them. Close the input when its time is over.

    The time counts from the last new file, so that reading after its end with nothing new closes the input for good.

    Raises:
        ServiceRejected: the dataset is not live: the input is neither read nor closed.
        ServiceUnavailable: DBS or Rucio did not answer; what is stored stays.
    """
    spec = spec_of(workflow)
    if spec.input is None:
        return 0
    now, found, stored, counts = clock.now(), 0, _stored(workflow), dict[str, int]()
    _reread_refuse(spec.input)
    for block in factory.dbs().blocks(spec.input.dataset):
        if not _is_chosen(block, spec.input):
            continue
        counts[block.block_name] = block.file_count
        if block.is_open or block.file_count > stored.get(block.block_name, 0):
            found += _take_new(workflow, spec, spec.input, block, fenced)
    _reread_refuse(spec.input)
    until = (workflow.input_grew_at or now) + timedelta(seconds=spec.input.open_seconds)
    closed = {"input_closed_at": now} if not found and now >= until else {}
    if closed:
        _refuse_other_blocks(spec.input, counts)
    with fenced():
        Workflow.objects.filter(pk=workflow.pk).update(input_read_at=now, **closed)
        _warn_short(workflow, spec.input, counts)
        if found:
            emit_event("input.grew", workflow.request, files=found)
    workflow.refresh_from_db()
    log.info("input read again", request_name=workflow.request_id, new_files=found, closed=bool(closed))
    return found


def input_open(workflow: Workflow) -> InputSpec | None:
    """The input, while files may still come."""
    wanted = spec_of(workflow).input
    if wanted is None or not wanted.open_seconds or workflow.input_closed_at is not None:
        return None
    return wanted


def _take_new(workflow: Workflow, spec: WorkflowSpec, wanted: InputSpec, block: BlockInfo, fenced: Fenced) -> int:
    """Files of one block that have no row: rows, lumis and totals in one transaction, so that no crash can leave a part."""
    known = set(InputFile.objects.filter(workflow=workflow, block_name=block.block_name).values_list("lfn", flat=True))

    def read(files: list[DbsFileInfo]) -> list[NewFile]:
        new = [file for file in files if file.lfn not in known]
        return _rows_of(workflow, spec, wanted, block.block_name, new) if new else []

    rows = read_steadily(block.block_name, read, _is_short)
    if not rows:
        return 0
    with fenced():
        if Workflow.objects.filter(pk=workflow.pk, input_closed_at__isnull=False).exists():
            return 0  # while DBS was read: flushed, or another takes what comes now
        if spec.splitting.algorithm.by_lumi:
            rows = _late_excluded(workflow, wanted, rows)
        events = F("requested_events") + input_rows_write(workflow, block.block_name, rows)
        Workflow.objects.filter(pk=workflow.pk).update(requested_events=events, input_grew_at=clock.now())
        if spec.splitting.algorithm.by_lumi:
            lumis_rebuild(workflow, wanted)
    return len(rows)


def _refuse_other_blocks(wanted: InputSpec, read: Mapping[str, int]) -> None:
    """Right before what was read counts as the whole. Raises ServiceUnavailable: DBS lists other blocks by now, or did not list
    them all before; they are read the next time."""
    if {block.block_name for block in factory.dbs().blocks(wanted.dataset) if _is_chosen(block, wanted)} != read.keys():
        raise ServiceUnavailable("dbs", "blocks", f"the blocks of {wanted.dataset} change while they are read")


def _reread_refuse(wanted: InputSpec) -> None:
    if why := dataset_unusable(wanted.dataset):
        raise ServiceRejected("dbs", "inputs_reread", f"input dataset {why}: it is neither read nor taken for whole")


def _warn_short(workflow: Workflow, wanted: InputSpec, counts: Mapping[str, int]) -> None:
    """What is INVALID at the first reading is no input; a warning says that it is missing."""
    before = f"{wanted.dataset}: fewer files"
    if short := blocks_short(_stored(workflow), counts):
        request_warn(workflow, f"{wanted.dataset}: {short}", instead_of=before)


def input_rows_of(
    workflow: Workflow, spec: WorkflowSpec, wanted: InputSpec, block_name: str, lfns: Collection[str]
) -> list[NewFile]:
    """Rows of these files of a block, with what the catalogues say of them; nothing is written.

    Raises:
        ServiceUnavailable: a catalogue did not answer, or DBS does not have one of them as valid.
    """

    def read(valid: list[DbsFileInfo]) -> list[NewFile]:
        files = [file for file in valid if file.lfn in lfns]
        if missing := sorted(set(lfns) - {file.lfn for file in files}):
            raise ServiceUnavailable("dbs", "files", f"{missing[0]} is not among the valid files of {block_name}")
        return _rows_of(workflow, spec, wanted, block_name, files)

    return read_steadily(block_name, read, _is_short)


def _late_excluded(workflow: Workflow, wanted: InputSpec, rows: Sequence[NewFile]) -> list[NewFile]:
    """Shares of lumis that were dealt before their file came are not read (docs/adr/0007): each is logged, the first warned of.

    A file with nothing else is excluded; rows are read between rounds, so what is dealt is done.
    """
    selection, dealt = WantedLumis(wanted), lumis_out_of_reach(workflow)
    found, late = list(rows), 0
    for index, row in enumerate(rows):
        mine = selection.among(row.lumis)
        shared = lumis.intersect(mine, dealt)
        if row.excluded_kind or not shared:
            continue
        late += 1
        run, first, _ = next(lumis.iterate(shared))
        why = f"{row.lfn} came after its share of lumi {run}:{first} could be read: that lumi is done, from other files"
        if shared == mine:
            found[index] = row._replace(excluded_kind=ExclusionKind.LATE.value, excluded_reason=why)
        if late == 1:
            then = "such files are named in the log, and excluded if they hold nothing else"
            request_warn(workflow, f"{wanted.dataset}: {why}; {then}")
        log.warning("file came late", request_name=workflow.request_id, lfn=row.lfn, run=run, lumi=first, excluded=shared == mine)
    return found


def _finish_import(workflow: Workflow, spec: WorkflowSpec, wanted: InputSpec, counts: Mapping[str, int]) -> None:
    files = InputFile.objects.filter(workflow=workflow)
    if not wanted.open_seconds:
        if not files.exists():
            chosen = " in the blocks that the block lists choose" if wanted.block_whitelist or wanted.block_blacklist else ""
            raise PlanningRefused(f"input dataset {wanted.dataset} has no valid file{chosen}")
        if not files.filter(excluded_at__isnull=True).exists():
            first = files.order_by("lfn")[0]
            raise PlanningRefused(f"none of the files of {wanted.dataset} can be used, e.g. {first.lfn}: {first.excluded_reason}")
    if spec.splitting.algorithm.by_lumi:
        lumis_rebuild(workflow, wanted)
    if unseen := sorted(set(wanted.block_whitelist) - counts.keys()):
        request_warn(workflow, f"BlockWhitelist: not in DBS: {', '.join(unseen[:5])}" + (" …" if len(unseen) > 5 else ""))
    _warn_short(workflow, wanted, counts)
    now = clock.now()
    Workflow.objects.filter(pk=workflow.pk).update(
        requested_events=files.aggregate(total=Sum(Coalesce("wanted_events", "events")))["total"] or 0,
        input_imported_at=now,
        input_read_at=now,
        input_grew_at=now,
        input_closed_at=None if wanted.open_seconds else now,
    )


def _stored(workflow: Workflow) -> dict[str, int]:
    rows = InputFile.objects.filter(workflow=workflow).order_by().values_list("block_name").annotate(number=Count("pk"))
    return dict(rows)


def _is_chosen(block: BlockInfo, wanted: InputSpec) -> bool:
    if wanted.block_whitelist and block.block_name not in wanted.block_whitelist:
        return False
    return block.block_name not in wanted.block_blacklist


def _rows_of(workflow: Workflow, spec: WorkflowSpec, wanted: InputSpec, name: str, files: Sequence[DbsFileInfo]) -> list[NewFile]:
    """Rows of files of the block ``name``, with what the catalogues say of them; nothing is written."""
    counts = defaultdict[str, list[tuple[int, int, int | None]]](list)
    for lfn, run, lumi, events in factory.dbs().file_lumis(name):
        counts[lfn].append((run, lumi, events))
    parents = defaultdict[str, set[str]](set)
    if wanted.include_parents:
        for link in factory.dbs().file_parents(name):
            parents[link.lfn].add(link.parent_lfn)
    located = Places(workflow, spec).read(name, {file.lfn: sorted(parents.get(file.lfn, ())) for file in files})
    selection, by_lumi = WantedLumis(wanted), spec.splitting.algorithm.by_lumi
    rows: list[NewFile] = []
    for file in files:
        lfn, mine = file.lfn, counts.pop(file.lfn, [])
        ranges, odd = lumis.from_pairs(each[:2] for each in mine), lumis.odd(mine, file.events)
        adler32 = file.adler32 if len(file.adler32) <= 8 else ""
        excluded, events = ("", ""), None
        if by_lumi and not ranges:
            excluded = ExclusionKind.UNUSABLE.value, NO_LUMI
        elif not selection.everything:
            wanted_lumis = selection.among(ranges)
            if wanted_lumis != ranges:
                events = wanted_share(file.events, ranges, wanted_lumis)
            if not wanted_lumis:
                excluded = ExclusionKind.UNWANTED.value, NO_WANTED_LUMI
        counted = sum(count or 0 for *_, count in mine)  # 0: its lumis were not
        short = not mine or (wanted.include_parents and lfn not in parents) or 0 < counted < file.events
        more = sorted(parents.get(lfn, ())), located[lfn], events, *excluded, short
        rows.append(NewFile(lfn, file.size_bytes, file.events, adler32, ranges, odd, *more))
    return rows


def _is_short(rows: Sequence[NewFile]) -> bool:
    """A block that is still being registered may lack lumis and parents of files that are there already."""
    return any(row.is_short for row in rows)


def input_rows_write(workflow: Workflow, block_name: str, rows: Sequence[NewFile]) -> int:
    """By COPY, in the caller's transaction: a block has thousands of files. Returns the events that are wanted of them."""
    now = clock.now()
    places: dict[Location, tuple[str, str]] = {}

    def values() -> Iterator[tuple[object, ...]]:
        for row in rows:
            if row.location not in places:
                places[row.location] = json.dumps(row.location.rses), json.dumps(row.location.parent_rses)
            excluded = ("import", now) if row.excluded_kind else ("", None)
            yield (
                *(workflow.pk, block_name, now, "", row.lfn, row.size_bytes, row.events, row.adler32, row.wanted_events),
                *(
                    json.dumps(row.odd_lumis),
                    json.dumps(lumis.to_json(row.lumis)),
                    json.dumps(row.parents) if row.parents else "[]",
                    *places[row.location],
                ),
                *(row.excluded_kind, row.excluded_reason, *excluded),
            )

    copy_rows(InputFile, _COLUMNS, values())
    return sum(row.events if row.wanted_events is None else row.wanted_events for row in rows)
