"""DRF's exception handler: every failure of a view becomes a problem. What it does not know stays a 500 with its traceback."""

from __future__ import annotations

import re
import sys
from typing import Any

import structlog
from django.apps import apps
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.defaults import server_error as html_server_error
from psycopg.errors import QueryCanceled
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from wms2.api.problems import MEDIA_TYPE, Problem, ProblemError, bad_field, flattened, several
from wms2.errors import (
    CircuitOpen,
    DocumentRefused,
    EventsGone,
    FieldRefused,
    InvalidTransition,
    NotFoundInService,
    RequestKnown,
    ServiceRejected,
    ServiceUnavailable,
    StaleState,
    TooManyReaders,
)
from wms2.runtime.locks import BEING_CHANGED, DATABASE_AWAY, lock_refused

log = structlog.get_logger(__name__)
#: Seconds after which a client may try again, the narrower first; services and circuits recover within these, or not soon.
_RETRY_AFTER: tuple[tuple[Any, int], ...] = ((CircuitOpen, 10), (ServiceUnavailable, 30), ((*DATABASE_AWAY, TooManyReaders), 5))

_INTERNAL = Problem(500, "internal_error", "WMS2 failed to serve this; the log has the details", hint="Report it.")
#: Of WMS2's own errors: status, code, hint; the narrower first.
_OURS = (
    (InvalidTransition, 409, "invalid_transition", "Read how it stands now, and what may be done in that state."),
    (StaleState, 409, "stale_state", "It changed meanwhile: read it again, then decide."),
    (EventsGone, 410, "events_gone", "Read what you keep anew, then the feed without 'after'."),
    (TooManyReaders, 503, "too_many_readers", "Ask again, or without 'wait'."),
    (NotFoundInService, 422, "not_found_in_service", "{service} does not know it."),
    (ServiceRejected, 502, "service_refused", "{service} refused; the same call will be refused again."),
    (ServiceUnavailable, 503, "service_unavailable", "{service} did not answer; nothing was changed."),
)
#: What ``get_object_or_404`` says.
_NO_ROW = re.compile(r"No (\w+) matches the given query\.")
_LOOK_UP = "Names and ids are matched whole; /api/v1/docs/ names the lists where they can be looked up."
_SIGN_IN = "Send 'Authorization: Bearer <token>', or sign in; see docs/api.md."


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer to an exception; None lets Django make a 500 of it."""
    if isinstance(error, RequestKnown):
        problem: Problem | None = _exists(error, context["request"])
    else:
        problem = _no_such_row(error, context) or problem_of(error)
    if problem is None:
        return None
    headers = _headers(error)
    if problem.status >= 500:
        log.warning("request not served", code=problem.code, detail=problem.detail, view=type(context.get("view")).__name__)
    return problem.response(headers)


def problem_of(error: Exception) -> Problem | None:
    """Which problem an exception is."""
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, Http404):
        return Problem(404, "not_found", str(error) or "there is no such thing here")
    if isinstance(error, RequestDataTooBig):
        return Problem(413, "too_large", "the body is larger than this service takes")
    if isinstance(error, PermissionDenied):
        return Problem(403, "permission_denied", str(error) or "not allowed")
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    if isinstance(error, DATABASE_AWAY) and lock_refused(error):
        return Problem(503, "being_changed", BEING_CHANGED, hint="Another operation changes the same row; it takes a moment.")
    if isinstance(error, DATABASE_AWAY) and isinstance(error.__cause__, QueryCanceled):
        hint = "Ask for less: a smaller page, more filters. A verb can be repeated; `manage.py operate` has no such limit."
        return Problem(503, "took_too_long", "the database needed too long, and nothing was done", hint=hint)
    if isinstance(error, DATABASE_AWAY):
        return Problem(503, "database_unavailable", "the database does not answer", hint="Try again; see /readyz.")
    return _of_wms2(error)


def _exists(error: RequestKnown, http: Request) -> Problem:
    """Repeated after an answer that was lost, it is the same import: the client can go on with the request that is there."""
    existing = {
        "request_name": error.request_name,
        "status": error.status,
        "url": reverse("request-detail", [error.request_name], request=http),
    }
    hint = "Nothing was stored. Read it under existing.url; a new version needs a name of its own."
    return Problem(409, "request_exists", str(error), "RequestName", hint, existing=existing)


def _no_such_row(error: Exception, context: dict[str, Any]) -> Problem | None:
    """Of a row that is not there, in place of Django's sentence: which kind of row, and what it was looked for by."""
    django_says = _NO_ROW.fullmatch(str(error)) if isinstance(error, Http404) else None
    if django_says is None:
        return None
    asked = ", ".join(f"'{value}'" for value in (context.get("kwargs") or {}).values())
    kind = next((model._meta.verbose_name for model in apps.get_models() if model._meta.object_name == django_says[1]), "row")
    return Problem(404, "not_found", f"there is no {kind} {asked}".rstrip(), hint=_LOOK_UP)


def _of_framework(error: exceptions.APIException) -> Problem:
    if isinstance(error, exceptions.ValidationError):
        pairs = tuple(flattened(error.detail))
        return Problem(400, "invalid", several(pairs), pairs[0][0] or None if pairs else None, None, pairs)
    code = {
        exceptions.ParseError: "malformed",
        exceptions.NotAuthenticated: "not_authenticated",
        exceptions.AuthenticationFailed: "authentication_failed",
    }.get(type(error))
    hint = _SIGN_IN if error.status_code == 401 else None
    return Problem(error.status_code, code or str(error.default_code), str(error.detail), hint=hint)


def _of_wms2(error: Exception) -> Problem | None:
    if isinstance(error, DocumentRefused):
        pairs = tuple((problem.field, problem.problem) for problem in error.problems)
        hint = "Nothing was stored. Correct every field listed under problems and send the document again."
        return Problem(422, "document_refused", several(pairs), pairs[0][0] if pairs else None, hint, pairs)
    if isinstance(error, FieldRefused):
        return bad_field(error.field, str(error)).problem
    for kind, status, code, hint in _OURS:
        if isinstance(error, kind):
            field = "after" if kind is EventsGone else None
            return Problem(status, code, str(error), field, hint.format(service=getattr(error, "service", "")))
    return None


def _headers(error: Exception) -> dict[str, str]:
    if isinstance(error, ProblemError):
        return error.headers
    for kinds, seconds in _RETRY_AFTER:
        if isinstance(error, kinds):
            return {"Retry-After": str(seconds)}
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
    if getattr(error, "wait", None):
        headers["Retry-After"] = f"{int(error.wait) + 1}"  # type: ignore[attr-defined]
    return headers


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500: a problem below /api/, a page elsewhere; 503 while the database does not answer. The log has the
    traceback."""
    error = sys.exc_info()[1]  # Django calls this while it handles it
    away = error if isinstance(error, DATABASE_AWAY) else None
    problem = (problem_of(away) if away else None) or _INTERNAL
    if request.path.startswith("/api/"):
        answer: HttpResponse = JsonResponse(problem.body(), status=problem.status, content_type=MEDIA_TYPE)
    else:
        answer = html_server_error(request, f"{problem.status}.html")
        answer.status_code = problem.status
    for name, value in (_headers(away) if away else {}).items():
        answer[name] = value
    return answer
