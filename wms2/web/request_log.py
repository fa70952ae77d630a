"""One log line for each HTTP request that is answered, and the request or DAG it is about bound for the lines written meanwhile.

What supervisors, Prometheus and browsers ask for all the time is not logged: health, metrics, static files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import structlog
from django.http import HttpRequest, HttpResponse
from structlog.contextvars import bind_contextvars, unbind_contextvars

log = structlog.get_logger(__name__)
BOUND = ("request_name", "dag_id")
QUIET = ("/livez", "/readyz", "/api/v1/health", "/api/v1/metrics", "/static/")


class RequestLogMiddleware:
    """Just inside the policy of content, so that the time is that of everything."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, then say so; an exception is an answer too, made further in."""
        begun = time.perf_counter()
        try:
            response = self.get_response(request)
            unread = response.status_code == HTTPStatus.BAD_REQUEST
            if unread or not request.path.startswith(QUIET):
                # who asked, if that is known already: to load the user for the log alone would cost a query
                user = getattr(request, "_cached_user", None) or request.__dict__.get("user")
                log.info(
                    "http",
                    method=request.method,
                    path=request.path[:300],
                    status=response.status_code,
                    user=str(getattr(user, "__dict__", {}).get("username", "")),
                    seconds=round(time.perf_counter() - begun, 4),
                    # what is most often wrong with a request that no view has read
                    **({"host": request.headers.get("Host", "")[:100]} if unread else {}),
                )
        finally:
            unbind_contextvars(*BOUND)  # the thread serves others next
        return response

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """What the address names."""
        match = request.resolver_match
        name = (match.url_name if match else "") or ""
        if "request_name" in kwargs:
            bind_contextvars(request_name=str(kwargs["request_name"]))
        if name.startswith("dag-") and "pk" in kwargs:
            bind_contextvars(dag_id=str(kwargs["pk"]))
