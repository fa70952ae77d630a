"""Carrying a person's verb to its service: with who and why, and once more when the life cycle was faster.

A verb compares the status it was decided on with the one in the row. Here nobody has decided on a status: "abort" means whatever
it is by now, so a stale row is read again a few times before the client is told.
"""

from __future__ import annotations

from collections.abc import Callable

from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest

from requests_app.models import Request
from wms2.errors import StaleState

TRIES = 3


def actor_of(http_request: HttpRequest) -> str:
    """The name that goes into audit rows; their column holds 100 characters."""
    return http_request.user.get_username()[:100]


def on_request(name: str, verb: Callable[[Request], None]) -> Request:
    """Run ``verb`` on the request of this name.

    Raises:
        Http404: no such request.
        StaleState: it changed under every try.
        InvalidTransition: it does not apply.
    """
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
