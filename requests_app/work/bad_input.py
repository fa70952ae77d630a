"""Input files that jobs gave up over are excluded when their round is closed (error-handling 5.2), as POST scripts name them.

Only files that are lost as far as one can tell: two sites agree, or the only one failed again hours later (docs/adr/0040). The
others are tried elsewhere, or later. Only files of units that were given up, and of which nobody else has processed or claimed
a part: what is done stays done.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from dags_app.models import WorkUnit, WorkUnitState
from dags_app.planning.specs import ExcludedFile, ExclusionKind
from dags_app.services.failures import BadInput, bad_input_of
from requests_app.models import Event, InputFile, Round
from requests_app.work.input_places import Places
from requests_app.work.left import LeftOut, record_left_out
from requests_app.work.spec import spec_of

log = structlog.get_logger(__name__)


def bad_input_read(round_: Round) -> BadInput:
    """What the POST scripts of the round's units that are not done name. Reads files: before a transaction."""
    directory = round_.dags.order_by("created_at").values_list("submit_dir", flat=True).first()
    units = set(WorkUnit.objects.filter(round=round_).exclude(state=WorkUnitState.DONE).values_list("name", flat=True))
    return bad_input_of(directory, units) if directory is not None else {}


def only_bad_input_left(round_: Round, named: BadInput) -> bool:
    """Whether each unit of the round that is not done was given up over input files: a rescue would read the same ones again."""
    units = set(WorkUnit.objects.filter(round=round_, state=WorkUnitState.PLANNED).values_list("name", flat=True))
    return bool(units) and units <= named.keys()


def bad_input_exclude(*, round_: Round, units: Sequence[WorkUnit], named: BadInput) -> int:
    """Exclude what the POST scripts of these units name; in the caller's transaction, after their claims have ended.

    Returns how many files. A request without input excludes nothing.
    """
    workflow = round_.workflow
    spec = spec_of(workflow)
    if spec.input is None:
        return 0
    why_of: dict[str, str] = {}
    for unit in units:
        why_of = {**named.get(unit.name, {}), **why_of}
    rows = InputFile.objects.filter(workflow=workflow, lfn__in=why_of, excluded_at__isnull=True).exclude(claims__live=True)
    places = Places(workflow, spec)
    told = {row.lfn: places.lost(row) for row in rows.order_by("lfn")}
    files = [ExcludedFile(lfn, f"{why_of[lfn]}; {why}", ExclusionKind.LOST) for lfn, why in told.items() if why]
    if len(files) < len(told):
        spared = [lfn for lfn, why in told.items() if not why]
        log.warning("input files unreadable", request_name=workflow.request_id, files=len(spared), first=spared[0])
    if not files:
        return 0
    record_left_out(workflow, spec, LeftOut(files=files))
    data = {"files": [file.lfn for file in files[:50]], "number": len(files), "round": round_.index}
    Event.objects.create(request=workflow.request, kind="input.excluded", data=data)
    log.warning("input files excluded", request_name=workflow.request_id, files=len(files), first=files[0].lfn)
    return len(files)
