"""What operators do to single input files: leaving them out, as part of a release, and letting them in again."""

from __future__ import annotations

from collections.abc import Sequence

from dags_app.planning import lumis
from dags_app.planning.plan import LeftOut
from dags_app.planning.selection import WantedLumis
from dags_app.planning.specs import ExcludedFile, ExclusionKind, InputSpec
from requests_app.feed import emit_event
from requests_app.models import TERMINAL, InputFile, Request, RequestStatus, Workflow
from requests_app.services.common import live_dag_of, recorded_operation
from requests_app.work.exclusions import files_taken
from requests_app.work.input_lumis import lumis_out_of_reach, lumis_rebuild
from requests_app.work.remaining import record_left_out
from requests_app.work.spec import spec_of
from wms2.actions import must_apply
from wms2.errors import InvalidTransition, StaleState
from wms2.runtime import clock

#: More files than these are not a person's decision.
MAX_FILES = 10_000
#: What was left out because of a moment, or by an operator. The rest would be left out again for the same reason.
RESTORABLE = (ExclusionKind.LOST, ExclusionKind.OPERATOR, ExclusionKind.ACCEPTED)
_OVER = (*TERMINAL, RequestStatus.REMOVING_FILES, RequestStatus.COMPLETED, RequestStatus.CLEANING)


def input_files_restore(*, request: Request, lfns: Sequence[str], actor: str, reason: str) -> int:
    """Excluded files are read after all, in a further round; what jobs said of them before no longer counts. How many were.

    Raises:
        InvalidTransition: nothing more is planned, or a file cannot be let in; nothing was changed.
        StaleState: a round is being planned, maybe with lumis of these files from others.
    """
    with recorded_operation(request, actor, "input_files_restore", reason, files=list(lfns[:100]), number=len(lfns)):
        workflow = Workflow.objects.filter(request=request).first()
        if workflow is None or request.status in _OVER:
            raise InvalidTransition(f"{request.request_name} is {request.get_status_display()}; no file of it can be let in")
        rows = _excluded(workflow, lfns)
        spec = spec_of(workflow)
        if spec.input is not None and spec.splitting.algorithm.by_lumi:
            if request.status == RequestStatus.PLANNING and live_dag_of(request) is None:  # what is dealt is not claimed yet
                raise StaleState(f"{request.request_name} is planned just now, with lumis of them maybe; try again in a moment")
            _refuse_late(workflow, spec.input, rows)
        InputFile.objects.filter(pk__in=[row.pk for row in rows]).update(
            excluded_at=None, excluded_reason="", excluded_by="", excluded_kind="", restored_at=clock.now()
        )
        if rows and spec.input is not None and spec.splitting.algorithm.by_lumi:
            lumis_rebuild(workflow, spec.input)
        if rows:
            Request.objects.filter(pk=request.pk).update(group_ready_at=None)  # the last of its group must not take it on
            evidence = {"files": [row.lfn for row in rows[:50]], "number": len(rows), "actor": actor, "reason": reason}
            emit_event("input.restored", request, **evidence)
    return len(rows)


def restore_refused(row: InputFile) -> str:
    """Why a file cannot be let in again; empty if it can."""
    if row.excluded_at is None:
        return "It is not left out."
    if row.excluded_kind not in RESTORABLE:
        return f"{row.get_excluded_kind_display()}: it would be left out again, for the same reason."
    return ""


def input_files_exclude(*, workflow: Workflow, lfns: Sequence[str], actor: str, reason: str) -> None:
    """Have these files read no more; in the transaction of a release.

    Raises:
        InvalidTransition: one is not among its input, or is processed already.
    """
    rows = _named(workflow, lfns, "excluded_files")
    taken = sorted(files_taken(workflow, lfns))
    if taken:
        raise InvalidTransition(f"excluded_files: {taken[0]} is processed already; its output would have to be invalidated")
    files = [ExcludedFile(row.lfn, f"excluded by {actor}: {reason}", ExclusionKind.OPERATOR) for row in rows]
    record_left_out(workflow, spec_of(workflow), LeftOut(files=files), actor=actor)


def _named(workflow: Workflow, lfns: Sequence[str], field: str) -> list[InputFile]:
    """By LFN."""
    if len(lfns) > MAX_FILES:
        raise InvalidTransition(f"{field}: {len(lfns)} are too many; at most {MAX_FILES} at a time")
    rows = sorted(InputFile.objects.filter(workflow=workflow, lfn__in=lfns), key=lambda row: row.lfn)
    strangers = sorted(set(lfns) - {row.lfn for row in rows})
    if strangers:
        raise InvalidTransition(f"{field}: {len(strangers)} are not among its input files, e.g. {strangers[0]}")
    return rows


def _excluded(workflow: Workflow, lfns: Sequence[str]) -> list[InputFile]:
    rows = [row for row in _named(workflow, lfns, "files") if row.excluded_at is not None]  # asked for again, it was done already
    for row in rows:
        must_apply(row.lfn, restore_refused(row))
    return rows


def _refuse_late(workflow: Workflow, wanted: InputSpec, rows: Sequence[InputFile]) -> None:
    """A lumi is dealt once, with all files that hold it (docs/adr/0007): a share of one that was dealt cannot be read later."""
    selection, dealt = WantedLumis(wanted), lumis_out_of_reach(workflow)
    for row in rows:
        shared = lumis.intersect(selection.among(lumis.from_json(row.lumis)), dealt)
        if shared:
            run, first, _ = next(lumis.iterate(shared))
            raise InvalidTransition(f"{row.lfn}: lumi {run}:{first} of it is processed already, from other files")
