"""Input files that somebody should know of: those that wait for a site, those that were left out, with reason, who and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from dags_app.planning.specs import NOT_MISSED, ExclusionKind
from requests_app.models import InputFile, Request

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
    """As the rows are now; those that wait longest and those that were left out last come first."""
    rows = InputFile.objects.filter(workflow__request=request)
    unwanted = Q(excluded_kind=ExclusionKind.UNWANTED)
    out = Q(excluded_at__isnull=False) & ~Q(excluded_kind__in=NOT_MISSED)
    numbers = rows.filter(Q(waiting_since__isnull=False) | Q(excluded_at__isnull=False)).aggregate(
        waiting=Count("pk", filter=Q(waiting_since__isnull=False)),
        excluded=Count("pk", filter=out),
        unwanted=Count("pk", filter=unwanted),
    )
    waiting = rows.filter(waiting_since__isnull=False).defer("lumis").order_by("waiting_since", "lfn")
    return TroubledInput(
        numbers["waiting"],
        numbers["excluded"],
        numbers["unwanted"],
        list(waiting[:most]) if numbers["waiting"] else [],
        list(rows.filter(out).defer("lumis").order_by("-excluded_at", "lfn")[:most]) if numbers["excluded"] else [],
    )
