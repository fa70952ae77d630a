"""All campaigns, and one."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from requests_app.models import Campaign
from requests_app.pages.campaigns import campaign_page, campaigns_page
from requests_app.pages.rendering import page, without_blanks
from wms2.admin.actions import buttons
from wms2.web.time_range import TimeRange


@require_safe
@login_required
def campaigns(request: HttpRequest) -> HttpResponse:
    """A line for each, those with open requests first."""
    seen = campaigns_page(without_blanks(request.GET))
    return page(request, "campaigns/list", {"seen": seen, "door": "campaigns"}, status=400 if seen.errors else 200)


@require_safe
@login_required
def campaign(request: HttpRequest, name: str) -> HttpResponse:
    """How far one is, and what is held."""
    row = get_object_or_404(Campaign, pk=name)
    verbs = buttons(request.user, row, row.get_absolute_url())
    seen = campaign_page(row, TimeRange.of(request.GET))
    return page(request, "campaigns/one", {"seen": seen, "verbs": verbs, "door": "campaigns"})
