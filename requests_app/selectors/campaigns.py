"""Where campaigns stand, from what the database keeps count of: it costs the same however many requests they have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, QuerySet, Sum, Value, When

from requests_app.models import TERMINAL, Campaign, CampaignCount, RequestStatus

#: Nothing more is done for these.
ENDED = (*TERMINAL, RequestStatus.COMPLETED)
_SUMS = ("asked", "done", "jobs", "failed")
_OPEN = f"^status:({'|'.join(status for status in RequestStatus if status not in ENDED)}):"


@dataclass(slots=True)
class CampaignProgress:
    """Requests by status, held ones by their code too; events and jobs as ``CampaignCount`` has them."""

    requests: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    done: int = 0
    jobs: int = 0
    failed: int = 0

    @property
    def open(self) -> int:
        """Requests that are worked on, or wait."""
        return self.requests.total() - sum(self.requests[status] for status in ENDED)

    @property
    def unknown(self) -> int:
        """Requests of which it is not known yet how many events they ask for."""
        return self.requests[RequestStatus.NEW] + self.requests[RequestStatus.SUBMITTED]

    @property
    def total(self) -> int:
        """All requests."""
        return self.requests.total()

    @property
    def percent(self) -> int | None:
        """Events done of those asked for in whole percent, 100 only when all is done; None: none is asked for yet."""
        return int(min(self.done / self.asked, 1.0) * 100) if self.asked else None

    @property
    def failure_percent(self) -> str:
        """Failed attempts of all jobs that ended; empty: none has."""
        ended = self.failed + self.jobs
        return f"{self.failed / ended * 100:.1f}" if ended else ""

    def as_dict(self) -> dict[str, Any]:
        """For answers."""
        return {
            "requests": {status: self.requests[status] for status in RequestStatus.values if self.requests[status]},
            "held": dict(sorted(self.held.items())), "events_asked": self.asked, "events_done": self.done,
            "jobs_done": self.jobs, "failed_attempts": self.failed,
        }  # fmt: skip


def campaigns_listed() -> QuerySet[Campaign]:
    """All, those with open requests, which one query finds, before the others, the newest first."""
    counted = CampaignCount.objects.filter(kind__startswith="status:", kind__regex=_OPEN).order_by().values("campaign")
    ours = list(counted.annotate(sum=Sum("number")).filter(sum__gt=0).values_list("campaign", flat=True))
    rests = Case(When(name__in=ours, then=Value(0)), default=Value(1))
    return Campaign.objects.alias(rests=rests).order_by("rests", "-first_at", "name")


def standings(names: Collection[str]) -> Mapping[str, CampaignProgress]:
    """By name; one query."""
    found: dict[str, CampaignProgress] = defaultdict(CampaignProgress)
    rows = CampaignCount.objects.filter(campaign__in=names).values_list("campaign", "kind").annotate(sum=Sum("number"))
    for name, kind, number in rows:
        what, _, of = kind.partition(":")
        if what in _SUMS:  # a later release may count more
            setattr(found[name], what, number)
        if what != "status":
            continue
        status, _, hold_code = of.partition(":")
        found[name].requests[status] += number
        if status == RequestStatus.HELD and number:
            found[name].held[hold_code] += number
    return found
