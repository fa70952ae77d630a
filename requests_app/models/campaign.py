"""Campaigns, and what is counted of their requests (ADR 0029); triggers of the database write both, operators what they are."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now
from django.urls import reverse


class Campaign(models.Model):
    """A campaign that requests name. Its row is there from the first of them on."""

    name = models.CharField(max_length=100, primary_key=True)
    owner = models.CharField(max_length=200, blank=True, db_default=Value(""), help_text="who answers for it: people or groups")
    begins_at = models.DateTimeField(null=True, blank=True, help_text="as planned")
    ends_at = models.DateTimeField(null=True, blank=True, help_text="when it is to be done")
    note = models.TextField(blank=True, db_default=Value(""))
    first_at = models.DateTimeField(db_default=Now(), help_text="when its first request came")

    class Meta:
        db_table = "campaigns"
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=Q(begins_at__isnull=True) | Q(ends_at__isnull=True) | Q(ends_at__gt=F("begins_at")),
                name="campaign_ends_later",
            ),
        )

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Its page."""
        return reverse("campaign-page", args=[self.name])


class CampaignCount(models.Model):
    """A change of what is counted of a campaign, or the sum of such changes.

    ``kind``: ``status:<status>:<hold code>``, requests; ``asked`` and ``done``, events of those whose outputs stay; ``jobs``
    and ``failed``, jobs that ended well and failed attempts, of all.
    """

    campaign = models.CharField(max_length=100)
    kind = models.CharField(max_length=100)
    number = models.BigIntegerField()

    class Meta:
        db_table = "campaign_counts"
        indexes = (models.Index(fields=("campaign",), name="idx_campaign_counts"),)

    def __str__(self) -> str:
        return f"{self.campaign} {self.kind}: {self.number:+}"
