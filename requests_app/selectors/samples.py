"""Samples as lines of a chart (docs/design/samples.md). One statement, whatever the number of requests."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse

from dags_app.models import ALL, BUCKETS, DAY_SECONDS
from wms2.runtime import clock
from wms2.runtime.cached import Cached
from wms2.runtime.sql import sql_rows
from wms2.runtime.storable import storable
from wms2.web.charts import Chart, Line
from wms2.web.time_range import TimeRange

#: Lines of one chart; what is beyond them is added up as ``OTHERS``.
MOST_LINES, OTHERS, UNNAMED = 8, "others", "not named"

#: Samples come no sooner.
CACHED_SECONDS = 60.0


class Measure(NamedTuple):
    """What can be shown over time.

    Attributes:
        by: what it can be divided by.
        within: of what it can be shown alone; the first that is given with another ``by`` reads the groups by all columns.
        state: how something stands, otherwise what happened, as a rate an hour.
    """

    title: str
    unit: str
    by: tuple[str, ...]
    within: tuple[str, ...]
    state: bool = False


_WORK = ("site", "campaign", "release")
MEASURES: Mapping[str, Measure] = {
    "events": Measure("Events", "events per hour", _WORK, ("site", "campaign")),
    "units": Measure("Work units done", "work units per hour", _WORK, ("site", "campaign")),
    "files": Measure("Merged files", "files per hour", _WORK, ("site", "campaign")),
    "failures": Measure("Failed attempts", "attempts per hour", (*_WORK, "step", "code"), ("site", "campaign", "step")),
    "core_seconds": Measure("Core seconds of jobs", "core seconds per hour", (*_WORK, "step"), ("site", "campaign", "step")),
    "running": Measure("Running jobs", "jobs", ("site", "campaign", "pool"), ("site", "campaign"), state=True),
    "idle": Measure("Idle jobs", "jobs", ("site", "campaign", "pool"), ("site", "campaign"), state=True),
    "queued": Measure("Queued requests", "requests", (), (), state=True),
    "requests": Measure("Requests", "requests", ("status",), (), state=True),
    "effects": Measure("Calls to DBS and Rucio that are due", "calls", ("status",), (), state=True),
}
#: Range -> length of the buckets that are read and of those that are shown; 60 to 365 points; where such buckets
#: have gone, longer ones.
_SHOWN = {"6h": (300, 300), "24h": (600, 600), "7d": (3600, 3600), "30d": (14_400, 14_400), "365d": (DAY_SECONDS, DAY_SECONDS)}
YEAR = "365d"

_BUCKET = "date_bin(%(shown)s * interval '1 second', at, 'epoch')"
_LINES = """
WITH found AS MATERIALIZED ({found}), best AS (
  SELECT label FROM found GROUP BY label ORDER BY sum(value) DESC, label LIMIT %(most)s
)
SELECT at, best.label, sum(value), false FROM found LEFT JOIN best USING (label) GROUP BY 1, 2
UNION ALL
SELECT {bucket}, NULL, sum(total), true FROM state_samples
WHERE seconds = %(read)s AND what = 'looks' AND by = '' AND at >= %(begins)s AND at < %(ends)s GROUP BY 1
"""
#: What was added up, and what was not yet: with one OR over both, PostgreSQL reads all groups of the time.
_EVENTS = """
SELECT {bucket} AS at, {label} AS label, sum({measure}) AS value FROM samples
WHERE seconds = %(read)s AND by = %(group)s AND at >= %(begins)s AND at < %(ends)s {within} GROUP BY 1, 2
UNION ALL
SELECT {bucket}, {label}, sum({measure}) FROM samples
WHERE seconds = 0 AND at >= %(begins)s AND at < %(ends)s {within} GROUP BY 1, 2
"""
_STATES = """
SELECT {bucket} AS at, label, sum(total) AS value FROM state_samples
WHERE seconds = %(read)s AND what = %(measure)s AND by = %(group)s AND at >= %(begins)s AND at < %(ends)s {within} GROUP BY 1, 2
"""


class UnknownSeries(ValueError):
    """What is asked for is not sampled; says what there is. ``field``: the parameter that is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Buckets(NamedTuple):
    """What of a time range is read, and shown: whole buckets that have ended."""

    read: int
    shown: int
    begins: datetime
    ends: datetime

    @classmethod
    def of(cls, range_: TimeRange) -> Buckets:
        """Of a range's usual length, or of the next that is kept for so long."""
        read, shown = _SHOWN.get(range_.name, (DAY_SECONDS, DAY_SECONDS))
        age = clock.now() - range_.begins
        kept = next(each for each, (stays, _) in BUCKETS.items() if each >= read and (stays is None or age <= stays))
        read, shown = kept, max(kept, shown)
        begins, ends = (moment.timestamp() // shown * shown for moment in (range_.begins, range_.ends))
        return cls(read, shown, datetime.fromtimestamp(begins, UTC), datetime.fromtimestamp(ends, UTC))

    @property
    def times(self) -> list[datetime]:
        """Begins of what is shown."""
        number = int((self.ends - self.begins).total_seconds()) // self.shown
        return [self.begins + timedelta(seconds=self.shown * each) for each in range(number)]


Series = tuple[list[datetime], dict[str, list[float | None]]]
#: By what was asked for.
_series = Cached[Series](200)


def series(measure: str, range_: TimeRange, *, by: str = "", site: str = "", campaign: str = "", step: str = "") -> Series:
    """Begins of buckets, and a value of each for each line, the largest line first: the rate an hour of what happens, the mean of
    how things stand. None where nothing was looked at and nothing happened: WMS2 did not run. One statement.

    Raises:
        UnknownSeries: it is not sampled like that.
    """
    within = {name: value for name, value in (("site", site), ("campaign", campaign), ("step", step)) if value}
    known, buckets = _known(measure, by, within), Buckets.of(range_)
    values: dict[str, Any] = {**buckets._asdict(), "measure": measure, "most": MOST_LINES}
    found = _states(by, within, values) if known.state else _events(measure, by, within, values)
    lines: dict[str | None, dict[datetime, float]] = {}  # None: what is beyond the largest
    looks: dict[datetime, float] = {}
    for at, label, value, is_look in sql_rows(_LINES.format(found=found, bucket=_BUCKET), values):
        (looks if is_look else lines.setdefault(label, {}))[at] = float(value)
    if not lines and looks:
        lines = {"": {}}
    happened = {at for line in lines.values() for at in line}
    per_hour = 3600 / buckets.shown

    def valued(line: Mapping[datetime, float], at: datetime) -> float | None:
        if known.state:
            return round(line.get(at, 0.0) / looks[at], 2) if at in looks else None
        return round(line.get(at, 0.0) * per_hour, 2) if at in happened or at in looks else None

    times = buckets.times
    named = {None: _unused(OTHERS, lines), "": _unused(UNNAMED, lines) if by else known.title}
    largest = sorted(lines, key=lambda label: (label is None, -sum(lines[label].values()), label or ""))
    return times, {named.get(label, str(label)): [valued(lines[label], at) for at in times] for label in largest}


def _unused(name: str, lines: Container[str | None]) -> str:
    """Sites, campaigns, ... may be called so too."""
    while name in lines:
        name = f"all {name}"
    return name


def chart(
    measure: str, range_: TimeRange, *, title: str = "", by: str = "", site: str = "", campaign: str = "", step: str = ""
) -> Chart:
    """A chart of a series, with the address of the same numbers; read at most once in ``CACHED_SECONDS`` for all readers.

    Raises:
        UnknownSeries: it is not sampled like that.
    """
    times, lines = _series.get(
        (measure, Buckets.of(range_), by, site, campaign, step),
        CACHED_SECONDS,
        lambda: series(measure, range_, by=by, site=site, campaign=campaign, step=step),
    )
    known = MEASURES[measure]
    asked = {"measure": measure, "range": range_.name, "by": by, "site": site, "campaign": campaign, "step": step}
    address = f"{reverse('series')}?{urlencode({name: value for name, value in asked.items() if value})}"
    name = "-".join(filter(None, (measure.replace("_", "-"), by)))
    shown = [Line(label, values) for label, values in lines.items()]
    return Chart(name, title or known.title + (f" by {by}" if by else ""), known.unit, times, shown, address)


def _known(measure: str, by: str, within: Mapping[str, str]) -> Measure:
    if measure not in MEASURES:
        raise UnknownSeries("measure", f"is not one of {', '.join(MEASURES)}")
    known = MEASURES[measure]
    if by and by not in known.by:
        raise UnknownSeries("by", f"{measure} can be divided by {' or '.join(known.by) or 'nothing'}, not by {by[:50]}")
    for name, value in within.items():
        if name not in known.within:
            raise UnknownSeries(name, f"{measure} is not sampled by {name}; leave it out")
        if value != storable(value):
            raise UnknownSeries(name, "has characters that no name has")
    if known.state and len({*within, *([by] if by else [])}) > 1:
        raise UnknownSeries("by", f"{measure} is sampled by one of {', '.join(known.by)} at a time")
    return known


def _events(measure: str, by: str, within: Mapping[str, str], values: dict[str, Any]) -> str:
    """Of the groups by all columns, unless one column is asked for alone: its own are enough."""
    columns = {*within, *([by] if by else [])}
    values |= {**within, "group": next(iter(columns), "") if len(columns) < 2 else ALL}
    condition = "".join(f" AND {name} = %({name})s" for name in within)  # names of columns, checked before
    condition += {"step": " AND step <> ''", "code": " AND code <> 0"}.get(by, "")
    return _EVENTS.format(bucket=_BUCKET, label=f"{by}::text" if by else "''", measure=measure, within=condition)


def _states(by: str, within: Mapping[str, str], values: dict[str, Any]) -> str:
    column, label = next(iter(within.items()), (by, ""))
    values["group"], values["label"] = column, label
    return _STATES.format(bucket=_BUCKET, within="AND label = %(label)s" if label else "")
