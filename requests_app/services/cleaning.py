"""Clean: everything that a request has made goes, in any status (spec 15; ADR 0021). Writes rows only.

``requests_app.lifecycle.cleaning`` follows it, ``lifecycle.cleaner`` removes files at sites, effects what DBS and Rucio have.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, Sum

from dags_app.models import DAG, Leftover
from outputs_app.effects.invalidation import TAKING_BACK, invalidation_ask, manifest_ask
from outputs_app.models import (
    OPEN_CASE,
    BlockValidation,
    CaseAction,
    CaseState,
    Effect,
    IntegrityCase,
    OutputDataset,
    OutputFile,
)
from requests_app import states
from requests_app.models import Request, RequestStatus, StopIntent, Workflow
from requests_app.services.common import give_up, recorded_operation, stop_first, stopped_for
from requests_app.services.invalidation import epoch_raise
from requests_app.work.rounds import round_files_at_rest
from wms2.actions import AlreadyDone, applies
from wms2.errors import FieldRefused
from wms2.runtime import clock
from wms2.runtime.notify import RUN_EFFECTS, notify
from wms2.web.formatting import counted

S = RequestStatus
#: Requests that have nothing any more that would rest on another.
_GONE = (S.FAILED, S.ABORTED, S.CLEANING, S.CLEANED)


def request_clean(
    *, request: Request, actor: str, reason: str, confirm: str, accept_dependents: bool = False, accept_rest: bool = False
) -> None:
    """Remove everything that it has made: DAG, registrations, rules, files, directories. From its intent on a new epoch keeps all
    writers from bringing anything back. Repeated it is done once.

    Args:
        confirm: its name, typed.
        accept_dependents: other requests rest on it, and that is known.
        accept_rest: of one that is being cleaned: it counts as CLEANED with what is left, which is still tried.

    Raises:
        FieldRefused: the name is another, requests rest on it and that is not accepted, or its rest is accepted before it is
            being cleaned.
    """
    files = round_files_at_rest(request)
    with recorded_operation(
        request, actor, "request_clean", reason, accept_dependents=accept_dependents, accept_rest=accept_rest
    ):
        if confirm != request.request_name:
            raise FieldRefused("confirm", f"type the request's name, {request.request_name}")
        if not applies(request, clean_refused(request)):
            return
        if request.status == S.CLEANING:
            if accept_rest:
                cleaning = {**cleaning_evidence(request), "waited_for": request.waiting_for}
                states.transition(request, S.CLEANED, actor=actor, reason=reason, evidence=cleaning)
            return
        if accept_rest:
            raise FieldRefused("accept_rest", "it is not being cleaned yet, so what stays is not known")
        others = dependents(request)
        if others and not accept_dependents:
            raise FieldRefused("accept_dependents", f"{counted(len(others), 'request')} rest on it, e.g. {others[0]}")
        epoch_raise(request)
        if not stop_first(request, StopIntent.CLEAN, actor, reason):
            if request.status == S.NEW:  # as with an abort: what it would have replaced may be restarted again
                Request.objects.filter(superseded_by_request=request.request_name).update(superseded_by_request="")
            states.transition(request, S.CLEANING, actor=actor, reason=reason)
            give_up(request, reason, files)
            cleaning_follow_up(request)


def clean_refused(request: Request) -> str:
    """Why it cannot be cleaned; empty if it can."""
    if request.status == S.CLEANED:
        return AlreadyDone("It is cleaned already.")
    return stopped_for(request, StopIntent.CLEAN) if request.status == S.STOPPING else ""


def dependents(request: Request) -> list[str]:
    """Names of requests that rest on it: its next versions, what was derived from it, those that wait for it or read its
    outputs."""
    written = OutputDataset.objects.filter(workflow__request=request).values("name")
    reading = Workflow.objects.filter(input_dataset__in=written).values("request_id")
    rest = Q(previous_version_request=request) | Q(derived_from=request) | Q(depends_on=request) | Q(request_name__in=reading)
    rows = Request.objects.filter(rest).exclude(pk=request.pk).exclude(status__in=_GONE).distinct()
    return list(rows.order_by("request_name").values_list("request_name", flat=True))


def cleaning_follow_up(request: Request) -> None:
    """What every way into CLEANING asks for, in its transaction: nothing of it is validated, protected or valid any more, and
    each of its units is looked for at its sites once more."""
    workflow, now = Workflow.objects.filter(request=request).first(), clock.now()
    if workflow is None:
        return
    removed = {"state": CaseState.REMOVED, "action": CaseAction.REMOVED, "reason": "the request is cleaned"}
    cases = IntegrityCase.objects.filter(request=request, state__in=OPEN_CASE)
    cases.update(**removed, acted_at=now, ended_at=now)
    BlockValidation.objects.filter(block__workflow=workflow, validated_at__isnull=True).delete()
    DAG.objects.filter(workflow=workflow).update(leftovers_at=None)
    manifest_ask(request_id=request.pk, request_epoch=request.epoch)
    invalidation_ask(request_id=request.pk, request_epoch=request.epoch, workflow_id=workflow.pk, purge=True)
    notify(RUN_EFFECTS)


def cleaning_evidence(request: Request) -> dict[str, Any]:
    """What has gone by now, and what is left; numbers."""
    effects = Effect.objects.filter(request=request, kind__in=TAKING_BACK)
    files = OutputFile.objects.filter(block__workflow__request=request).order_by()
    leftovers = Leftover.objects.filter(unit__workflow__request=request)
    return {
        "effects": dict(effects.order_by().values_list("state").annotate(Count("id"))),
        "rules_deleted": sum(int(result.get("deleted", 0)) for result in effects.values_list("result", flat=True)),
        "output_files": dict(files.values_list("validity").annotate(Count("id"))),
        "files_removed_at_sites": leftovers.aggregate(number=Sum("removed_files"))["number"] or 0,
        "units_left_at_sites": leftovers.filter(settled_at__isnull=True).count(),
        "taken_at": clock.now().isoformat(),
    }
