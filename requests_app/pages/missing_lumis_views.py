"""The page of what an output dataset lacks of what its request wants."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from requests_app.models import Request
from requests_app.pages.rendering import page
from requests_app.selectors.missing_lumis import datasets_of, missing_lumis


@require_safe
@login_required
def missing_lumis_of(request: HttpRequest, request_name: str) -> HttpResponse:
    """Of the dataset that the address names: numbers with reasons, and the ways to the lumis."""
    row = get_object_or_404(Request, request_name=request_name)
    dataset = get_object_or_404(datasets_of(row), name=request.GET.get("dataset", "").replace("\0", ""))
    asked = urlencode({"dataset": dataset.name})
    context = {
        "row": row,
        "missing": missing_lumis(row, dataset),
        "json_address": f"{reverse('request-missing-lumis-json', args=[request_name])}?{asked}",
        "rest_address": f"{reverse('request-missing-lumis', args=[request_name])}?{asked}",
        "section": "board",
    }
    return page(request, "requests/missing_lumis", context)
