"""What there is of a request beside itself: input files that wait or were left out, leftovers, its course."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Count, Q, QuerySet, Sum

from dags_app.models import Leftover
from dags_app.planning.specs import NOT_MISSED, ExclusionKind
from requests_app.models import InputFile, Progress, ProgressSample, Request
from wms2.runtime.combined_query import CombinedQuery

#: Files of each sort that one answer carries.
MOST_FILES = 1000


@dataclass(frozen=True, slots=True)
class TroubledInput:
    """Numbers of all, and the first files of each sort. ``unwanted``, by the request's own lists, are only counted."""

    waiting_files: int
    excluded_files: int
    unwanted_files: int
    waiting: Sequence[InputFile]
    excluded: Sequence[InputFile]

    def __bool__(self) -> bool:
        return bool(self.waiting_files or self.excluded_files)


def troubled_input(request: Request, *, most: int = MOST_FILES) -> TroubledInput:
    """As the rows are now; those that wait longest and those that were left out last come first. One query."""
    rows = InputFile.objects.filter(workflow__request=request)
    unwanted = Q(excluded_kind=ExclusionKind.UNWANTED)
    out = Q(excluded_at__isnull=False) & ~Q(excluded_kind__in=NOT_MISSED)
    numbers = rows.filter(Q(waiting_since__isnull=False) | Q(excluded_at__isnull=False)).order_by().values("workflow_id")
    read = CombinedQuery(
        numbers=numbers.annotate(
            waiting=Count("pk", filter=Q(waiting_since__isnull=False)),
            excluded=Count("pk", filter=out),
            unwanted=Count("pk", filter=unwanted),
        ),
        waiting=rows.filter(waiting_since__isnull=False).defer("lumis").order_by("waiting_since", "lfn")[:most],
        excluded=rows.filter(out).defer("lumis").order_by("-excluded_at", "lfn")[:most],
    ).rows()
    found = next(iter(read["numbers"]), {"waiting": 0, "excluded": 0, "unwanted": 0})
    return TroubledInput(found["waiting"], found["excluded"], found["unwanted"], read["waiting"], read["excluded"])


LEFTOVER_OPEN = Q(settled_at__isnull=True)
#: It was tried, and not all of it could be removed.
LEFTOVER_FAILING = LEFTOVER_OPEN & Q(tries__gt=0)


class SiteLeftovers(NamedTuple):
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


def leftovers_counted(request: Request) -> QuerySet[Any]:
    """By site: waiting, failing, files."""
    rows = Leftover.objects.filter(unit__workflow__request=request).order_by("site").values("site")
    failing = Count("id", filter=LEFTOVER_FAILING)
    return rows.annotate(waiting=Count("id", filter=LEFTOVER_OPEN), failing=failing, files=Sum("removed_files"))


def leftovers_by_site(request: Request, counted: Iterable[Mapping[str, Any]] | None = None) -> tuple[SiteLeftovers, ...]:
    """One query, unless they were ``leftovers_counted``, and another for a problem at each site that has any."""
    rows = list(leftovers_counted(request) if counted is None else counted)
    failing = leftovers_of(request).filter(LEFTOVER_FAILING).order_by("site", "id").distinct("site")
    problems = dict(failing.values_list("site", "problem")) if any(row["failing"] for row in rows) else {}
    return tuple(
        SiteLeftovers(row["site"], row["waiting"], row["failing"], row["files"], problems.get(row["site"], "")) for row in rows
    )


class ProgressChart(NamedTuple):
    """A request's summary (None: nothing was sampled yet) and its samples, oldest first."""

    summary: Progress | None
    samples: Sequence[ProgressSample]


def progress_chart_of(request: Request) -> ProgressChart:
    """Two queries; a month of means and a day of samples at most, 5,760 rows."""
    samples = ProgressSample.objects.filter(request=request).order_by("at")
    return ProgressChart(Progress.objects.filter(request=request).first(), list(samples))
