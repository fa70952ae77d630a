"""Input files that were left out although the request wants them, which no operator has accepted yet.

What the request's own masks leave out, what came too late to be read (it is warned of) and what an operator left out is not
counted; nor is a file without events and lumis, of which nothing can be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog
from django.db.models import Q, QuerySet

from dags_app.models import WorkUnit, WorkUnitState
from dags_app.planning import lumis
from dags_app.planning.plan import LeftOut
from dags_app.planning.specs import NOT_MISSED, ExcludedFile, ExclusionKind
from dags_app.services.failures import BadInput, bad_input_of
from requests_app.feed import emit_event
from requests_app.models import InputFile, Request, Round, Workflow
from requests_app.work.input_lumis import lumis_claimed
from requests_app.work.input_places import Places
from requests_app.work.overrides import limits_of
from requests_app.work.remaining import record_left_out
from requests_app.work.spec import spec_of
from wms2.runtime.in_force import in_force

log = structlog.get_logger(__name__)

_MISSED = (ExclusionKind.LOST, ExclusionKind.UNUSABLE)


def exclusions_open(workflow: Workflow) -> QuerySet[InputFile]:
    """Files left out, of those that the request wants."""
    rows = InputFile.objects.filter(workflow=workflow, excluded_kind__in=_MISSED)
    return rows.exclude(Q(events=0) & Q(lumis={}))


def exclusions_counted(workflow: Workflow) -> tuple[int, int]:
    """How many these are, and of how many that the request wants; at least one."""
    count, wanted = exclusions_open(workflow).count(), InputFile.objects.filter(workflow=workflow)
    return count, wanted.exclude(excluded_kind__in=NOT_MISSED).count() if count else 1


def exclusions_too_many(request: Request, workflow: Workflow) -> bool:
    """Whether the request would be held for them now."""
    count, wanted = exclusions_counted(workflow)
    return count / wanted > limits_of(request, in_force()).max_excluded_fraction


def exclusions_accept(*, workflow: Workflow, actor: str, reason: str) -> None:
    """The request may complete without them; in the caller's transaction."""
    rows = list(exclusions_open(workflow))
    for row in rows:
        row.excluded_kind = ExclusionKind.ACCEPTED
        row.excluded_reason = f"{row.excluded_reason}; accepted by {actor}: {reason}"
    InputFile.objects.bulk_update(rows, ["excluded_kind", "excluded_reason"], batch_size=1000)


def files_taken(workflow: Workflow, lfns: Iterable[str]) -> set[str]:
    """Those of the files of which something is planned or done."""
    rows = InputFile.objects.filter(workflow=workflow, lfn__in=list(lfns))
    if not spec_of(workflow).splitting.algorithm.by_lumi:
        return set(rows.filter(claims__live=True).values_list("lfn", flat=True))
    claimed = lumis_claimed(workflow, live=True)
    found = rows.values_list("lfn", "lumis")
    return {lfn for lfn, held in found if lumis.intersect(lumis.from_json(held), claimed)}


def bad_input_read(round_: Round) -> BadInput:
    """What the POST scripts of the round's units that are not done name. Reads files: before a transaction."""
    directory = round_.dags.order_by("created_at").values_list("submit_dir", flat=True).first()
    units = set(WorkUnit.objects.filter(round=round_).exclude(state=WorkUnitState.DONE).values_list("name", flat=True))
    return bad_input_of(directory, units) if directory is not None else {}


def only_bad_input_left(round_: Round, named: BadInput) -> bool:
    """Whether each unit of the round that is not done was given up over input files: a rescue would read the same ones again."""
    units = set(WorkUnit.objects.filter(round=round_, state=WorkUnitState.PLANNED).values_list("name", flat=True))
    return bool(units) and units <= named.keys()


def bad_input_exclude(*, round_: Round, units: Sequence[WorkUnit], named: BadInput) -> None:
    """Exclude what the POST scripts of these units name; in the caller's transaction, after their claims have ended."""
    workflow = round_.workflow
    spec = spec_of(workflow)
    if spec.input is None:
        return
    why_of: dict[str, str] = {}
    for unit in units:
        why_of = {**named.get(unit.name, {}), **why_of}
    rows = InputFile.objects.filter(workflow=workflow, lfn__in=why_of, excluded_at__isnull=True).exclude(claims__live=True)
    places = Places(workflow, spec)
    lost = {row.lfn: places.lost(row) for row in rows.order_by("lfn")}
    files = [ExcludedFile(lfn, f"{why_of[lfn]}; {why}", ExclusionKind.LOST) for lfn, why in lost.items() if why]
    if len(files) < len(lost):
        spared = [lfn for lfn, why in lost.items() if not why]
        log.warning("input files unreadable", request_name=workflow.request_id, files=len(spared), first=spared[0])
    if files:
        record_left_out(workflow, spec, LeftOut(files=files))
        data = {"files": [file.lfn for file in files[:50]], "number": len(files), "round": round_.index}
        emit_event("input.excluded", workflow.request, **data)
        log.warning("input files excluded", request_name=workflow.request_id, files=len(files), first=files[0].lfn)
