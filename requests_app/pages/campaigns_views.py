"""One campaign; all of them are in ``filtered_views``."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from requests_app.models import Campaign
from requests_app.pages.campaigns import campaign_lists, campaign_page
from requests_app.pages.rendering import page
from requests_app.pages.tables import file_asked
from wms2.admin.actions import offered
from wms2.web.time_range import TimeRange


@require_safe
@login_required
def campaign(request: HttpRequest, name: str) -> HttpResponse:
    """How far one is, and what is held; its lists as files with ``format``."""
    row = get_object_or_404(Campaign, pk=name)
    if (answer := file_asked(request, **campaign_lists(row))) is not None:
        return answer
    context = {
        "seen": campaign_page(row, TimeRange.of(request.GET)),
        "offered": offered(request.user, row, row.get_absolute_url()),
        "section": "campaigns",
    }
    return page(request, "campaigns/one", context)
