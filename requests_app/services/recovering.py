"""The way back of a request that has completed, or was archived, and of which files were lost (ADR 0021).

Owns what it takes to begin again: its names, its marks of completion, its status. Which files and which work: ``cases`` and
``lost_files``. From WAITING_INTEGRITY on it goes the way of every request whose claims are cut, and completes again.
"""

from __future__ import annotations

from django.db.models.functions import Coalesce

from dags_app.planning.specs import ExclusionKind
from outputs_app.blocks.ownership import names_claim, names_refuse
from outputs_app.effects.invalidation import invalidation_asked
from outputs_app.models import DatasetState, OutputDataset
from requests_app.models import InputFile, Request, RequestStatus, Workflow
from requests_app.services.common import put
from requests_app.states import transition
from requests_app.work.exclusions import exclusions_accept, files_taken
from requests_app.work.input_lumis import lumis_rebuild
from requests_app.work.ledger import ledger_of
from requests_app.work.spec import spec_of
from wms2.errors import DocumentRefused
from wms2.runtime import clock


def recover_refused(request: Request) -> str:
    """Why a completed request cannot make anything again; empty if it can."""
    datasets = OutputDataset.objects.filter(workflow__request=request)
    if invalidation_asked(request_id=request.pk, request_epoch=request.epoch):
        return "All its outputs are being taken back."
    gone = datasets.exclude(state=DatasetState.ACTIVE).first()
    if gone is not None:
        return f"{gone.name} is {gone.get_state_display().lower()}: a newer version has replaced it, have its files made again."
    try:
        names_refuse(family=request.family, names=datasets.values_list("name", flat=True))
    except DocumentRefused as error:
        return str(error)
    return ""


def recover(request: Request, actor: str, reason: str, *, files: int) -> None:
    """COMPLETED or ARCHIVED -> WAITING_INTEGRITY; in the caller's transaction, which holds the request's row and has asked for
    what is to be cut. ReqMgr2 gets no report: nothing leads back there."""
    names = OutputDataset.objects.filter(workflow__request=request).values_list("name", flat=True)
    names_claim(request_id=request.pk, family=request.family, names=names)
    Workflow.objects.filter(request=request).update(inputs_removed_at=None)
    evidence = {"files": files, "completed_at": request.completed_at.isoformat() if request.completed_at else None}
    transition(request, RequestStatus.WAITING_INTEGRITY, actor=actor, reason=f"lost: {reason}", evidence=evidence)


def keep_left_out(request: Request, actor: str, reason: str) -> None:
    """It was completed early: what it was completed without stays out, and what it has is enough. Of a file that was begun the
    rest is made as well."""
    workflow, now = request.workflow, clock.now()
    spec = spec_of(workflow)
    exclusions_accept(workflow=workflow, actor=actor, reason=reason)
    if spec.input is None:
        Workflow.objects.filter(pk=workflow.pk).update(requested_events=ledger_of(workflow, whole=False).done_events)
    else:
        files = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True)
        lfns = set(files.values_list("lfn", flat=True))
        files.filter(lfn__in=lfns - files_taken(workflow, lfns)).update(
            excluded_at=now, excluded_kind=ExclusionKind.ACCEPTED, excluded_by=actor, waiting_since=None, waiting_reason="",
            excluded_reason="the request was completed early without it",
        )  # fmt: skip
        if spec.splitting.algorithm.by_lumi:
            lumis_rebuild(workflow, spec.input)
    Workflow.objects.filter(pk=workflow.pk).update(input_closed_at=Coalesce("input_closed_at", now))
    put(request, complete_early=False, overrides={**request.overrides, "pass_fraction": 0.0, "max_excluded_fraction": 1.0})
