"""Sites, their storage, and bans (spec 3.1.5, error-handling 6)."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q


class SiteStatus(models.TextChoices):
    """Whether new work may go to a site."""

    ENABLED = "enabled", "Enabled"
    DRAINING = "draining", "Draining"
    DISABLED = "disabled", "Disabled"
    MAINTENANCE = "maintenance", "Maintenance"


class Site(models.Model):
    """A CMS processing site by its PSN (``T1_US_FNAL``). Slots come from the collector, names from CRIC."""

    name = models.CharField(max_length=100, primary_key=True)
    status = models.CharField(max_length=50, choices=SiteStatus.choices, default=SiteStatus.ENABLED)
    status_reason = models.TextField(blank=True)
    status_actor = models.CharField(
        max_length=100, blank=True, help_text="who set the status; empty: CRIC's sync, which never undoes an operator's decision"
    )
    total_slots = models.IntegerField(default=0)
    running_slots = models.IntegerField(default=0)
    drain_until = models.DateTimeField(null=True, blank=True)
    config_data = models.JSONField(default=dict, blank=True, help_text="operators' notes about the site")
    cric_seen_at = models.DateTimeField(null=True, blank=True)
    # our own node jobs that run or wait there, over all schedds
    jobs_idle = models.PositiveIntegerField(default=0, db_default=0)
    jobs_running = models.PositiveIntegerField(default=0, db_default=0)
    jobs_held = models.PositiveIntegerField(default=0, db_default=0)
    jobs_counted_at = models.DateTimeField(null=True, blank=True, help_text="the oldest of the answers that they are summed over")
    slots_seen_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "sites"
        ordering = ("name",)
        constraints = (models.CheckConstraint(condition=Q(status__in=SiteStatus.values), name="site_status_known"),)

    def __str__(self) -> str:
        return self.name


class SiteRse(models.Model):
    """CRIC's many-to-many mapping: jobs at ``site`` read from and write to ``rse``."""

    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="rses")
    rse = models.CharField(max_length=100)
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "site_rses"
        verbose_name, verbose_name_plural = "site RSE", "site RSEs"
        constraints = (models.UniqueConstraint(fields=("site", "rse"), name="site_rse_once"),)
        indexes = (models.Index(fields=("rse",), name="site_rse_by_rse"),)

    def __str__(self) -> str:
        return f"{self.site_id} {self.rse}"


class SiteBan(models.Model):
    """No new work of one workflow (or of all, ``workflow`` empty) at a site until it expires or is removed."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    site = models.ForeignKey(Site, on_delete=models.PROTECT, related_name="bans", db_column="site_name")
    workflow = models.ForeignKey(
        "requests_app.Workflow", on_delete=models.CASCADE, null=True, blank=True, related_name="site_bans"
    )
    reason = models.TextField()
    failure_data = models.JSONField(default=dict, blank=True)
    created_by = models.CharField(max_length=100, default="wms2")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True, blank=True)
    removed_by = models.CharField(max_length=100, blank=True)

    class Meta:
        db_table = "site_bans"
        constraints = (
            models.CheckConstraint(condition=Q(removed_at__isnull=True) | ~Q(removed_by=""), name="site_ban_removal_has_actor"),
            models.CheckConstraint(condition=Q(expires_at__gt=F("created_at")), name="site_ban_expires_later"),
        )
        indexes = (
            models.Index(fields=("site", "expires_at"), name="idx_site_bans_active", condition=Q(removed_at__isnull=True)),
            models.Index(
                fields=("workflow",), name="idx_site_bans_workflow", condition=Q(workflow__isnull=False, removed_at__isnull=True)
            ),
        )

    def __str__(self) -> str:
        return f"{self.site_id}: {self.reason[:60]}"
