"""Verbs on one request (error-handling 4.1; spec 6.2, 6.3, 7.1): a reason in, 202 out. Repeatable.

Each parses, calls one service, and shows what came of it; what a release or a restart would do can be asked before.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app import services
from requests_app.api.etags import request_etag
from requests_app.api.serializers import RequestSerializer, request_shown
from requests_app.api.verb_inputs import (
    InvalidationManifestSerializer,
    ReleaseInputSerializer,
    ReleasePlanSerializer,
    RestartInputSerializer,
    StopInputSerializer,
    StoppedSerializer,
)
from requests_app.api.verbs import actor_of, on_request
from requests_app.models import Request
from requests_app.selectors.requests import release_repeated, request_picture
from requests_app.services.invalidation import manifest_of
from requests_app.services.release import ReleaseMode, release_plan
from wms2.api.problems import bad_field
from wms2.api.serializers import MAX_REASON, ReasonSerializer
from wms2.api.views import ApiView
from wms2.errors import NotFoundInService

REASON = {"type": "string", "minLength": 1, "maxLength": MAX_REASON, "pattern": r"\S"}
_STOP_MESSAGES = {
    "now": "Clean stop initiated. The DAG is removed and its rescue prepared for re-admission.",
    "drain": "Drain initiated. Work units that run finish, no other starts; then the rescue is prepared for re-admission.",
}


def shown(request: Request, code: int, **headers: str) -> Response:
    """A request as an answer."""
    return Response(request_shown(request_picture(request)), status=code, headers={**headers, "ETag": request_etag(request)})


def reason_of(data: Any) -> str:
    """The reason in a body that has nothing else."""
    return str(_checked(ReasonSerializer, data)["reason"])


def _checked(serializer_class: type[ReasonSerializer], data: Any) -> dict[str, Any]:
    serializer = serializer_class(data=data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


class RequestVerbView(ApiView):
    """A verb that takes a reason and nothing else."""

    serializer_class = RequestSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"post"})

    @extend_schema(request=ReasonSerializer, responses={202: RequestSerializer})
    def post(self, request: HttpRequest, request_name: str) -> Response:
        """Record the intent; the life cycle acts on it."""
        reason, actor = reason_of(request.data), actor_of(request)
        row = on_request(request, request_name, lambda row: self.verb(row, actor, reason))
        return shown(row, status.HTTP_202_ACCEPTED)

    @abstractmethod
    def verb(self, row: Request, actor: str, reason: str) -> None:
        """The service."""


class RequestHoldView(RequestVerbView):
    """Put a request aside; a running DAG is stopped first. Completed work stays."""

    def verb(self, row: Request, actor: str, reason: str) -> None:
        """HELD, or on the way there."""
        services.request_hold(request=row, actor=actor, reason=reason)


class RequestFailView(RequestVerbView):
    """End a held or running request as failed. Its outputs are listed for invalidation, and stay until somebody acts."""

    def verb(self, row: Request, actor: str, reason: str) -> None:
        """FAILED, or on the way there."""
        services.request_fail(request=row, actor=actor, reason=reason)


class RequestInvalidateView(RequestVerbView):
    """Take back the outputs of a failed, aborted or replaced request: rules deleted, files and datasets INVALID in DBS."""

    def verb(self, row: Request, actor: str, reason: str) -> None:
        """Effects do it; they are listed with the request."""
        services.request_invalidate(request=row, actor=actor, reason=reason)


class RequestStopView(ApiView):
    """Stop the running DAG cleanly; the request queues again and goes on from the rescue file."""

    serializer_class = StoppedSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"post"})

    @extend_schema(request=StopInputSerializer, responses={202: StoppedSerializer})
    def post(self, request: HttpRequest, request_name: str) -> Response:
        """Now, or by a drain. Between DAGs nothing has to be stopped, and nothing is."""
        data, actor = _checked(StopInputSerializer, request.data), actor_of(request)
        before = get_object_or_404(Request, request_name=request_name).status
        verb = partial(_stop, actor=actor, reason=data["reason"], mode=data["mode"])
        row = on_request(request, request_name, verb)
        stopping = row.status == "stopping"
        body = {
            "request_name": row.request_name,
            "status": row.status,
            "previous_status": before,
            "stop_reason": data["reason"],
            "mode": data["mode"],
            "message": _STOP_MESSAGES[data["mode"]] if stopping else "No DAG runs; the request goes on by itself.",
        }
        etag = {"ETag": request_etag(row)}
        return Response(self.get_serializer(body).data, status=status.HTTP_202_ACCEPTED, headers=etag)


def _stop(row: Request, *, actor: str, reason: str, mode: str) -> None:
    services.request_stop(request=row, actor=actor, reason=reason, mode=services.StopMode(mode))


class RequestReleaseView(ApiView):
    """Let a held request go on, as it is or with changes. Completed work stays."""

    serializer_class = RequestSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"post"})
    query_params: ClassVar[frozenset[str]] = frozenset()

    def known_query_params(self) -> frozenset[str]:
        """The preview may ask for a mode."""
        return frozenset({"mode"}) if self.request.method == "GET" else frozenset()

    @extend_schema(
        parameters=[OpenApiParameter("mode", str, enum=[mode.value for mode in ReleaseMode], description="as for the release")],
        responses={200: ReleasePlanSerializer},
    )
    def get(self, request: HttpRequest, request_name: str) -> Response:
        """What a release would do now: which way, why, and how much runs again. Changes nothing."""
        row = get_object_or_404(Request, request_name=request_name)
        return Response(ReleasePlanSerializer(release_plan(row, _mode(request.query_params.get("mode")))).data)

    @extend_schema(request=ReleaseInputSerializer, responses={202: RequestSerializer})
    def post(self, request: HttpRequest, request_name: str) -> Response:
        """QUEUED, or SUBMITTED when it has no workflow yet. Repeatable."""
        serializer = ReleaseInputSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        data, actor = serializer.validated_data, actor_of(request)

        def verb(row: Request) -> None:
            if not release_repeated(row, actor=actor, reason=data["reason"]):
                services.request_release(
                    request=row, actor=actor, reason=data["reason"], mode=_mode(data.get("mode")), changes=serializer.changes()
                )

        return shown(on_request(request, request_name, verb), status.HTTP_202_ACCEPTED)


class RequestRestartView(ApiView):
    """Kill and clone: the request fails, and its next version begins from nothing."""

    serializer_class = RequestSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"post"})

    @extend_schema(request=RestartInputSerializer, responses={202: RequestSerializer})
    def post(self, request: HttpRequest, request_name: str) -> Response:
        """The new request out. Repeated, the same one."""
        data, actor = _checked(RestartInputSerializer, request.data), actor_of(request)
        document = _clone(data.get("request_name"))
        made: list[Request] = []

        def verb(row: Request) -> None:
            made[:] = [
                services.request_restart(
                    request=row,
                    actor=actor,
                    reason=data["reason"],
                    request_name=data.get("request_name"),
                    document=document,
                    cleanup_policy=data.get("cleanup_policy"),
                )
            ]

        on_request(request, request_name, verb)
        return shown(made[0], status.HTTP_202_ACCEPTED)


class RequestInvalidationView(ApiView):
    """What would have to be invalidated to take a request's outputs back: datasets, blocks, rules."""

    serializer_class = InvalidationManifestSerializer

    def get(self, request: HttpRequest, request_name: str) -> Response:
        """As the rows have it now; for a failed request it is also written to a file."""
        return Response(manifest_of(get_object_or_404(Request, request_name=request_name)))


def _mode(value: str | None) -> ReleaseMode | None:
    if value is None:
        return None
    try:
        return ReleaseMode(value)
    except ValueError as error:
        raise bad_field("mode", f"must be one of: {', '.join(ReleaseMode)}") from error


def _clone(name: str | None) -> dict[str, Any] | None:
    """The document of ReqMgr2's clone, when one is named."""
    if name is None:
        return None
    try:
        return services.request_fetch(request_name=name)
    except NotFoundInService as error:
        raise bad_field("request_name", f"ReqMgr2 has no request {name}; leave it out to have the name made") from error
