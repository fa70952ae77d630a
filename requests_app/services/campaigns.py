"""Operators say whose a campaign is, and when it is to run."""

from __future__ import annotations

from datetime import datetime

from requests_app.models import Campaign
from wms2.audit import audited
from wms2.errors import FieldRefused

#: What operators say of a campaign.
SAID = ("owner", "begins_at", "ends_at", "note")


def campaign_describe(
    *, campaign: Campaign, actor: str, reason: str, owner: str, begins_at: datetime | None, ends_at: datetime | None, note: str
) -> None:
    """Say all of it anew. WMS2 does not act on it. Raises FieldRefused: it ends before it begins."""
    given = dict(zip(SAID, (owner, begins_at, ends_at, note), strict=True))
    changes = {name: [str(getattr(campaign, name) or ""), str(value or "")] for name, value in given.items()}
    with audited(
        actor=actor, action="campaign_describe", target=campaign.name, target_type="campaign", reason=reason,
        changes={name: [old, new] for name, (old, new) in changes.items() if old != new},
    ):  # fmt: skip
        if begins_at is not None and ends_at is not None and ends_at <= begins_at:
            raise FieldRefused("ends_at", "a campaign ends after it begins")
        Campaign.objects.filter(pk=campaign.pk).update(**given)
