"""The event feed by long poll and as server-sent events (ADR 0029)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from typing import Any, ClassVar

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import get_object_or_404
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.feed import Page, Wanted, listening, newest, read, shown
from requests_app.models import Request
from wms2.api.answers import answer
from wms2.api.pagination import whole_number, whole_number_parameter
from wms2.api.problems import bad_field
from wms2.api.views import ApiView
from wms2.conf import conf
from wms2.stream.tickets import signed
from wms2.web.shedding import Call

MOST, MOST_WAIT_SECONDS = 500, 60
#: A stream ends after this, and its reader comes back with the last id that it has: a web process can stop, a sign-in be judged.
STREAM_SECONDS = 600.0
#: A reader that takes nothing for so long has gone: its thread would wait for it for ever.
SEND_SECONDS = 60.0
#: Something is written so often, so that what stands between does not take the stream for dead, nor WMS2 a reader for alive.
HEARTBEAT_SECONDS = 15.0
_MAX_ID = 2**63 - 1


class EventStreamRenderer(JSONRenderer):
    """Lets clients accept ``text/event-stream``; what it renders are problems."""

    media_type, format = "text/event-stream", "sse"


EventSerializer = answer(
    "Event", {"id": int, "at": datetime, "kind": str, "request": str | None, "data": Any}, "What has happened.",
    id="rises with each event, without holes",
    at="when it was written; in order within a request only",
    request="request name",
)  # fmt: skip
EventsSerializer = answer(
    "Events", {"last_id": int, "oldest_id": int}, "Some events in order.", "events", "last_id", "oldest_id",
    events=EventSerializer(many=True),
    last_id="the next `after`, also when no event fits",
    oldest_id="the oldest `after` behind which nothing is missing",
)  # fmt: skip
_FILTERS = (
    OpenApiParameter("after", {"type": "integer", "minimum": 0}, description="events behind this id"),
    OpenApiParameter("kind", str, description="only of these kinds, separated by commas"),
    OpenApiParameter("request", str, description="only of the request of this name"),
)


class EventsView(ApiView):
    """What has happened, in order; by long poll."""

    serializer_class = EventsSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({"after", "kind", "request", "limit", "wait"})
    calls: ClassVar[Mapping[str, Call]] = {"get": Call.POLL}

    @extend_schema(
        parameters=[
            *_FILTERS,
            whole_number_parameter("limit", MOST, MOST),
            OpenApiParameter("wait", {"type": "integer", "minimum": 1, "maximum": MOST_WAIT_SECONDS}, description="seconds"),
        ]
    )
    def get(self, request: HttpRequest) -> Response:
        """Events behind `after` or, without it, all that are kept; without any, wait for some at most `wait` seconds."""
        wanted, after = _wanted(request), _after(request.query_params.get("after"), "after")
        until = time.monotonic() + (whole_number(request, "wait", 1, MOST_WAIT_SECONDS) if "wait" in request.query_params else 0)
        page = read(wanted, after)
        if not page.events and time.monotonic() < until:
            with listening() as wait:
                page = read(wanted, page.last_id)
                while not page.events and (left := until - time.monotonic()) > 0:
                    wait(left)
                    page = read(wanted, page.last_id)
        return Response({"events": [shown(row) for row in page.events], "last_id": page.last_id, "oldest_id": page.oldest_id})


class EventStreamView(ApiView):
    """What happens, as it happens: server-sent events."""

    renderer_classes = (JSONRenderer, EventStreamRenderer)
    query_params: ClassVar[frozenset[str]] = frozenset({"after", "kind", "request"})
    calls: ClassVar[Mapping[str, Call]] = {"get": Call.STREAM}

    @extend_schema(
        parameters=[*_FILTERS, OpenApiParameter("Last-Event-ID", {"type": "integer"}, OpenApiParameter.HEADER)],
        responses={(200, "text/event-stream"): OpenApiTypes.STR, 307: None},
    )
    def get(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        """Events behind `Last-Event-ID`, else behind `after`, else from now on. Ends after ten minutes; resume by the id. Where
        streams have a process of their own the answer is a redirect to it."""
        wanted, last = _wanted(request), request.headers.get("Last-Event-ID")
        after = _after(request.query_params.get("after"), "after") if last is None else _after(last, "Last-Event-ID")
        after = newest() if after is None else after
        page = read(wanted, after)
        if conf().stream_url:
            # to the process ``stream``, with a ticket: who asks and for what has been judged
            row = str(wanted.request.pk) if wanted.request is not None else None
            ticket = signed(after, wanted.kinds, row, settings.SECRET_KEY)
            headers = {"Location": f"{conf().stream_url}?ticket={ticket}", "Cache-Control": "no-store"}
            return HttpResponse(status=307, headers=headers)
        if (taken_by := request.META.get("gunicorn.socket")) is not None:
            taken_by.settimeout(SEND_SECONDS)
        waiting = ExitStack()
        lines = _lines(wanted, page, waiting.enter_context(listening()))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        response = StreamingHttpResponse(lines, content_type="text/event-stream; charset=utf-8", headers=headers)
        response._resource_closers.append(waiting.close)  # type: ignore[attr-defined]  # also of a stream that never began
        return response


def _lines(wanted: Wanted, page: Page, wait: Callable[[float], object]) -> Iterator[bytes]:
    """A line with nothing but an id says where to go on, if nothing that the reader wants has come for some time."""
    began, sent_at = time.monotonic(), 0.0
    yield b"retry: 2000\n"
    while (now := time.monotonic()) - began < STREAM_SECONDS:
        for row in page.events:
            yield b"id: %d\ndata: %s\n\n" % (row[0], JSONRenderer().render(shown(row)))
        if page.events:
            sent_at = now
        elif now - sent_at >= HEARTBEAT_SECONDS:
            sent_at = now
            yield b": nothing new\nid: %d\n\n" % page.last_id
        if len(page.events) < wanted.limit:
            wait(HEARTBEAT_SECONDS)
        page = read(wanted, page.last_id)


def _wanted(request: HttpRequest) -> Wanted:
    asked = request.query_params
    kinds = tuple(asked["kind"].split(",")) if "kind" in asked else ()
    if not all(re.fullmatch(r"[a-z_.]{1,60}", kind) for kind in kinds):
        raise bad_field("kind", "kinds of events, separated by commas, e.g. request.status,alert")
    row = get_object_or_404(Request, request_name=asked["request"]) if "request" in asked else None
    return Wanted(kinds, row, whole_number(request, "limit", MOST, MOST))


def _after(raw: str | None, field: str) -> int | None:
    if raw is None:
        return None
    if not raw.isascii() or not raw.isdigit() or len(raw) > len(str(_MAX_ID)) or int(raw) > _MAX_ID:
        raise bad_field(field, "must be an id that the feed has given")
    return int(raw)
