"""Carrying a person's verb to its service: with who and why, and once more when the life cycle was faster.

A verb compares the status it was decided on with the one in the row. Here nobody has decided on a status: "abort" means whatever
it is by now, so a stale row is read again a few times before the client is told.
Who has decided on a version sends it in ``If-Match``.
"""

from __future__ import annotations

from collections.abc import Callable

from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest

from requests_app.api.etags import request_etag
from requests_app.models import Request
from wms2.api.preconditions import IfMatch, if_match, in_one_transaction
from wms2.errors import StaleState

TRIES = 3


def actor_of(http_request: HttpRequest) -> str:
    """The name that goes into audit rows; their column holds 100 characters."""
    return http_request.user.get_username()[:100]


def on_request(http_request: HttpRequest, name: str, verb: Callable[[Request], None]) -> Request:
    """Run ``verb`` on the request of this name, if need be only on the version that the client demands.

    Raises:
        Http404: no such request.
        ProblemError: it is another version by now.
        StaleState: it changed under every try.
        InvalidTransition: it does not apply.
    """
    demanded = if_match(http_request)
    if demanded is not None:
        return in_one_transaction(lambda: _on_version(demanded, name, verb))
    for attempt in range(1, TRIES + 1):
        request: Request = get_object_or_404(Request, request_name=name)
        try:
            verb(request)
        except StaleState:
            if attempt == TRIES:
                raise
        else:
            return request
    raise AssertionError("unreachable")


def _on_version(demanded: IfMatch, name: str, verb: Callable[[Request], None]) -> Request:
    """The row stays locked, so the version that was compared is the one that is changed."""
    request: Request = get_object_or_404(Request.objects.select_for_update(no_key=True), request_name=name)
    demanded.require(request_etag(request))
    verb(request)
    return request
