"""Operations on one request (spec 6.2, 6.3, 7.1), from ``requests_app.actions``, and their answers beside the request itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

import requests_app.actions  # noqa: F401  declares them
from dags_app.services.stop import StopMode
from requests_app.api.filters import RequestFilters
from requests_app.api.serializers import RemovingSerializer, RequestSerializer
from requests_app.models import Request
from requests_app.selectors.requests import request_changed
from requests_app.services.release import ReleaseMode, ReleasePlan, release_plan
from wms2.api.actions import LISTED, ActionView, Resource, action_method, action_urls
from wms2.api.answers import answer
from wms2.api.preconditions import etag_of
from wms2.api.problems import bad_field


def request_etag(row: Request) -> str:
    """What a person's decision looks at, and operations change: where it stands, what is asked of it, which version replaces it.

    Counts, leases and other things that move by themselves are no part of it: it would be gone before it could be sent back.
    """
    return etag_of(
        row.pk, row.epoch, row.status, row.status_since, row.stop_intent, row.hold_code, row.hold_reason, row.priority,
        row.urgent, row.adaptive, row.overrides, row.notes, row.production_steps, row.cleanup_policy, row.superseded_by_request,
        row.in_group_id, row.derived_by, row.flush,
    )  # fmt: skip


REQUESTS = Resource(Request, RequestSerializer, Request.objects.all, "request_name", content=request_changed, etag=request_etag)
_STOP_MESSAGES = {
    StopMode.NOW: "Clean stop initiated. The DAG is removed and its rescue prepared for re-admission.",
    StopMode.DRAIN: "Drain initiated. Work units that run finish, no other starts; then the rescue is prepared for re-admission.",
}


StoppedSerializer = answer(
    "Stopped", dict.fromkeys(("request_name", "status", "previous_status", "stop_reason", "mode", "message"), str),
    "What a stop began (spec 7.2).", removing=RemovingSerializer(many=True, help_text="as in the request"),
)  # fmt: skip


def _stopped(row: Request, before: str, given: Mapping[str, Any]) -> dict[str, Any]:
    stopping = row.status == "stopping"
    return {
        "request_name": row.request_name,
        "status": row.status,
        "previous_status": before,
        "stop_reason": given["reason"],
        "mode": given["mode"],
        "message": _STOP_MESSAGES[given["mode"]] if stopping else "No DAG runs; the request goes on by itself.",
        "removing": request_changed(row).removing,
    }


#: All but the release, which has a view with its preview.
REQUEST_ACTIONS = action_urls(REQUESTS, "release", answers={"stop": (StoppedSerializer, _stopped)})
LISTED["requests"] = REQUESTS, RequestFilters


ReleasePlanSerializer = answer(
    "ReleasePlan", ReleasePlan, "What a release would do.",
    mode="rescue, next_round; null: no round is open",
    units_done="work units of the open round that count",
    units_again="work units of the open round that run again, or are planned anew",
)  # fmt: skip


class RequestReleaseView(ActionView):
    """Let a held request go on, as it is or with changes. Completed work stays."""

    serializer_class = RequestSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"post"})
    post = action_method(REQUESTS, "release")

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


def _mode(value: str | None) -> ReleaseMode | None:
    try:
        return None if value is None else ReleaseMode(value)
    except ValueError as error:
        raise bad_field("mode", f"must be one of: {', '.join(ReleaseMode)}") from error
