"""What operators may do to campaigns."""

from __future__ import annotations

from requests_app.models import Campaign
from requests_app.services.campaigns import SAID, campaign_describe
from wms2.actions import Action, Field, Kind, ResourceType, declare

declare(
    ResourceType(
        Campaign, "campaign", "campaign", lambda name: Campaign.objects.filter(pk=name),
        lambda row: (" ".join(str(getattr(row, name)) for name in SAID)[:200], row.name), "campaigns/<campaign:pk>",
        fitting=lambda row: ("describe",),
    ),
    Action(
        "describe", "Describe",
        "Say whose a campaign is, when it is to run, and what people should know of it; what is not given is emptied. WMS2 does"
        " not act on it.",
        campaign_describe, None,
        (
            Field("owner", help="who answers for it: people or groups", length=200, blank=""),
            Field("begins_at", Kind.MOMENT, "UTC, as planned, e.g. 2026-12-24 08:00", blank=None),
            Field("ends_at", Kind.MOMENT, "UTC, when it is to be done", blank=None),
            Field("note", help="what people should know of it", length=10_000, blank="", rows=4),
        ),
        initial=lambda row: {name: getattr(row, name) for name in SAID}, path="describe", inverse="describe",
    ),
)  # fmt: skip
