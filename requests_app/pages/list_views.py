"""What is done from the list of requests and beside it: operations on many, views that people keep, watching one."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from requests_app.api.filters import RequestFilters
from requests_app.models import Request, SavedView
from requests_app.pages.board_query import FILTERS
from requests_app.pages.bulk import (
    Asked,
    asked_for,
    bulk_runs_latest,
    form_for,
    operation_named,
    preview_of,
    run_on_page,
)
from requests_app.pages.rendering import page
from requests_app.services.saved_views import view_remove, view_save
from wms2.actions import REFUSALS, arguments, buttons_of, is_given, perform, resource_type_of
from wms2.admin.actions import buttons
from wms2.admin.forms import ReasonForm
from wms2.errors import FieldRefused
from wms2.identities.grants import require
from wms2.models import BulkRun
from wms2.work.bulk import bulk_begin


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def bulk_new(request: HttpRequest) -> HttpResponse:
    """Say what an operation would do to many requests (GET), then begin the run (POST)."""
    action = operation_named(request.GET.get("operation", ""))
    if action is None:
        raise Http404("there is no such operation on many requests")
    require(request.user, action)
    asked, back = asked_for(request, action), _back(request)
    if asked.error:
        return page(request, "requests/bulk_new", {"error": asked.error, "action": action, "back": back}, status=400)
    form, status = form_for(action, request.user, request.POST if request.method == "POST" else None), 200
    if request.method == "POST":
        run, status = _begun(request, asked, form)
        if run is not None:
            return HttpResponseRedirect(run.get_absolute_url())
    context = {"action": action, "seen": preview_of(asked, request.user), "form": form, "back": back}
    return page(request, "requests/bulk_new", context, status=status)


@require_safe
@login_required
def bulk_runs(request: HttpRequest) -> HttpResponse:
    """Operations on many rows, the newest first."""
    return page(request, "requests/bulk_runs", {"runs": bulk_runs_latest(), "section": "board"})


@require_safe
@login_required
def bulk_run(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    """One of them, and what became of each row."""
    run = get_object_or_404(BulkRun, pk=pk)
    seen = run_on_page(run, request)
    operations = buttons(request.user, run, run.get_absolute_url())
    return page(
        request,
        "requests/bulk_run",
        {"seen": seen, "operations": operations, "section": "board"},
        status=400 if seen.error else 200,
    )


@require_POST
@login_required
def saved_view_new(request: HttpRequest) -> HttpResponse:
    """Keep the list that is shown under a name."""
    name, query = request.POST.get("name", "").strip()[:100], request.POST.get("query", "")
    try:
        if not name or "\0" in name + query:
            raise FieldRefused("name", "give the view a name")
        view = view_save(owner=request.user, name=name, query=query, shared="shared" in request.POST, filters=RequestFilters)
    except FieldRefused as error:
        messages.error(request, f"Not kept: {error.field}: {error}.")
        return HttpResponseRedirect(reverse("board"))
    messages.success(request, f"The view {view} is kept.")
    return HttpResponseRedirect(view.get_absolute_url())


@require_POST
@login_required
def saved_view_end(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a view of one's own."""
    view = get_object_or_404(SavedView, pk=pk, owner=request.user)
    view_remove(view=view)
    messages.success(request, f"The view {view} is removed.")
    return HttpResponseRedirect(reverse("board"))


@require_POST
@login_required
def request_watched(request: HttpRequest, request_name: str) -> HttpResponse:
    """Watch a request, or with ``stop`` no more: from its page, also by those who may not open the admin."""
    row = get_object_or_404(Request, request_name=request_name)
    action = next(each for each in buttons_of(Request) if each.name == ("unwatch" if "stop" in request.POST else "watch"))
    require(request.user, action, row)
    try:
        perform(action, row, request.user.get_username()[:100], {"reason": "on its page"})
    except REFUSALS as error:
        messages.error(request, str(error))
    else:
        messages.success(request, "You watch it." if action.name == "watch" else "You watch it no more.")
    return HttpResponseRedirect(row.get_absolute_url())


def _begun(request: HttpRequest, asked: Asked, form: ReasonForm) -> tuple[BulkRun | None, int]:
    """The run, or none, with the errors in the form and the status of the answer."""
    if not form.is_valid():
        return None, 400
    key, actor = _key(request.POST.get("run", "")), request.user.get_username()[:100]
    begun = BulkRun.objects.filter(pk=str(key), actor=actor) if key else BulkRun.objects.none()
    if sent_twice := begun.first():
        return sent_twice, 302
    # as a client of the REST interface would send it
    given = {name: value for name, value in form.cleaned_data.items() if is_given(value)}
    data = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()}
    try:
        arguments(asked.action, form.cleaned_data)  # what is wrong for all of them is said now
        run = bulk_begin(
            resource_type=resource_type_of(Request), action=asked.action, rows=asked.rows.order_by("pk"),
            data=data, expected=_number(request.POST.get("expected", "")), actor=actor, user=request.user,
            meant=request.POST.get("meant", ""), key=key,
        )  # fmt: skip
    except IntegrityError:  # sent twice at once
        return begun.get(), 302
    except (*REFUSALS, PermissionDenied) as error:
        field = getattr(error, "field", None)
        form.add_error(field if field in form.fields else None, str(error))
        return None, 409
    return run, 302


def _back(request: HttpRequest) -> str:
    query = {name: value for name, value in request.GET.items() if name in FILTERS}
    return reverse("board", query=query or None)


def _key(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
