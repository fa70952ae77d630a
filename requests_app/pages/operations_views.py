"""The pages of operations: schedds, pools, workers, limits; one schedd; what was done and what changed."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dags_app.selectors import schedds_counted
from requests_app.pages.operations import Activity, operations, schedd_lists, schedd_seen
from requests_app.pages.queue import QueuePage, queue_lists, queue_page
from requests_app.pages.rendering import page, without_blanks
from requests_app.pages.tables import file_asked
from wms2.admin.actions import offered
from wms2.runtime.storable import storable


@require_safe
@login_required
def operations_page(request: HttpRequest) -> HttpResponse:
    """Where DAGs run, who works on them, and what limits them."""
    seen = operations()
    return page(request, "operations/operations", {"seen": seen, "lifecycle": seen.lifecycle, "section": "operations"})


@require_safe
@login_required
def schedd_page(request: HttpRequest, name: str) -> HttpResponse:
    """One schedd; of those of one name in several pools the one that the address's ``pool`` names, else the first. Its lists as
    files with ``format``."""
    rows = schedds_counted().filter(name=name)
    if pool := request.GET.get("pool"):
        rows = rows.filter(pool=storable(pool))
    row = rows.first()
    if row is None:
        raise Http404(f"there is no schedd {name}")
    if (answer := file_asked(request, **schedd_lists(row))) is not None:
        return answer
    context = {"seen": schedd_seen(row), "offered": offered(request.user, row, request.get_full_path()), "section": "operations"}
    return page(request, "operations/schedd", context)


@require_safe
@login_required
def activity_page(request: HttpRequest) -> HttpResponse:
    """What was done, by whom, and what changed since then; its lists as files with ``format``."""
    activity = Activity(without_blanks(request.GET))
    if not activity.errors and (answer := file_asked(request, **activity.lists())) is not None:
        return answer
    context = {"query": activity, "seen": activity.shown(), "section": "operations"}
    return page(request, "operations/activity", context, status=400 if activity.errors else 200)


@require_safe
@login_required
def queue_view(request: HttpRequest) -> HttpResponse:
    """The queue in order, and what another priority would do; its lists as files with ``format``."""
    given = without_blanks(request.GET)

    def read() -> QueuePage:
        return queue_page(given, request.user, request.get_full_path())

    if (answer := file_asked(request, **queue_lists(read))) is not None:
        return answer
    seen = read()
    return page(request, "operations/queue", {"seen": seen, "section": "operations"}, status=400 if seen.errors else 200)
