"""All sites, and one."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from requests_app.pages.rendering import page, without_blanks
from requests_app.pages.sites import site_page, sites_page
from requests_app.selectors.sites import sites_with_storage
from wms2.admin.actions import buttons
from wms2.web.time_range import TimeRange


@require_safe
@login_required
def sites(request: HttpRequest) -> HttpResponse:
    """A line for each, those that get no new work first."""
    seen = sites_page(without_blanks(request.GET))
    return page(request, "sites/list", {"seen": seen, "door": "sites"}, status=400 if seen.errors else 200)


@require_safe
@login_required
def site(request: HttpRequest, name: str) -> HttpResponse:
    """One, with what may be done about it."""
    row = get_object_or_404(sites_with_storage(), pk=name)
    verbs = buttons(request.user, row, reverse("site-page", args=[row.name]))
    return page(
        request, "sites/one", {"seen": site_page(row, TimeRange.of(request.GET)), "verbs": verbs, "door": "sites"}
    )  # fmt: skip
