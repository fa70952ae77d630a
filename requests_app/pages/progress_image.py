"""The course of a request as lines of an image: work units done, and jobs that run. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from requests_app.models import ProgressSample
from requests_app.selectors.parts import ProgressChart

WIDTH, HEIGHT = 600, 120


def drawn(chart: ProgressChart) -> dict[str, Any]:
    """For the template: the summary, and points of two lines in a box of ``WIDTH`` x ``HEIGHT``, each of which stays level until
    its number changes; as many as the image can show. Empty while there is nothing to draw."""
    last = chart.summary
    if last is None:
        return {}
    began, length = last.first_at, max((last.at - last.first_at).total_seconds(), 1.0)
    shown = {round((row.at - began).total_seconds() / length * WIDTH): row for row in chart.samples if row.at >= began}

    def line(part: Callable[[ProgressSample], float]) -> str:
        points, level = [], float(HEIGHT)
        for x, row in sorted(shown.items()):
            points.append(f"{x},{level:.1f}")
            level = HEIGHT * (1 - min(1.0, part(row)))
            points.append(f"{x},{level:.1f}")
        return " ".join(points)

    done = line(lambda row: row.units_done / max(row.units, 1))
    return {"last": last, "done": done, "running": line(lambda row: row.jobs_running / max(last.peak_running, 1))}
