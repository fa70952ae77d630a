"""Pages of one DAG, and of what a job of it left: its report, its ads and events."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from dags_app.attempts import attempt_ads, attempt_report
from dags_app.selectors import dags_shown
from requests_app.pages.dag import Durations, Try, dag_page
from requests_app.pages.readable import Section, ad_sections, sections
from requests_app.pages.rendering import page
from requests_app.pages.tables import Table, file_asked
from wms2.admin.actions import offered


@require_safe
@login_required
def dag_detail(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    """One DAG, and of one unit that the address names its nodes; how long units took as files with ``format``."""
    dag = get_object_or_404(dags_shown(), pk=pk)
    try:
        seen = dag_page(dag, request.GET.get("unit", ""), by_role="roles" in request.GET)
    except ValueError as error:
        raise Http404(str(error)) from error
    tries = [[each.span.name, *each[1:]] for each in seen.drawn or seen.slowest]
    answer = file_asked(
        request,
        tries=lambda: Table(("unit", *Try._fields[1:]), tries),
        durations=lambda: Table(Durations._fields, seen.durations),
    )
    if answer is not None:
        return answer
    context = {
        "page": seen,
        "lifecycle": seen.lifecycle,
        "offered": offered(request.user, dag, reverse("dag-page", args=[dag.pk])),
        "by_role": "roles" in request.GET,
        "section": "board",
    }
    return page(request, "dags/dag", context)


@require_safe
@login_required
def job_report(request: HttpRequest, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> HttpResponse:
    """A job's report as tables."""
    dag, job = get_object_or_404(dags_shown(), pk=pk), (unit, node, attempt, job_id)
    found = _read(attempt_report, dag, *job)
    shown = sections(found.content) if found.content else []
    return _job_page(request, dag, job, "Report", "attempt-report", found, [("", shown)])


@require_safe
@login_required
def job_ads(request: HttpRequest, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> HttpResponse:
    """A job's ad, its machine's, and its events, as tables."""
    dag, job = get_object_or_404(dags_shown(), pk=pk), (unit, node, attempt, job_id)
    found = _read(attempt_ads, dag, *job)
    events = [(each["at"], each["title"], each["body"]) for each in found.content["events"]]
    parts = [
        ("Job", ad_sections(found.content["job_ad"])),
        ("Machine", ad_sections(found.content["machine_ad"])),
        ("Events", [Section("", (), ("At", "Event", ""), events)] if events else []),
    ]
    return _job_page(request, dag, job, "Ads and events", "attempt-job-ad", found, parts)


def _job_page(
    request: HttpRequest, dag: Any, job: tuple[str, str, int, str], title: str, raw: str, found: Any, parts: Any
) -> HttpResponse:
    context = {"dag": dag, "job": job, "title": title, "found": found, "parts": parts, "raw": reverse(raw, args=[dag.pk, *job])}
    return page(request, "dags/job", context | {"section": "board"})


def _read(read: Any, dag: Any, *job: Any) -> Any:
    """Raises Http404: a name is not one that WMS2 gives."""
    try:
        return read(dag, *job)
    except ValueError as error:
        raise Http404(str(error)) from error
