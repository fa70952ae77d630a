"""The pages of campaigns: whose they are, how far they are, what is held. From kept counts, whatever the number of requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.safestring import SafeString

from requests_app.api.campaigns import CampaignFilters
from requests_app.models import Campaign, HoldCode, Request, RequestStatus
from requests_app.pages.cached import chart_drawn
from requests_app.pages.tables import AUDIT, Table, audit_of, table_of
from requests_app.selectors.campaigns import CampaignProgress, campaigns_listed, standings
from wms2.models import AuditEntry
from wms2.web.formatting import word
from wms2.web.time_range import TimeRange

#: Campaigns on one page; others are found by name.
MOST = 50
MOST_HELD = 20
MOST_SAID = 20
_HELD = ("request_name", "prep_id", "status", "status_since", "hold_code", "hold_reason")


class CampaignLine(NamedTuple):
    """A campaign and where it stands."""

    campaign: Campaign
    progress: CampaignProgress

    @property
    def statuses(self) -> list[tuple[RequestStatus, int]]:
        """Those that there are, in the order of a request's life."""
        return [(status, number) for status in RequestStatus if (number := self.progress.requests[status])]

    @property
    def held(self) -> list[tuple[str, str, int]]:
        """(code, in words, requests), the most first."""
        return [(code, word(HoldCode, code).label, number) for code, number in self.progress.held.most_common()]


class CampaignsPage(NamedTuple):
    """What the address asks for. ``more``: there are others behind those shown."""

    values: Mapping[str, str]
    errors: Mapping[str, Sequence[str]]
    lines: Sequence[CampaignLine]
    more: bool


class CampaignPage(NamedTuple):
    """``held``: the requests that were held first; ``more_held``: how many others there are."""

    line: CampaignLine
    held: Sequence[Request]
    more_held: int
    audit: Sequence[AuditEntry]
    chart: SafeString
    range: TimeRange


def campaigns_page(given: QueryDict) -> CampaignsPage:
    """Three queries."""
    filters = CampaignFilters(given, queryset=campaigns_listed())
    rows = list(filters.qs[: MOST + 1]) if filters.is_valid() else []
    found = standings([row.name for row in rows[:MOST]])
    return CampaignsPage(
        values={name: given.get(name, "") for name in filters.filters},
        errors={name: [str(one) for one in why] for name, why in filters.form.errors.items()},
        lines=[CampaignLine(row, found[row.name]) for row in rows[:MOST]],
        more=len(rows) > MOST,
    )


def campaign_page(campaign: Campaign, range_: TimeRange) -> CampaignPage:
    """Five queries."""
    line = CampaignLine(campaign, standings([campaign.name])[campaign.name])
    number = line.progress.requests[RequestStatus.HELD]
    held = list(_held(campaign).only(*_HELD)[:MOST_HELD]) if number else []
    said = list(audit_of("campaign", campaign.name)[:MOST_SAID])
    course = chart_drawn("events", range_, title="Events done", campaign=campaign.name)
    return CampaignPage(line, held, max(number - len(held), 0), said, course, range_)


def campaign_lists(campaign: Campaign) -> dict[str, Callable[[], Table]]:
    """Those of its page, each to be read by itself."""

    def statuses() -> Table:
        requests = standings([campaign.name])[campaign.name].requests
        return Table(("status", "requests"), [(status.value, requests[status]) for status in RequestStatus if requests[status]])

    return {
        "held": table_of(_held(campaign), *_HELD),
        "statuses": statuses,
        "audit": table_of(audit_of("campaign", campaign.name), *AUDIT),
    }


def _held(campaign: Campaign) -> QuerySet[Request]:
    """The first to be held first."""
    return Request.objects.filter(campaign=campaign.name, status=RequestStatus.HELD).order_by("status_since")
