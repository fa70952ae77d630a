"""Health of schedds, its history, and trouble that is not theirs (ADR 0091)."""

from __future__ import annotations

from django.db import models


class Health(models.TextChoices):
    """What is found of a schedd by looking at it, best first (``sites_app.health``). The last two get no new DAG."""

    HEALTHY = "healthy", "Healthy"
    BUSY = "busy", "Busy"
    DEGRADED = "degraded", "Degraded"
    UNREACHABLE = "unreachable", "Unreachable"


BAD_HEALTH = (Health.DEGRADED, Health.UNREACHABLE)


class HealthChange(models.Model):
    """A schedd's health has changed. Written once, never changed."""

    id = models.BigAutoField(primary_key=True)
    schedd = models.ForeignKey("sites_app.Schedd", on_delete=models.CASCADE, related_name="health_changes")
    at = models.DateTimeField()
    old = models.CharField(max_length=20, choices=Health.choices)
    new = models.CharField(max_length=20, choices=Health.choices)
    reason = models.TextField(blank=True)
    signals = models.JSONField(default=dict, blank=True, help_text="of the look that decided")

    class Meta:
        db_table = "schedd_health_changes"
        ordering = ("-id",)
        indexes = (models.Index(fields=("schedd", "-id"), name="idx_health_changes_schedd"),)

    def __str__(self) -> str:
        return f"{self.schedd_id}: {self.old} -> {self.new}"


class SystemicAlert(models.Model):
    """More goes wrong at once than can be the fault of what it goes wrong at (``sites_app.guard``); at most one goes on."""

    id = models.BigAutoField(primary_key=True)
    holds = models.BooleanField(help_text="nothing new is submitted while it lasts; otherwise nothing is done by itself")
    reason = models.TextField()
    began_at = models.DateTimeField()
    calm_since = models.DateTimeField(null=True, blank=True, help_text="it is over when this has lasted for the window")
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "systemic_alerts"
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("ended_at",), nulls_distinct=False, name="one_systemic_alert_goes_on"),)

    def __str__(self) -> str:
        return f"{self.began_at:%Y-%m-%d %H:%M} {self.reason[:60]}"
