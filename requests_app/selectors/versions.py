"""The versions of a request: the newest, and those it replaces (spec 7.2, 6.3)."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import Any, NamedTuple

from requests_app.intake import merge_document
from requests_app.models import CleanupPolicy, Request, RequestStatus, RequestTransition, Workflow
from wms2.errors import DocumentRefused

#: Longer chains do not happen (``MAX_VERSIONS`` is 5); a loop in the rows must end the walk.
_MOST = 100


class Version(NamedTuple):
    """One version of a request."""

    request_name: str
    processing_version: Any
    status: str
    cleanup_policy: CleanupPolicy | str
    superseded_by: str
    failure_reason: str


class VersionChain(NamedTuple):
    """The newest version, and the former ones, oldest first."""

    current: Version
    versions: tuple[Version, ...]


def version_chain(request: Request) -> VersionChain:
    """The whole chain that a request belongs to, whichever version is asked for."""
    rows = [*reversed(requests_before(request)), request]
    while len(rows) < _MOST:
        newer = (
            Request.objects.filter(previous_version_request__request_name=rows[-1].request_name).order_by("-created_at").first()
        )
        if newer is None or newer in rows:
            break
        rows.append(newer)
    versions = [_version(row) for row in rows]
    return VersionChain(current=versions[-1], versions=tuple(versions[:-1]))


def requests_before(request: Request) -> list[Request]:
    """The versions that came before it, the last one first."""
    found: list[Request] = []
    row = request.previous_version_request
    while row is not None and row != request and row not in found and len(found) < _MOST:
        found.append(row)
        row = row.previous_version_request
    return found


def replaced_before(names: Set[str], moment: datetime) -> list[str]:
    """Those of the requests named of which a later version had completed by then: the next, or one after versions that failed.

    A few questions for all together, as many as the longest chain has versions.
    """
    origins = {name: {name} for name in names}  # version -> requests that it came after, or is
    found: set[str] = set()
    for _ in range(_MOST):
        newer: dict[str, set[str]] = {}
        rows = Request.objects.filter(previous_version_request__request_name__in=list(origins))
        for row in rows.only("request_name", "previous_version_request", "completed_at"):
            before = origins[str(row.previous_version_request_id)]
            if row.completed_at is not None and row.completed_at <= moment:
                found |= before
            newer.setdefault(row.request_name, set()).update(before)
        origins = {name: first - found for name, first in newer.items() if first - found}
        if not origins:
            break
    return sorted(found)


def _version(request: Request) -> Version:
    return Version(
        request_name=request.request_name,
        processing_version=_processing_version(request),
        status=request.status,
        cleanup_policy=request.cleanup_policy,
        superseded_by=request.superseded_by_request,
        failure_reason=_failure_reason(request),
    )


def _processing_version(request: Request) -> Any:
    """Of the outputs as planned; before there is a workflow, as the document says it."""
    outputs = Workflow.objects.filter(request=request).values_list("spec__outputs", flat=True).first() or []
    found = {output["step"]: output["processing_version"] for output in outputs}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return found or _asked_version(request)


def _asked_version(request: Request) -> Any:
    try:
        return merge_document(request.request_data).get("ProcessingVersion")
    except DocumentRefused:  # a row that was not made by intake
        return None


def _failure_reason(request: Request) -> str:
    if request.status not in (RequestStatus.FAILED, RequestStatus.ABORTED):
        return ""
    ended = RequestTransition.objects.filter(request=request, to_status=request.status).order_by("-id").first()
    return ended.reason if ended else ""
