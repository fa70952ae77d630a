"""The pages of operations: schedds, pools, workers, limits; one schedd; what was done and what changed."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from dags_app.selectors import schedds_counted
from requests_app.pages.operations import Activity, operations, schedd_seen
from requests_app.pages.rendering import page, without_blanks
from requests_app.pages.tables import FILES
from requests_app.selectors.lifecycle import lifecycle_state
from wms2.admin.actions import buttons

_AUDIT = ("at", "actor", "action", "target_type", "target", "outcome", "reason")


@require_safe
@login_required
def operations_page(request: HttpRequest) -> HttpResponse:
    """Where DAGs run, who works on them, and what limits them."""
    seen = operations()
    return page(request, "operations/operations", {"seen": seen, "lifecycle": seen.lifecycle, "door": "operations"})


@require_safe
@login_required
def schedd_page(request: HttpRequest, name: str) -> HttpResponse:
    """One schedd; of those of one name in several pools the one that the address's ``pool`` names, else the first."""
    rows = schedds_counted().filter(name=name)
    if pool := request.GET.get("pool"):
        rows = rows.filter(pool=pool)
    row = rows.first()
    if row is None:
        raise Http404(f"there is no schedd {name}")
    verbs = buttons(request.user, row, reverse("schedd-page", args=[name]))
    context = {"seen": schedd_seen(row), "verbs": verbs, "lifecycle": lifecycle_state(), "door": "operations"}
    return page(request, "operations/schedd", context)


@require_safe
@login_required
def activity_page(request: HttpRequest) -> HttpResponse:
    """What was done, by whom, and what changed since then; as CSV or JSON with ``as``."""
    activity = Activity(without_blanks(request.GET))
    answer = FILES.get(request.GET.get("as", ""))
    if answer is not None and not activity.errors:
        rows = activity.entries()[:10_000].values_list(*_AUDIT)
        return answer("activity", _AUDIT, ((at.isoformat(), *rest) for at, *rest in rows))
    context = {"query": activity, "seen": activity.shown(), "lifecycle": lifecycle_state(), "door": "operations"}
    return page(request, "operations/activity", context, status=400 if activity.errors else 200)
