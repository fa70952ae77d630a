"""The errors of a request: groups of like failures with samples, counted by category, code, site and step; bad input files.

From rows only (ADR 0012): a page costs the same however many jobs failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import Prefetch, Sum

from dags_app.models import DAG, FailedInputFile, FailureGroup, FailureLog, FailureSample

#: Groups and files that one answer carries, those with most failures first.
MOST_GROUPS = 100
MOST_FILES = 500


class Count(NamedTuple):
    """Failed attempts, and of them those after which the node was not tried again."""

    value: str
    attempts: int
    given_up: int


class RequestErrors(NamedTuple):
    """All of it. ``groups_left_out`` and ``files_left_out`` are how many are not listed; the counts include it."""

    request_name: str
    attempts: int
    given_up: int
    by_category: tuple[Count, ...]
    by_code: tuple[Count, ...]
    by_site: tuple[Count, ...]
    by_step: tuple[Count, ...]
    groups: tuple[FailureGroup, ...]
    groups_left_out: int
    bad_files: tuple[FailedInputFile, ...]
    files_left_out: int
    problems: tuple[str, ...]


def request_errors(request_name: str, *, most_groups: int = MOST_GROUPS) -> RequestErrors:
    """What failed in a request so far; empty for one without a workflow."""
    rows = FailureGroup.objects.filter(workflow__request_id=request_name)
    files = FailedInputFile.objects.filter(workflow__request_id=request_name)
    total = rows.aggregate(attempts=Sum("attempts"), given_up=Sum("given_up"))
    samples = Prefetch("samples", FailureSample.objects.select_related("dag").defer("dag__observed", "dag__outcome"))
    listed = tuple(rows.prefetch_related(samples).order_by("-given_up", "-attempts", "id")[:most_groups])
    bad = tuple(files.order_by("-attempts", "id")[:MOST_FILES])
    directories = DAG.objects.filter(workflow__request_id=request_name).order_by().values("directory_id")
    logs = FailureLog.objects.filter(directory_id__in=directories)  # of one that could not be read the counts are too low
    return RequestErrors(
        request_name=request_name,
        attempts=total["attempts"] or 0,
        given_up=total["given_up"] or 0,
        **{f"by_{field}": _counted(rows, field) for field in ("category", "code", "site", "step")},
        groups=listed,
        groups_left_out=rows.count() - len(listed) if len(listed) == most_groups else 0,
        bad_files=bad,
        files_left_out=files.count() - len(bad) if len(bad) == MOST_FILES else 0,
        problems=tuple(logs.exclude(problem="").values_list("problem", flat=True)),
    )


def _counted(rows: Any, field: str) -> tuple[Count, ...]:
    found: Sequence[Any] = rows.order_by().values_list(field).annotate(attempts=Sum("attempts"), given_up=Sum("given_up"))
    counts = (Count(str(value), attempts, given_up) for value, attempts, given_up in found)
    return tuple(sorted(counts, key=lambda count: (-count.attempts, count.value)))
