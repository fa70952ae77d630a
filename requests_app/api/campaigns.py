"""Campaigns over REST: whose they are, and where their requests stand."""

from __future__ import annotations

from typing import Any

import django_filters

import requests_app.actions  # noqa: F401  declares them
from requests_app.models import Campaign
from requests_app.selectors.campaigns import standings
from wms2.api.answers import Computed, answer, rows
from wms2.api.filters import SearchFilter, TextFilter
from wms2.api.views import RowsViewSet

_PROGRESS = {
    "requests": dict[str, int], "held": dict[str, int], "events_asked": int, "events_done": int, "jobs_done": int,
    "failed_attempts": int,
}  # fmt: skip
CampaignProgressSerializer = answer(
    "CampaignStanding", _PROGRESS, "What the database keeps count of.",
    requests="by status, those that there are", held="held requests by the code of why",
    events_asked="of requests whose outputs stay, once their inputs are known",
    events_done="of accounted work units of these",
    jobs_done="processing and merge jobs of accounted work units, of all requests",
    failed_attempts="of jobs of all requests",
)  # fmt: skip
CampaignSerializer = rows(
    "Campaign", Campaign, "A campaign as its requests stand now.",
    "name", "owner", "begins_at", "ends_at", "note", "first_at",
    standing=Computed(
        lambda row: standings([row.pk])[row.pk].as_dict(), CampaignProgressSerializer(), column="name",
        help_text="requests, events, jobs",
    ),
)  # fmt: skip


class CampaignFilters(django_filters.FilterSet):
    """By owner, and by part of a name, owner or note."""

    owner = TextFilter(max_length=200)
    search = SearchFilter("name", "owner", "note")


class CampaignViewSet(RowsViewSet):
    """Campaigns that requests name. A row is made by the first request of it."""

    queryset = Campaign.objects.all()
    serializer_class = CampaignSerializer
    filterset_class = CampaignFilters
    ordering = ("name",)
    ordering_fields = ("name", "first_at")

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """Where they stand."""
        found = standings([line["name"] for line in lines])
        for line in lines:
            line["standing"] = found[line["name"]].as_dict()
