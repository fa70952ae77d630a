"""Kill and clone: the request fails, and a new version of it begins from nothing (error-handling 4.3; spec 6.3).

The successor is made at once, as NEW, which the life cycle leaves alone; it is submitted in the transaction in which the old
request fails, so a crash in between neither loses it nor runs both.
"""

from __future__ import annotations

import re
from typing import Any

from outputs_app.models import OutputDataset, Validity
from requests_app import intake, states
from requests_app.intake.documents import next_version
from requests_app.models import MAX_VERSIONS, CleanupPolicy, Request, RequestStatus, StopIntent, Workflow
from requests_app.reqmgr2.reports import report_next_version
from requests_app.selectors.versions import requests_before
from requests_app.services.common import free_name, may_run, put, recorded_operation, stop_first
from requests_app.services.intake import Received, request_import
from requests_app.services.stopping import fail_now
from requests_app.services.workflow import draft_of
from requests_app.work.groups import related_move
from requests_app.work.production_steps import before_steps
from requests_app.work.rounds import round_files_at_rest
from requests_app.work.spec import spec_of
from wms2.actions import AlreadyDone, applies
from wms2.adapters.reqmgr2 import Seen
from wms2.errors import InvalidTransition

S = RequestStatus
_OUR_SUFFIX = re.compile(r"_v\d+\Z")


def request_restart(
    *,
    request: Request,
    actor: str,
    reason: str,
    request_name: str | None = None,
    document: dict[str, Any] | None = None,
    cleanup_policy: CleanupPolicy | None = None,
) -> Request:
    """Fail the request and begin its next version; returns the new request. Done twice it is done once.

    Args:
        request_name: of the new version, e.g. of ReqMgr2's clone; without it ``<name>_v<N>``.
        document: of ReqMgr2's clone; without it the old document with every processing version one higher.
        cleanup_policy: what becomes of the old outputs once the new version is complete; without it as the old request's.

    Raises:
        InvalidTransition: it has ended otherwise, is being stopped for good, has too many versions, or the new one would process
            the same input into a dataset that has valid files.
        DocumentRefused: the new version's document would not be accepted, or its datasets are another's; nothing was changed.
    """
    files = round_files_at_rest(request)
    with recorded_operation(request, actor, "request_restart", reason):
        if not applies(request, restart_refused(request)):
            return Request.objects.get(request_name=request.superseded_by_request)
        name = request_name or successor_name(request)
        document = document if document is not None else next_version(request.request_data)
        outputs, family = _outputs(request, document, name), request.request_name
        asked = Received(submit=False, outputs=outputs, family_of=family, family_reason=reason)
        seen = Seen.of(document) if request_name is not None and document.get("RequestName") == request_name else None
        new = request_import(document=document, request_name=name, actor=actor, asked=asked, seen=seen)
        put(
            new,
            previous_version_request=request,
            cleanup_policy=cleanup_policy or request.cleanup_policy,
            urgent=request.urgent,
            adaptive=request.adaptive,
            overrides={name: value for name, value in request.overrides.items() if name == "pools"},
            **before_steps(request),
        )
        related_move(request, new)
        if request_name is None:
            report_next_version(new, request)
        put(request, superseded_by_request=new.request_name)
        if not stop_first(request, StopIntent.RESTART, actor, reason):
            if request.status != S.FAILED:
                fail_now(request, actor, reason, files)
            successor_begin(request)
            new.refresh_from_db()
        return new


def successor_begin(request: Request) -> None:
    """The old request has failed: submit the version that replaces it; in the caller's transaction."""
    new = _waiting_successor(request)
    if new is not None:
        states.transition(new, S.SUBMITTED, actor="lifecycle", reason=f"{request.request_name} has failed; this replaces it")


def successor_drop(request: Request, why: str) -> None:
    """The old request ends otherwise (aborted, failed): its successor is not wanted either; in the caller's transaction."""
    new = _waiting_successor(request)
    if new is not None:
        related_move(new, request)
        states.transition(new, S.ABORTED, actor="lifecycle", reason=why)
        put(request, superseded_by_request="")


def restart_refused(request: Request) -> str:
    """Why it cannot be restarted; empty if it can."""
    if request.superseded_by_request:
        return AlreadyDone(f"It is replaced already, by {request.superseded_by_request}.")
    if request.status == S.STOPPING:
        intent = StopIntent(request.stop_intent)
        if intent.strength > StopIntent.RESTART.strength:
            return f"It is being stopped already: {intent.label.lower()}."
    elif request.status != S.FAILED and not may_run(request) and not states.allowed(request.status, S.FAILED):
        return f"It is {request.get_status_display()}; it can be restarted when it is held, runs or has failed."
    if request.derived_by or request.derived_from_id:
        return f"It shares its work with {request.derived_by or request.derived_from_id}: import the document anew instead."
    versions = len(requests_before(request)) + 1
    if versions >= MAX_VERSIONS:
        return f"It is version {versions} already; max_versions is {MAX_VERSIONS}."
    return ""


def successor_name(request: Request) -> str:
    """``<name>_v<N>``, the first that is free."""
    stem = _OUR_SUFFIX.sub("", request.request_name) if request.previous_version_request_id else request.request_name
    return free_name(f"{stem}_v", len(requests_before(request)) + 2)


def _waiting_successor(request: Request) -> Request | None:
    return Request.objects.select_for_update(no_key=True).filter(request_name=request.superseded_by_request, status=S.NEW).first()


def _outputs(request: Request, document: dict[str, Any], name: str) -> tuple[str, ...]:
    """What the new version will write, as far as that is known without asking a service; the rest is judged when it begins."""
    workflow = Workflow.objects.filter(request=request).first()
    if workflow is None:
        return ()
    draft = draft_of(document, name)
    names = intake.outputs_of_next(draft, spec_of(workflow))
    valid = OutputDataset.objects.filter(name__in=set(names), files__validity=Validity.VALID).values_list("name", flat=True)
    twice = sorted(set(valid)) if draft.spec.input is not None else []
    if twice:
        raise InvalidTransition(
            f"{request.request_name}: {twice[0]} has valid files, and the new version would process the same input into it once"
            " more; give it a higher ProcessingVersion"
        )
    return names
