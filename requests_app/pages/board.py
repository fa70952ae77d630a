"""The list of requests: of each how much of the asked events is done, and when it may end; views that people keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Case, F, Value, When
from django.utils import timezone

from dags_app.counts import UnitCounts, unit_counts
from requests_app.models import EVALUATED, HoldCode, ProgressSample, Request, RequestStatus, Workflow
from requests_app.selectors.explain import alert_of, todo_of
from requests_app.selectors.saved_views import views_seen
from requests_app.selectors.summary import stored_counts
from requests_app.selectors.workflows import end_at_rate
from wms2.runtime.json_columns import mapping, number
from wms2.web.formatting import word

#: Over so long the speed is measured from which the end is estimated.
MEASURED_OVER = timedelta(hours=6)
#: Where an end of the work is to be expected: a held request waits for a person, of one that is stopped no more is done.
_GOES_ON = tuple(status for status in EVALUATED if status not in (RequestStatus.HELD, RequestStatus.STOPPING))
#: Above the list; more are over REST.
MOST_VIEWS = 100
#: Later ends say nothing.
LATEST = timedelta(days=365)


class Work(NamedTuple):
    """How much of what was asked for is done; ``done`` None: not counted yet."""

    done: int | None
    asked: int
    unit: str

    @property
    def share(self) -> float:
        """0 to 1."""
        return min(1.0, (self.done or 0) / self.asked) if self.asked else 0.0


class Speed(NamedTuple):
    """Work units done now, of those planned so far, and how many at an earlier moment."""

    units: int
    done: int
    before: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Line:
    """One request on the page. ``ends_at``: an estimate by how fast its work units were done lately; None without one."""

    request: Request
    units: UnitCounts
    work: Work | None = None
    ends_at: datetime | None = None

    @property
    def held_for(self) -> str:
        """What it is held for; empty while it is not."""
        return str(word(HoldCode, self.request.hold_code).label) if self.request.status == RequestStatus.HELD else ""

    @property
    def alert(self) -> str:
        """What its alert says; empty without one."""
        return alert_of(self.request)

    @property
    def todo(self) -> str:
        """What a person is to do; empty where nothing is."""
        return todo_of(self.request)


def listed(user: Any) -> dict[str, Any]:
    """What stands around the list: counts by status, views. Two statements."""
    numbers = stored_counts().requests
    others = Case(When(owner=user.pk, then=Value(0)), default=Value(1))  # behind one's own
    return {
        "counts": tuple((status, numbers[status]) for status in RequestStatus if numbers[status]),
        "total": sum(numbers.values()),
        "views": list(views_seen(user).order_by(others, "name", "id")[:MOST_VIEWS]),
    }


def lines(rows: Sequence[Any]) -> list[Line]:
    """A page of rows with their work: three statements at most, whatever there is."""
    keys = [row.workflow_key for row in rows if row.workflow_key]
    units, about = unit_counts(keys), _about(keys)
    speeds = _speeds({row.pk: about[row.workflow_key] for row in rows if row.status in _GOES_ON and row.workflow_key in about})
    now, found = timezone.now(), []
    for row in rows:
        work = work_of(about[row.workflow_key]) if row.workflow_key in about else None
        ends_at = expected_end(speeds[row.pk], work.share if work else 0.0, now) if row.pk in speeds else None
        found.append(Line(row, units[row.workflow_key], work, ends_at))
    return found


def work_of(about: Mapping[str, Any]) -> Work | None:
    """In events where they are known, else in lumis or files; as its account was counted last."""
    numbers = mapping(about["numbers"])
    for unit in ("lumis", "files") if numbers.get("by_lumi") else ("events", "files"):
        if asked := int(number(numbers.get(f"all_{unit}"))):
            return Work(int(number(numbers.get(f"done_{unit}"))), asked, unit)
    return Work(None, about["requested_events"], "events") if about["requested_events"] else None


def expected_end(speed: Speed, share: float, now: datetime) -> datetime | None:
    """When all is done if it goes on like this. ``share`` of what was asked: rounds that are not planned yet count by it."""
    in_all = max(speed.units, round(speed.done / share) if share else 0)
    return end_at_rate(in_all - speed.done, speed.done - speed.before, speed.since, now, LATEST)


def _about(workflow_keys: Iterable[Any]) -> dict[Any, dict[str, Any]]:
    rows = Workflow.objects.filter(pk__in=list(workflow_keys)).values(
        "pk", "requested_events", numbers=F("kept_account__numbers"), units=F("request__progress__units"),
        done=F("request__progress__units_done"), first_at=F("request__progress__first_at"),
    )  # fmt: skip
    return {row["pk"]: dict(row) for row in rows}


def _speeds(about: Mapping[Any, Mapping[str, Any]]) -> dict[Any, Speed]:
    """By request, of those that were sampled: over the last hours, or since their first sample."""
    sampled = {key: row for key, row in about.items() if row["units"]}
    if not sampled:
        return {}
    begins = timezone.now() - MEASURED_OVER
    rows = ProgressSample.objects.filter(request__in=list(sampled), mean=False, at__gte=begins).order_by("request_id", "at")
    first = {key: (done, at) for key, done, at in rows.distinct("request_id").values_list("request_id", "units_done", "at")}
    found = {}
    for key, row in sampled.items():
        untouched = (0, row["first_at"]) if row["first_at"] >= begins else (row["done"], begins)
        found[key] = Speed(row["units"], row["done"], *first.get(key, untouched))
    return found
