"""The course of a request as lines of an image: work units done, and jobs that run. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from requests_app.models import Progress, ProgressSample
from requests_app.selectors.progress import Course

WIDTH, HEIGHT = 600, 120


@dataclass(frozen=True, slots=True)
class Drawn:
    """Points of two lines in a box of ``WIDTH`` x ``HEIGHT``, each of which stays level until its number changes."""

    summary: Progress
    done: str
    running: str


def drawn(course: Course) -> Drawn | None:
    """None when there is nothing to draw yet. As many points as the image can show, however many samples there are."""
    last = course.summary
    if last is None:
        return None
    began, length = last.first_at, max((last.at - last.first_at).total_seconds(), 1.0)
    shown = {round((row.at - began).total_seconds() / length * WIDTH): row for row in course.samples if row.at >= began}

    def line(part: Callable[[ProgressSample], float]) -> str:
        points, level = [], float(HEIGHT)
        for x, row in sorted(shown.items()):
            points.append(f"{x},{level:.1f}")
            level = HEIGHT * (1 - min(1.0, part(row)))
            points.append(f"{x},{level:.1f}")
        return " ".join(points)

    return Drawn(
        last, line(lambda row: row.units_done / max(row.units, 1)), line(lambda row: row.jobs_running / max(last.peak_running, 1))
    )
