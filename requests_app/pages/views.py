"""Pages for people: all requests, and one request. Server-rendered over the same selectors and filters as the REST interface."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from dags_app.attempts import stored_logs
from dags_app.packs import is_there
from dags_app.selectors import dags_shown
from requests_app.models import RequestGroup
from requests_app.pages.board import lines, listed
from requests_app.pages.board_query import KNOWN, BoardQuery
from requests_app.pages.bulk import operations_for
from requests_app.pages.logs import logs_on_page
from requests_app.pages.overview import overview
from requests_app.pages.progress_image import drawn
from requests_app.pages.rendering import page, without_blanks
from requests_app.pages.request import request_page
from requests_app.pages.tables import Table, file_asked
from requests_app.selectors.needs import Cause, needs_by_cause
from requests_app.selectors.parts import progress_chart_of
from requests_app.selectors.requests import requests_listed, requests_with_workflow, watched_by, with_watching
from requests_app.work.groups import group_status
from wms2.adapters.types import JobStatus
from wms2.admin.actions import buttons, offered
from wms2.web.time_range import TimeRange


@require_safe
@login_required
def overview_page(request: HttpRequest) -> HttpResponse:
    """Whether anything needs a person, what does as a file with ``format``, and how all stands. Filters of the list of requests,
    which was here, lead there."""
    if not KNOWN.isdisjoint(request.GET):
        return HttpResponseRedirect(f"{reverse('board')}?{request.GET.urlencode()}")
    if (answer := file_asked(request, needs=lambda: Table(Cause._fields, needs_by_cause()))) is not None:
        return answer
    seen = overview(TimeRange.of(request.GET))
    return page(request, "overview/overview", {"seen": seen, "lifecycle": seen.service_state.lifecycle})


@require_safe
@login_required
def board(request: HttpRequest) -> HttpResponse:
    """Requests as the address's filters want them, without any those that need a person first."""
    clean = without_blanks(request.GET)
    if clean.urlencode() != request.GET.urlencode():
        return HttpResponseRedirect(f"?{clean.urlencode()}" if clean else request.path)
    query = BoardQuery(request)
    rows = query.page(requests_listed())
    context = {"query": query, "lines": lines(rows), **listed(request.user)}
    context["operations"] = operations_for(request.user, request.GET)
    return page(request, "requests/board", context, status=400 if query.errors else 200)


@require_safe
@login_required
def request_detail(request: HttpRequest, request_name: str) -> HttpResponse:
    """One request."""
    row = get_object_or_404(with_watching(requests_with_workflow(), request.user), request_name=request_name)
    seen = request_page(row)
    dag, address = seen.work.dag if seen.work else None, row.get_absolute_url()
    held = dag is not None and dag.observed.get("job_status") == JobStatus.HELD
    context = {
        "page": seen,
        "lifecycle": seen.lifecycle,
        "worker_pools": seen.worker_pools,
        "offered": offered(request.user, row, address),
        "watched": watched_by(row, request.user),
        # what becomes of the request is among the request's own operations
        "dag_buttons": buttons(request.user, dag, address, ["release" if held else "hold"]) if dag is not None else [],
    }
    return page(request, "requests/request", context)


@require_safe
@login_required
@cache_control(private=True, max_age=30)
def request_chart(request: HttpRequest, request_name: str) -> HttpResponse:
    """How far it was over time, as an image."""
    row = get_object_or_404(requests_with_workflow(), request_name=request_name)
    return render(request, "requests/progress.svg", drawn(progress_chart_of(row)), content_type="image/svg+xml")


@require_safe
@login_required
def group_detail(request: HttpRequest, name: str) -> HttpResponse:
    """One group: its requests, also as a file with ``format``, and whom the others wait for."""
    group = get_object_or_404(RequestGroup, name=name)
    found = group_status(group)
    rows = ((child.request.request_name, child.request.status, child.there, child.skipped) for child in found.children)
    if (answer := file_asked(request, requests=lambda: Table(("request_name", "status", "there", "skipped"), rows))) is not None:
        return answer
    context = {"status_detail": found, "offered": offered(request.user, group, group.get_absolute_url())}
    return page(request, "requests/group", context)


@require_safe
@login_required
def job_logs(request: HttpRequest, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> HttpResponse:
    """What a job packed of its logs."""
    dag = get_object_or_404(dags_shown(), pk=pk)
    try:
        logs = logs_on_page(dag, (unit, node, attempt, job_id), request.GET)
    except ValueError as error:
        raise Http404(str(error)) from error
    return page(request, "requests/logs", {"logs": logs})


@require_safe
@login_required
def logs_of_jobs(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    """All packed logs that a DAG keeps."""
    dag = get_object_or_404(dags_shown(), pk=pk)
    context = {"dag": dag, "kept": stored_logs(dag), "readable": is_there(dag.submit_dir)}
    return page(request, "requests/stored_logs", context)
