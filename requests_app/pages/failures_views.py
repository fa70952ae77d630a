"""Failures across requests."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from requests_app.pages.failures import failures_page
from requests_app.pages.rendering import page, without_blanks


@require_safe
@login_required
def failures(request: HttpRequest) -> HttpResponse:
    """By code and site; of those that the address chooses, the requests concerned, with samples."""
    seen = failures_page(without_blanks(request.GET))
    return page(request, "failures/list", {"seen": seen, "door": "failures"}, status=400 if seen.errors else 200)
