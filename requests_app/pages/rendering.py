"""How every page is answered: whole, or only its live part.

A page fetches itself again every few seconds with the header ``X-Wms2-Part: live`` and then gets only the part that changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.views.decorators.http import require_safe

from requests_app.pages.tables import Table, file_asked
from requests_app.selectors.lifecycle import lifecycle_state
from wms2.identities.grants import is_operator

PART = "X-Wms2-Part"


class Filtered(Protocol):
    """What a page shows of rows that its address's filters want."""

    @property
    def errors(self) -> Any:
        """By filter, what is wrong with it."""


def page(request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """The answer of a page.

    Args:
        template: without its end: ``X.html`` is the whole page, ``X_live.html`` the part that changes, where there is one.
        context: what both show; ``now``, ``acts`` (whether operations beside rows are offered) and, where the page has not read
            it for itself, ``lifecycle`` are added: the dot in the header says whether anything is driven. One query.
    """
    templates = [f"{template}_live.html"] if request.headers.get(PART) == "live" else []
    context |= {"now": timezone.now(), "acts": is_operator(request.user)}
    if "lifecycle" not in context:
        context["lifecycle"] = lifecycle_state()
    response = render(request, [*templates, f"{template}.html"], context, status=status)
    patch_vary_headers(response, [PART, "Cookie"])
    patch_cache_control(response, no_store=True)
    return response


def filtered_page(
    template: str, section: str, find: Callable[[HttpRequest, QueryDict], Filtered], **lists: Callable[[Any], Table]
) -> Callable[[HttpRequest], HttpResponse]:
    """The view of a page that hands the filters of its address to ``find`` and shows what comes back: ``seen``, and as ``asked``
    the filters, for other addresses of the same list. 400 where a filter is wrong. ``lists``: those of the page, of ``seen``, as
    files with ``format``."""

    @require_safe
    @login_required
    def view(request: HttpRequest) -> HttpResponse:
        given = without_blanks(request.GET)
        seen = find(request, given)
        files = {name: partial(table, seen) for name, table in lists.items()}
        if files and not seen.errors and (answer := file_asked(request, **files)) is not None:
            return answer
        context = {"seen": seen, "asked": given.urlencode(), "section": section}
        return page(request, template, context, status=400 if seen.errors else 200)

    return view


def without_blanks(given: QueryDict) -> QueryDict:
    """What a form sends without its empty fields, so that addresses can be passed on."""
    clean = QueryDict(mutable=True)
    for name, values in given.lists():
        kept = [value for value in values if value]
        if kept:
            clean.setlist(name, kept)
    return clean
