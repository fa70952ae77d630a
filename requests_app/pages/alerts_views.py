"""The view of the page of alerts."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from requests_app.pages.alerts import alerts_page
from requests_app.pages.rendering import page, without_blanks


@require_safe
@login_required
def alerts(request: HttpRequest) -> HttpResponse:
    """Alerts as the address's filters want them."""
    seen = alerts_page(without_blanks(request.GET), request.user, request.get_full_path())
    return page(request, "alerts/alerts", {"seen": seen, "door": "alerts"}, status=400 if seen.errors else 200)
