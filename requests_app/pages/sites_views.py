"""One site; all of them are in ``filtered_views``."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from requests_app.pages.rendering import page
from requests_app.pages.sites import site_lists, site_page
from requests_app.pages.tables import file_asked
from requests_app.selectors.sites import sites_with_storage
from wms2.admin.actions import offered
from wms2.web.time_range import TimeRange


@require_safe
@login_required
def site(request: HttpRequest, name: str) -> HttpResponse:
    """One, with what may be done about it; its lists as files with ``format``."""
    row = get_object_or_404(sites_with_storage(), pk=name)
    if (answer := file_asked(request, **site_lists(row))) is not None:
        return answer
    context = {
        "seen": site_page(row, TimeRange.of(request.GET)),
        "offered": offered(request.user, row, reverse("site-page", args=[row.name])),
        "section": "sites",
    }
    return page(request, "sites/one", context)
