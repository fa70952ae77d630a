"""Schedds that WMS2 submits to (docs/design/control.md, Admission)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models
from django.db.models import Q, QuerySet

from sites_app.models.health import BAD_HEALTH, Health
from sites_app.models.pool import Pool, PoolState


class ScheddState(models.TextChoices):
    """Whether new DAGs may go to a schedd; running ones are watched in every state."""

    DISCOVERED = "discovered", "Discovered, not yet enabled"
    ENABLED = "enabled", "Enabled"
    DRAINING = "draining", "Draining"
    DISABLED = "disabled", "Disabled"


class _WithPools(models.Manager["Schedd"]):
    """Where a schedd is asked is its pool's to say, and threads that ask it read no row."""

    def get_queryset(self) -> QuerySet[Schedd]:
        """Schedds with their pools."""
        return super().get_queryset().select_related("pool")


class Schedd(models.Model):
    """One schedd of one pool, with its limits and what was last observed of it."""

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="schedds", db_column="pool")
    name = models.CharField(max_length=255)
    state = models.CharField(max_length=20, choices=ScheddState.choices, default=ScheddState.DISCOVERED)
    max_dagman_slots = models.PositiveIntegerField(
        default=500, help_text="DAGMan processes it may run: outer and inner ones together"
    )
    submit_root = models.TextField(help_text="where DAG directories lie, on the schedd's file system")
    version = models.CharField(max_length=100, blank=True)
    job_queue_birthdate = models.BigIntegerField(null=True, blank=True, help_text="a change is evidence that the queue was lost")
    last_answer_at = models.DateTimeField(null=True, blank=True)
    asked_at = models.DateTimeField(null=True, blank=True, help_text="when it was last asked, whether it answered or not")
    unreachable_since = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)
    collector_says = models.CharField(
        max_length=300, blank=True, help_text="while it is silent: what the collector knows of it; kept as evidence"
    )
    orphans = models.JSONField(
        default=list,
        blank=True,
        db_column="strays",
        help_text="jobs of ours in its queue that no live DAG knows, by the DAG they name",
    )
    orphans_asked_at = models.DateTimeField(null=True, blank=True, db_column="strays_asked_at")
    drain_since = models.DateTimeField(null=True, blank=True, help_text="while it drains")
    drain_actor = models.CharField(max_length=150, blank=True, default="", db_default="")
    drain_reason = models.TextField(blank=True, default="", db_default="")
    drain_at_once = models.PositiveIntegerField(
        default=0, db_default=0, help_text="so many of its DAGs are moved at a time while it drains; 0: they run to their end"
    )
    drained_at = models.DateTimeField(null=True, blank=True, help_text="since when the drain has left nothing there")
    unlisted_since = models.DateTimeField(
        null=True, blank=True, help_text="its pool's collector answers and names it no more; nothing is concluded from that"
    )
    onboarded_at = models.DateTimeField(null=True, blank=True, help_text="its checks passed; without, it cannot be enabled")
    onboarding = models.TextField(blank=True, db_default="", help_text="why its checks have not passed")
    dagmans_running = models.PositiveIntegerField(default=0)
    dagmans_others = models.PositiveIntegerField(default=0, db_default=0, help_text="DAGMans that run and are not ours")
    owner_dagmans = models.PositiveIntegerField(
        null=True, blank=True, help_text="DAGMans of one owner that it runs at most, as it says itself"
    )
    duty_cycle = models.FloatField(null=True, blank=True, help_text="0 to 1; near 1 it cannot keep up")
    health = models.CharField(max_length=20, choices=Health.choices, default=Health.HEALTHY, db_default=Health.HEALTHY)
    health_reason = models.TextField(blank=True, default="", db_default="")
    health_since = models.DateTimeField(null=True, blank=True)
    health_memory = models.JSONField(
        default=dict, db_default={}, blank=True, help_text="what the next look rests on (sites_app.health.Standing)"
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = _WithPools()

    class Meta:
        db_table = "schedds"
        base_manager_name = "objects"
        ordering = ("pool_id", "name")
        constraints = (
            models.UniqueConstraint(fields=("pool", "name"), name="schedd_once_per_pool"),
            models.CheckConstraint(condition=Q(state__in=ScheddState.values), name="schedd_state_known"),
            models.CheckConstraint(condition=Q(health__in=Health.values), name="schedd_health_known"),
        )

    def __str__(self) -> str:
        return self.name

    def refresh_from_db(
        self, using: str | None = None, fields: Iterable[str] | None = None, from_queryset: QuerySet[Schedd] | None = None
    ) -> None:
        """As ever; of some columns alone, also those that were not read, without the pool, which cannot be read with them."""
        if fields is not None and from_queryset is None:
            from_queryset = Schedd.objects.select_related(None)
        super().refresh_from_db(using=using, fields=fields, from_queryset=from_queryset)

    @property
    def directories(self) -> tuple[str, str]:
        """Schedds of which this is the same see the same DAG directories."""
        return self.pool.file_system, self.submit_root

    @property
    def dagmans_most(self) -> int:
        """DAGMans that we may have there: by its limits, and beside what others run."""
        free_of_others = self.max_dagman_slots - self.dagmans_others
        return free_of_others if self.owner_dagmans is None else min(free_of_others, self.owner_dagmans)

    @property
    def unusable(self) -> str:
        """Why no DAG may be given to it now, whatever its state and room; empty when one may."""
        if self.pool.state != PoolState.ENABLED:
            return f"pool {self.pool_id} is {self.pool.get_state_display().lower()}"
        if self.unreachable_since is not None:
            return f"does not answer since {self.unreachable_since:%H:%M:%S} UTC"
        return f"{self.health}: {self.health_reason}" if self.health in BAD_HEALTH else ""

    @property
    def orphans_told(self) -> list[dict[str, Any]]:
        """Orphans that were there at two looks: what a DAG leaves for a moment when it ends is none."""
        return [each for each in self.orphans if each["looks"] > 1]


class QueueChange(models.Model):
    """A schedd came back with another job queue: evidence that the former one was lost. Written once, never changed."""

    id = models.BigAutoField(primary_key=True)
    schedd = models.ForeignKey(Schedd, on_delete=models.PROTECT, related_name="queue_changes")
    old_birthdate = models.BigIntegerField(help_text="JobQueueBirthdate before, Unix seconds")
    new_birthdate = models.BigIntegerField(help_text="JobQueueBirthdate since, Unix seconds")
    old_answered_at = models.DateTimeField(null=True, blank=True, help_text="last answer with the former queue")
    dagmans_before = models.PositiveIntegerField(default=0, help_text="DAGMan jobs that ran in the former queue then")
    seen_at = models.DateTimeField(help_text="first answer with the other queue")

    class Meta:
        db_table = "schedd_queue_changes"
        ordering = ("-id",)
        constraints = (models.CheckConstraint(condition=~Q(old_birthdate=models.F("new_birthdate")), name="queue_change_is_one"),)
        indexes = (models.Index(fields=("schedd", "seen_at"), name="idx_queue_changes_schedd"),)

    def __str__(self) -> str:
        return f"{self.schedd_id}: {self.old_birthdate} -> {self.new_birthdate}"
