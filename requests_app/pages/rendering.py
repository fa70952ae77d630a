"""How every page is answered: whole, or only its live part.

A page fetches itself again every few seconds with the header ``X-Wms2-Part: live`` and then gets only the part that changes.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import patch_cache_control, patch_vary_headers

from wms2.identities.grants import is_operator

PART = "X-Wms2-Part"


def page(request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """The answer of a page.

    Args:
        template: without its end: ``X.html`` is the whole page, ``X_live.html`` the part that changes.
        context: what both show; ``now`` and ``acts`` (whether operations beside rows are offered) are added.
    """
    part = request.headers.get(PART) == "live"
    context |= {"now": timezone.now(), "acts": is_operator(request.user)}
    response = render(request, f"{template}_live.html" if part else f"{template}.html", context, status=status)
    patch_vary_headers(response, [PART, "Cookie"])
    patch_cache_control(response, no_store=True)
    return response


def without_blanks(given: QueryDict) -> QueryDict:
    """What a form sends without its empty fields, so that addresses can be passed on."""
    clean = QueryDict(mutable=True)
    for name, values in given.lists():
        kept = [value for value in values if value]
        if kept:
            clean.setlist(name, kept)
    return clean
