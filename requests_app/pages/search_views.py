"""The search box of pages and admin: one hit is opened, several are listed, nothing found says what was looked for."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_safe

from requests_app.pages.rendering import page
from requests_app.selectors.search import Found, search


@require_safe
@login_required
def search_page(request: HttpRequest) -> HttpResponse:
    """``?q=``: whatever a person has at hand."""
    asked = request.GET.get("q", "")
    try:
        found = search(asked)
    except ValueError as error:
        context = {"found": Found("", (), ()), "searched": asked[:100].replace("\0", ""), "problem": f"Not looked for: {error}."}
        return page(request, "search/found", context, status=400)
    if found.only is not None:
        return HttpResponseRedirect(found.only.url)
    return page(request, "search/found", {"found": found, "searched": found.asked})
