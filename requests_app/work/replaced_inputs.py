"""Input files that were lost and made again under other names: the request that reads them reads those instead (ADR 0021).

Only what another request of ours has made again counts, and only of files of which nothing is claimed any more: what was made
from them is removed with them. Which of the new files holds what of which lost one is not known, so all are read at once, when
nothing that was made from a lost one is left; until then the lost ones are set aside. What else is new in the dataset stays out
of a request whose input is closed.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

import structlog
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from dags_app.planning.specs import ExclusionKind
from outputs_app.models import CaseAction, CaseState, IntegrityCase, OutputFile, Validity
from requests_app.feed import emit_event
from requests_app.lease import Evaluation
from requests_app.models import DONE, HoldCode, InputFile, Request, RequestStatus, Workflow
from requests_app.work.exclusions import exclusions_too_many, files_taken
from requests_app.work.groups import ENDED
from requests_app.work.input_lumis import lumis_rebuild
from requests_app.work.input_reading import input_rows_of, input_rows_write
from requests_app.work.spec import spec_of
from wms2.conf import conf
from wms2.errors import ServiceError
from wms2.runtime import clock

log = structlog.get_logger(__name__)
#: Until it is looked again whether they are made, at most; their request's completion wakes.
CHECK_AGAIN_SECONDS = 600.0
_REPLACED = "it was lost; what was made again in its place is read"
_GONE = "input files were lost and not made again as a whole"
_ASIDE = "it was lost; what is made again is read when nothing is left that was made from lost input"


def inputs_replaced(evaluation: Evaluation) -> bool:
    """Whether its work can be counted: nothing of its input is being made again; what was is read in place of what was lost.

    Else it says what it waits for, or is held if no request makes it any more.
    """
    request, workflow = evaluation.request, evaluation.request.workflow
    if not workflow.input_dataset:
        return True
    lost, taken = _lost(workflow)
    makers = list(Request.objects.filter(cases__in=_cases(lost)).distinct().order_by("request_name")) if lost.exists() else []
    names = ", ".join(f"{maker.request_name} ({maker.get_status_display()})" for maker in makers if maker.status not in DONE)
    if not makers:
        return True
    if any(maker.status in ENDED for maker in makers):
        first = lost.order_by("lfn")[0]
        why = f"input files were lost and are not made again by {names}, e.g. {first.lfn}: leave them out in the release"
        evaluation.hold(HoldCode.EXCLUDED, why)
        return False
    if taken and request.status != RequestStatus.VALIDATED_OUTPUTS:  # there each file has been looked at, and decided of
        _set_aside(evaluation, lost)
        return True
    if names:
        _wait(evaluation, f"input files that were lost, to be made again by {names}", CHECK_AGAIN_SECONDS)
        return False
    try:
        whole = _replace(evaluation, lost, makers, taken)
    except ServiceError as error:
        log.warning("input that was made again not read", request_name=request.request_name, error=str(error))
        _wait(evaluation, f"input files that were made again, to be read: {error}", conf().cycle_seconds)
        return False
    if not whole and exclusions_too_many(request, workflow):
        names = ", ".join(str(maker) for maker in makers)
        why = f"what {names} made again may hold what was accepted here" if taken else f"{names} completed without"
        evaluation.hold(HoldCode.EXCLUDED, f"{_GONE}: {why}")
        return False
    return True


def _wait(evaluation: Evaluation, what: str, seconds: float) -> None:
    """What may take days needs no slot."""
    if evaluation.request.status == RequestStatus.PLANNING:
        again = clock.now() + timedelta(seconds=seconds)
        evaluation.transition(RequestStatus.QUEUED, f"waits for {what}", next_attempt_at=again, last_error=what)
    else:
        evaluation.note(waiting_for=what)
        evaluation.again_in(seconds)


def _lost(workflow: Workflow) -> tuple[QuerySet[InputFile], set[str]]:
    """Removed by those who made them, to be made again: those of which nothing is planned or done here any more, and the LFNs of
    those of which something is done still."""
    removed = IntegrityCase.objects.filter(name=OuterRef("lfn"), action=CaseAction.REMOVED).exclude(cut={})
    wanted = Q(excluded_at__isnull=True) | Q(excluded_kind=ExclusionKind.LOST) | Q(excluded_reason=_ASIDE)
    rows = InputFile.objects.filter(wanted, workflow=workflow)
    lfns = set(rows.exclude(excluded_reason=_GONE).filter(Exists(removed)).values_list("lfn", flat=True))
    taken = files_taken(workflow, lfns) if lfns else set()
    return (rows.filter(lfn__in=lfns - taken) if lfns else rows.none()), taken


def _set_aside(evaluation: Evaluation, lost: QuerySet[InputFile]) -> None:
    """They are neither read nor missed; the request goes on with its other work, and to the validation, which finds what was made
    from lost input."""
    workflow = evaluation.request.workflow
    spec = spec_of(workflow)
    out = lost.exclude(excluded_reason=_ASIDE)
    if spec.input is None or not out.exists():
        return
    with evaluation.fenced():
        files = InputFile.objects.filter(pk__in=list(out.values_list("pk", flat=True)))
        files.update(
            excluded_at=clock.now(), excluded_kind=ExclusionKind.UNWANTED, excluded_reason=_ASIDE, excluded_by="lifecycle",
            waiting_since=None, waiting_reason="",
        )  # fmt: skip
        if spec.splitting.algorithm.by_lumi:
            lumis_rebuild(workflow, spec.input)
        evaluation.written.append("lost input set aside")


def _cases(lost: QuerySet[InputFile]) -> QuerySet[IntegrityCase]:
    return IntegrityCase.objects.filter(name__in=lost.values("lfn"), action=CaseAction.REMOVED).exclude(cut={})


def _replace(evaluation: Evaluation, lost: QuerySet[InputFile], makers: list[Request], taken: set[str]) -> bool:
    """New rows for what was made again, and no more work of the lost ones, in one transaction after DBS and Rucio were asked.
    Returns whether all was made again; not where a maker was completed early. Nothing is read where something that was made from
    others that were lost (``taken``) was accepted: it may be in the new files again.

    Raises:
        ServiceError: one of them does not have a file, or did not answer.
    """
    workflow = evaluation.request.workflow
    spec = spec_of(workflow)
    if spec.input is None:
        return True
    known = InputFile.objects.filter(workflow=workflow, lfn=OuterRef("lfn"))
    since = _cases(lost).filter(request=OuterRef("dataset__workflow__request__pk"), state=CaseState.REMOVED)
    files = OutputFile.objects.filter(
        Exists(since.filter(ended_at__lt=OuterRef("created_at"))), dataset__name=spec.input.dataset,
        dataset__workflow__request__in=makers, validity=Validity.VALID,
    )  # fmt: skip
    by_block = defaultdict[str, set[str]](set)
    for lfn, block in () if taken else files.filter(~Exists(known)).values_list("lfn", "block__dbs_block_name"):
        by_block[block].add(lfn)
    rows = {block: input_rows_of(workflow, spec, spec.input, block, lfns) for block, lfns in sorted(by_block.items())}
    # they may be known: of an input that is open each new file is read
    whole = not taken and files.exists() and not any(maker.complete_early for maker in makers)
    kind, why = (ExclusionKind.UNWANTED, _REPLACED) if whole else (ExclusionKind.LOST, _GONE)
    with evaluation.fenced():
        gone = list(lost.values_list("pk", flat=True))
        out = InputFile.objects.filter(pk__in=gone)
        before = out.aggregate(total=Sum(Coalesce("wanted_events", "events")))["total"] or 0
        now = clock.now()
        out.update(
            excluded_at=now, excluded_kind=kind, excluded_reason=why, excluded_by="lifecycle",
            waiting_since=None, waiting_reason="",
        )  # fmt: skip
        new = sum(input_rows_write(workflow, block, each) for block, each in rows.items())
        Workflow.objects.filter(pk=workflow.pk).update(requested_events=F("requested_events") + new - before)
        if spec.splitting.algorithm.by_lumi:
            lumis_rebuild(workflow, spec.input)
        emit_event("input.replaced", evaluation.request, lost=len(gone), files=sum(map(len, rows.values())))
        evaluation.written.append("lost input replaced")
    workflow.refresh_from_db()
    return whole
