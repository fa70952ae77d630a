"""Which outputs go to tape, and whose containers WMS2 places on disk: what operators decide, by tier and campaign (ADR 0017)."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q


class Placement(models.Model):
    """One decision. An empty campaign or tier means any; the campaign's own count before the tier's, both before one of them.

    The row for any campaign and any tier is always there.
    """

    campaign = models.CharField(max_length=100, blank=True)
    tier = models.CharField(max_length=50, blank=True)
    tape = models.BooleanField(default=True, help_text="whether its blocks get a tape rule")
    disk_expression = models.CharField(
        max_length=500, blank=True, help_text="RSEs for the container's rule on disk; empty: others place it"
    )
    disk_copies = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    disk_days = models.PositiveIntegerField(default=0, help_text="how long that rule lives; 0: for ever")
    disk_activity = models.CharField(max_length=100, blank=True, help_text="empty: as of the other rules")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "placements"
        ordering = ("campaign", "tier")
        constraints = (
            models.UniqueConstraint(fields=("campaign", "tier"), name="placement_once"),
            models.CheckConstraint(condition=Q(disk_copies__gte=1), name="placement_has_copies"),
        )

    def __str__(self) -> str:
        return f"{self.campaign or 'any campaign'}, {self.tier or 'any tier'}"
