"""The pages of outputs: blocks, rules and what is owed; one block; one dataset."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from outputs_app.models import ProcessingBlock
from requests_app.pages.outputs import (
    block_lists,
    block_seen,
    blocks_found,
    dataset_lists,
    dataset_seen,
    outputs_lists,
    outputs_page,
)
from requests_app.pages.rendering import page, without_blanks
from requests_app.pages.tables import file_asked
from wms2.admin.actions import offered


@require_safe
@login_required
def outputs(request: HttpRequest) -> HttpResponse:
    """Blocks as the address asks for them, and what is owed to DBS and Rucio; its lists as files with ``format``."""
    given = without_blanks(request.GET)
    filters, found = blocks_found(given)
    if filters.is_valid() and (answer := file_asked(request, **outputs_lists(found))) is not None:
        return answer
    seen = outputs_page(given, filters, found)
    context = {"seen": seen, "section": "outputs"}
    return page(request, "outputs/outputs", context, status=400 if seen.errors else 200)


@require_safe
@login_required
def block(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    """One block; its lists as files with ``format``."""
    row = get_object_or_404(ProcessingBlock.objects.select_related("workflow", "dataset"), pk=pk)
    if (answer := file_asked(request, **block_lists(row))) is not None:
        return answer
    context = {"seen": block_seen(row), "offered": offered(request.user, row, request.path), "section": "outputs"}
    return page(request, "outputs/block", context)


@require_safe
@login_required
def dataset(request: HttpRequest) -> HttpResponse:
    """The output dataset that the address names, its lists as files with ``format``; without a name, all outputs."""
    name = request.GET.get("name", "")
    if not name:
        return HttpResponseRedirect(reverse("outputs"))
    seen = dataset_seen(name) if "\0" not in name else None
    if seen is None:
        raise Http404(f"WMS2 makes no output dataset {name[:300]}")
    if (answer := file_asked(request, **dataset_lists(name))) is not None:
        return answer
    return page(request, "outputs/dataset", {"seen": seen, "section": "outputs"})
