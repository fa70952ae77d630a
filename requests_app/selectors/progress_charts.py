"""The course of one request as charts: work units, their rate, jobs; with its rounds and stops as marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.urls import reverse

from requests_app.models import Request, RequestStatus, RequestTransition, Round
from wms2.runtime.sql import sql_rows
from wms2.web.charts import Chart, Line, Mark

#: Of one chart; a point is a minute at least.
MOST_POINTS, SHORTEST_SECONDS = 180, 60
#: A rate is of this part of the course up to its moment: units that end together in one minute are no rate of that minute.
RATES = 36
#: The newest of each kind.
MOST_MARKS = 20
#: Measure -> title and unit.
CHARTS = {
    "done": ("Work units over time", "work units"),
    "rate": ("Throughput", "work units per hour"),
    "jobs": ("Jobs", "jobs"),
}
_STOPS = (RequestStatus.STOPPING, RequestStatus.HELD, RequestStatus.FAILED, RequestStatus.ABORTED)
#: The last sample in each step of equal length from the first to the last sample; means may begin before the first.
_LAST = """
WITH summary AS (
  SELECT extract(epoch FROM first_at) AS first, extract(epoch FROM at) AS last FROM progress WHERE request_id = %(request)s
), steps AS (
  SELECT *, greatest(1, ceil((last - first) / %(most)s / %(shortest)s)) * %(shortest)s AS width FROM summary
), course AS (
  SELECT width, last, floor(first / width) * width AS begins FROM steps
)
SELECT DISTINCT ON (place) width::int, begins::bigint, floor((last - begins) / width)::int + 1,
  greatest(0, floor((extract(epoch FROM at) - begins) / width))::int AS place,
  units, units_done, jobs_running, jobs_idle, jobs_held
FROM progress_samples CROSS JOIN course WHERE request_id = %(request)s ORDER BY place, at DESC
"""


class _Point(NamedTuple):
    """The counters at a moment."""

    units: int
    done: int
    running: int
    idle: int
    held: int


def progress_charts(
    request: Request, rounds: Iterable[Round] | None = None, stops: Iterable[Mapping[str, Any]] | None = None
) -> tuple[Chart, ...]:
    """In the order of ``CHARTS``, of 181 points at most; without points while nothing is sampled. One statement, and another one
    each for its rounds and ``stops_of`` it, where these were not read."""
    width, times, points = _points(request)
    done = [point.done for point in points]
    span = math.ceil(len(points) / RATES)
    rates = (max(0, after - before) * 3600 / width / span for before, after in zip(done, done[span:], strict=False))
    lines = {
        "done": [Line("done", done), Line("planned", [point.units for point in points])],
        "rate": [Line("work units per hour", [*[None] * span, *(round(each, 2) for each in rates)])],
        "jobs": [Line(name, [getattr(point, name) for point in points]) for name in ("running", "idle", "held")],
    }
    rounds = Round.objects.filter(workflow__request=request).order_by("-index")[:MOST_MARKS] if rounds is None else rounds
    stops = stops_of(request).values("at", "to_status") if stops is None else stops
    marks = [Mark(each.created_at, f"round {each.index}") for each in islice(rounds, MOST_MARKS)]
    marks = sorted([*marks, *(Mark(each["at"], RequestStatus(each["to_status"]).label.lower()) for each in stops)])
    address = reverse("request-series", args=[request.request_name])
    return tuple(
        Chart(f"course-{name}", title, unit, times, lines[name], f"{address}?measure={name}", marks)
        for name, (title, unit) in CHARTS.items()
    )


def _points(request: Request) -> tuple[int, list[datetime], list[_Point]]:
    """Seconds of a step, begins of steps, and the last sample up to the end of each: between two samples nothing has changed."""
    values: dict[str, Any] = {"request": request.pk, "most": MOST_POINTS, "shortest": SHORTEST_SECONDS}
    rows = sql_rows(_LAST, values)
    width, begins, number = rows[0][:3] if rows else (SHORTEST_SECONDS, 0, 0)
    found = {place: _Point(*counts) for _, _, _, place, *counts in rows}
    point, points = _Point(0, 0, 0, 0, 0), []
    for place in range(number):
        point = found.get(place, point)
        points.append(point)
    first = datetime.fromtimestamp(begins, UTC)
    return width, [first + timedelta(seconds=width * each) for each in range(number)], points


def stops_of(request: Request) -> QuerySet[RequestTransition]:
    """The newest first."""
    return RequestTransition.objects.filter(request=request, to_status__in=_STOPS).order_by("-id")[:MOST_MARKS]
