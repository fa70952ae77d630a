"""Reading alerts: those that are open, and those of one cause together."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Case, Count, IntegerField, Min, Q, QuerySet, Value, When

from requests_app.models import TERMINAL, Alert, AlertChannel, AlertRoute, RequestWatch, Severity
from requests_app.selectors.alert_texts import words_of

_RANK = Case(
    When(severity=Severity.CRITICAL, then=Value(0)), When(severity=Severity.WARNING, then=Value(1)), default=Value(2),
    output_field=IntegerField(),
)  # fmt: skip


class AlertGroup(NamedTuple):
    """Open alerts of one code and cause: how many, of how many requests; ``first`` is the oldest of them."""

    code: str
    cause: str
    severity: Severity
    number: int
    requests: int
    since: datetime
    owned: int
    silenced: int
    first: Alert

    @property
    def alone(self) -> bool:
        """Whether it is a single one of a request."""
        return self.number == 1 and self.first.request_id is not None

    @property
    def title(self) -> str:
        """``12 requests: effect_dead at T2_X``, or the one whom it concerns."""
        return title_of(self.code, self.cause, [self.first.subject], self.number, self.requests)

    @property
    def means(self) -> str:
        """What it says, in a sentence."""
        return words_of(self.code).means

    @property
    def todo(self) -> str:
        """What to do."""
        return words_of(self.code).todo


def title_of(code: str, cause: str, subjects: Iterable[str], number: int, requests: int) -> str:
    """Of alerts of one code and cause, by one of those whom they concern if it is the only one."""
    first = next(iter(subjects), "")
    where = f" at {cause}" if cause and cause != first else ""
    if number == 1:
        return f"{first}: {code}{where}"
    whom = f"{number} requests" if requests == number else f"{number} times"
    return f"{whom}: {code}{where}"


def open_alerts(**filters: Any) -> QuerySet[Alert]:
    """Those that go on, the most severe and then the oldest first; ``filters`` as Django's, e.g. ``site``, ``schedd``,
    ``request``. An index of open rows alone."""
    return Alert.objects.filter(ended_at=None, **filters).select_related("request").only(*SHOWN).order_by(_RANK, "since", "id")


#: Of the request its name and campaign.
SHOWN = (
    *(field.name for field in Alert._meta.concrete_fields), "request__request_name", "request__prep_id", "request__campaign",
)  # fmt: skip


def alerts_together(rows: QuerySet[Alert], now: datetime, most: int) -> list[AlertGroup]:
    """Rows by code and cause, the most severe and then the oldest first; two queries, ``most`` and one more at most."""
    groups = (
        rows.order_by()
        .values("code", "cause")
        .annotate(
            rank=Min(_RANK), number=Count("id"), requests=Count("request"), first_since=Min("since"), first=Min("id"),
            owned=Count("id", filter=~Q(owner="")),
            silenced=Count("id", filter=Q(silenced_until__gt=now)),
        )
        .order_by("rank", "first_since", "first")[: most + 1]
    )  # fmt: skip
    found = list(groups)
    firsts = Alert.objects.select_related("request").only(*SHOWN).in_bulk([each["first"] for each in found])
    return [
        AlertGroup(
            each["code"], each["cause"], list(Severity)[each["rank"]], each["number"], each["requests"], each["first_since"],
            each["owned"], each["silenced"], firsts[each["first"]],
        )
        for each in found
        if each["first"] in firsts
    ]  # fmt: skip


def alerts_shown() -> QuerySet[Alert]:
    """All that are kept, with their requests."""
    return Alert.objects.select_related("request")


def channels_shown() -> QuerySet[AlertChannel]:
    """Where alerts may be sent."""
    return AlertChannel.objects.order_by("name")


def channels_failing() -> QuerySet[AlertChannel]:
    """Those to which nothing could be sent last."""
    return AlertChannel.objects.filter(enabled=True, failing_since__isnull=False).order_by("name")


def watchers_without_address() -> QuerySet[Any]:
    """Users who watch requests that have not ended, and to whom nothing can be sent: (name, how many, the first)."""
    rows = RequestWatch.objects.filter(user__is_active=True, user__email="").exclude(request__status__in=TERMINAL)
    grouped = rows.order_by("user__username").values_list("user__username")
    return grouped.annotate(number=Count("id"), first=Min("request__request_name"))


def routes_shown() -> QuerySet[AlertRoute]:
    """Which alerts go where."""
    return AlertRoute.objects.select_related("channel")
