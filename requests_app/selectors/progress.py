"""How far a request was, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from requests_app.models import Progress, ProgressSample, Request


@dataclass(frozen=True, slots=True)
class Course:
    """A request's summary (None: nothing was sampled yet) and its samples, oldest first."""

    summary: Progress | None
    samples: Sequence[ProgressSample]


def course_of(request: Request) -> Course:
    """Two queries; a month of means and a day of samples at most, 5,760 rows."""
    samples = ProgressSample.objects.filter(request=request).order_by("at")
    return Course(Progress.objects.filter(request=request).first(), list(samples))
