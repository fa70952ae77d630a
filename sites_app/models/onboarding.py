"""Checks of a schedd before it may be enabled, and what the pools' collectors say of sites (ADR 0090)."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from sites_app.models.pool import Pool
from sites_app.models.schedd import Schedd
from sites_app.models.site import Site


class OnboardingState(models.TextChoices):
    """CHECKING -> CANARY -> PASSED | FAILED; each check may fail it."""

    CHECKING = "checking", "Checking"
    CANARY = "canary", "Canary DAG"
    PASSED = "passed", "Passed"
    FAILED = "failed", "Failed"


class Onboarding(models.Model):
    """One time that the checks of a schedd were asked for. Its canary DAG carries this id as ``WMS2_DagID``."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    schedd = models.ForeignKey(Schedd, on_delete=models.CASCADE, related_name="onboardings")
    state = models.CharField(max_length=20, choices=OnboardingState.choices, default=OnboardingState.CHECKING)
    checks = models.JSONField(default=list, blank=True, help_text="each check with its result, time and reason")
    directory = models.TextField(blank=True, help_text="of the canary; kept when it failed")
    intent_at = models.DateTimeField(
        null=True, blank=True, help_text="the canary was or is being submitted; never again after this"
    )
    cluster = models.CharField(max_length=50, blank=True)
    missing_since = models.DateTimeField(null=True, blank=True, help_text="the schedd answers, and does not know the canary")
    actor = models.CharField(max_length=100)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "onboardings"
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=Q(state__in=OnboardingState.values), name="onboarding_state_known"),
            models.UniqueConstraint(fields=("schedd",), condition=Q(ended_at=None), name="one_live_onboarding"),
        )

    def __str__(self) -> str:
        return f"checks of {self.schedd}"


class PoolSite(models.Model):
    """A site's slots in one pool, by its collector, and our own node jobs there, over the pool's schedds."""

    id = models.BigAutoField(primary_key=True)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="sites")
    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="pools")
    total_slots = models.PositiveIntegerField(default=0)
    running_slots = models.PositiveIntegerField(default=0)
    jobs_idle = models.PositiveIntegerField(default=0, db_default=0)
    jobs_running = models.PositiveIntegerField(default=0, db_default=0)
    jobs_held = models.PositiveIntegerField(default=0, db_default=0)
    seen_at = models.DateTimeField(help_text="when the collector answered last")

    class Meta:
        db_table = "pool_sites"
        ordering = ("pool_id", "site_id")
        constraints = (models.UniqueConstraint(fields=("pool", "site"), name="pool_site_once"),)

    def __str__(self) -> str:
        return f"{self.site_id} in {self.pool_id}"
