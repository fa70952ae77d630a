"""The errors of a request: groups of like failures with samples, counted by category, code, site and step; bad input files.

From rows only (ADR 0012): a page costs the same however many jobs failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Prefetch

from dags_app.models import DAG, FailedInputFile, FailureGroup, FailureLog, FailureSample

#: Groups and files that one answer carries, those with most failures first.
MOST_GROUPS = 100
MOST_FILES = 500
#: By what failed attempts are counted.
_COUNTED = ("category", "code", "site", "step")


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


def request_errors(request_name: str) -> RequestErrors:
    """What failed in a request so far; empty for one without a workflow."""
    rows = FailureGroup.objects.filter(workflow__request_id=request_name)
    files = FailedInputFile.objects.filter(workflow__request_id=request_name)
    samples = Prefetch("samples", FailureSample.objects.select_related("dag").defer("dag__observed", "dag__outcome"))
    listed = rows.prefetch_related(samples).order_by("-given_up", "-attempts", "id")[:MOST_GROUPS]
    bad = list(files.order_by("-attempts", "id")[:MOST_FILES])
    directories = DAG.objects.filter(workflow__request_id=request_name).order_by().values("directory_id")
    logs = FailureLog.objects.filter(directory_id__in=directories).exclude(problem="")
    numbers = rows.order_by().values(*_COUNTED, "attempts", "given_up")
    left_out = files.count() - len(bad) if len(bad) == MOST_FILES else 0
    return errors_of(request_name, list(numbers), listed, (bad, left_out), logs.values_list("problem", flat=True))


def errors_of(
    request_name: str,
    numbers: Sequence[Mapping[str, Any]],
    groups: Iterable[FailureGroup],
    files: tuple[Iterable[FailedInputFile], int],
    problems: Iterable[str],
) -> RequestErrors:
    """Of the numbers of all groups, those to be listed, files and how many more there are, and what logs say that could not be
    read: of these the counts are too low.
    """
    listed = tuple(groups)
    return RequestErrors(
        request_name=request_name,
        attempts=sum(row["attempts"] for row in numbers),
        given_up=sum(row["given_up"] for row in numbers),
        **{f"by_{field}": _counted(numbers, field) for field in _COUNTED},
        groups=listed,
        groups_left_out=len(numbers) - len(listed),
        bad_files=tuple(files[0]),
        files_left_out=files[1],
        problems=tuple(problems),
    )


def _counted(numbers: Iterable[Mapping[str, Any]], field: str) -> tuple[Count, ...]:
    attempts, given_up = Counter[str](), Counter[str]()
    for row in numbers:
        attempts[str(row[field])] += row["attempts"]
        given_up[str(row[field])] += row["given_up"]
    counts = (Count(value, number, given_up[value]) for value, number in attempts.items())
    return tuple(sorted(counts, key=lambda count: (-count.attempts, count.value)))
