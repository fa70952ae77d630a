"""HTCondor pools: where a collector is asked for schedds and slots (docs/design/control.md, Admission)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class PoolState(models.TextChoices):
    """Whether a pool's collector is asked, and new DAGs may go to its schedds; running ones are watched in every state."""

    ENABLED = "enabled", "Enabled"
    DISABLED = "disabled", "Disabled"


class Pool(models.Model):
    """One pool. Credentials are files of its token directory, never in the row."""

    name = models.CharField(max_length=100, primary_key=True)
    collector = models.CharField(max_length=255, help_text="host:port")
    token_dir = models.TextField(blank=True, help_text="directory of its IDTOKENs; empty: the configured one")
    file_system = models.CharField(
        max_length=100, help_text="the shared file system of its schedds: those of one name see the same DAG directories"
    )
    state = models.CharField(max_length=20, choices=PoolState.choices, default=PoolState.ENABLED)
    answered_at = models.DateTimeField(null=True, blank=True, help_text="its collector, last")
    silent_since = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, db_default="")
    jobs_idle = models.PositiveIntegerField(
        default=0, db_default=0, help_text="of all owners, over its schedds, as they tell the collector"
    )
    jobs_running = models.PositiveIntegerField(default=0, db_default=0)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "pools"
        ordering = ("name",)
        constraints = (models.CheckConstraint(condition=Q(state__in=PoolState.values), name="pool_state_known"),)

    def __str__(self) -> str:
        return self.name
