"""What a request's work units left at sites: what waits, what was removed by which job, what cannot be removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet, Sum

from dags_app.models import Leftover
from requests_app.models import Request
from wms2.conf import conf

_OPEN = Q(settled_at__isnull=True)
#: It was tried, and not all of it could be removed.
_FAILING = _OPEN & Q(tries__gt=0)


@dataclass(frozen=True, slots=True)
class SiteLeftovers:
    """Numbers of one site; work units, and files that were removed of them. ``problem``: one of those that keep failing."""

    site: str
    waiting: int
    failing: int
    removed_files: int
    problem: str


def leftovers_of(request: Request) -> QuerySet[Leftover]:
    """With their units, those that cannot be removed first."""
    rows = Leftover.objects.filter(unit__workflow__request=request).select_related("unit", "unit__round")
    return rows.order_by("settled_at", "-tries", "id").only(
        *(field.name for field in Leftover._meta.concrete_fields), "unit__name", "unit__round__index"
    )


def leftovers_by_site(request: Request) -> tuple[SiteLeftovers, ...]:
    """One query, and another for a problem at each site that has any."""
    rows = Leftover.objects.filter(unit__workflow__request=request).order_by("site").values_list("site")
    found = rows.annotate(waiting=Count("id", filter=_OPEN), failing=Count("id", filter=_FAILING), files=Sum("removed_files"))
    failing = leftovers_of(request).filter(_FAILING).order_by("site", "id").distinct("site")
    problems = dict(failing.values_list("site", "problem")) if any(row[2] for row in found) else {}
    return tuple(SiteLeftovers(site, waiting, failing, files, problems.get(site, "")) for site, waiting, failing, files in found)


def leftovers_open() -> Iterable[tuple[str, int, int]]:
    """(site, work units that wait, those among them that keep failing), of all requests, but at sites that are off."""
    rows = Leftover.objects.filter(_OPEN).exclude(site__in=conf().cleaner_off_sites).order_by("site").values_list("site")
    return rows.annotate(waiting=Count("id"), failing=Count("id", filter=_FAILING))
