"""Input files that were left out although the request wants them, and nobody has accepted that yet.

What the request's own masks leave out, what came too late to be read (it is warned of) and what an operator left out is not
counted; nor is a file without events and lumis, of which nothing can be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q, QuerySet

from dags_app.planning.specs import ExclusionKind
from requests_app.models import InputFile, Request, Workflow
from requests_app.work.overrides import max_excluded

_MISSED = (ExclusionKind.LOST, ExclusionKind.UNUSABLE)


@dataclass(frozen=True, slots=True)
class Standing:
    """Files left out, of those that the request wants."""

    files: QuerySet[InputFile]
    count: int
    wanted: int

    @property
    def fraction(self) -> float:
        """Their share."""
        return self.count / self.wanted if self.count else 0.0


def exclusions_standing(workflow: Workflow) -> Standing:
    """As the rows are now."""
    rows = InputFile.objects.filter(workflow=workflow)
    files = rows.filter(excluded_kind__in=_MISSED).exclude(Q(events=0) & Q(lumis={}))
    count = files.count()
    return Standing(files, count, rows.exclude(excluded_kind=ExclusionKind.UNWANTED).count() if count else 0)


def exclusions_too_many(request: Request, workflow: Workflow) -> bool:
    """Whether the request would be held for them now."""
    return exclusions_standing(workflow).fraction > max_excluded(request)


def exclusions_accept(*, workflow: Workflow, actor: str, reason: str) -> int:
    """The request may complete without them; in the caller's transaction. Returns how many."""
    rows = list(exclusions_standing(workflow).files)
    for row in rows:
        row.excluded_kind = ExclusionKind.ACCEPTED
        row.excluded_reason = f"{row.excluded_reason}; accepted by {actor}: {reason}"
    InputFile.objects.bulk_update(rows, ["excluded_kind", "excluded_reason"], batch_size=1000)
    return len(rows)
