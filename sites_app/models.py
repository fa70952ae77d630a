"""Rows of sites_app: sites, their storage and bans; pools and their schedds. Knows nothing of requests or DAGs.

Spec 3.1.5, error-handling 6 (bans); docs/design/control.md, Admission (pools, schedds); ADR 0026 (checks, health).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.db import models
from django.db.models import F, Q, QuerySet

from wms2.runtime.json_columns import records


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
    jobs_done = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="processing and merge jobs of accounted work units of rounds whose DAGs are in a queue"
    )
    jobs_failed = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="failed attempts of rounds whose DAGs are in a queue"
    )
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
    spreads = models.BooleanField(
        null=True,
        blank=True,
        help_text="whether its negotiator spreads jobs of one moment over sites, by the last canary",
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "pools"
        ordering = ("name",)
        constraints = (models.CheckConstraint(condition=Q(state__in=PoolState.values), name="pool_state_known"),)

    def __str__(self) -> str:
        return self.name


class Health(models.TextChoices):
    """What is found of a schedd by looking at it, best first (``sites_app.health``). The last two get no new DAG."""

    HEALTHY = "healthy", "Healthy"
    BUSY = "busy", "Busy"
    DEGRADED = "degraded", "Degraded"
    UNREACHABLE = "unreachable", "Unreachable"


BAD_HEALTH = (Health.DEGRADED, Health.UNREACHABLE)


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


#: What is taken for what is missing, or has a value of another type.
_STRAY = {"dag_id": "", "request_name": "", "dagmans": 0, "jobs": 0, "why": "", "since": "", "looks": 0}


def strays_of(stored: object) -> list[dict[str, Any]]:
    """The column ``Schedd.orphans``, in this release's form."""
    return [
        stray | {name: usual for name, usual in _STRAY.items() if not isinstance(stray.get(name), type(usual))}
        for stray in records(stored)
    ]


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
    owner = models.CharField(
        max_length=255, blank=True, default="", db_default="", help_text="whose our jobs are there; others' are never ours"
    )
    dagmans_running = models.PositiveIntegerField(default=0)
    dagmans_others = models.PositiveIntegerField(default=0, db_default=0, help_text="DAGMans that run and are not ours")
    owner_dagmans = models.PositiveIntegerField(
        null=True, blank=True, help_text="DAGMans of one owner that it runs at most, as it says itself"
    )
    duty_cycle = models.FloatField(null=True, blank=True, help_text="0 to 1; near 1 it cannot keep up")
    health = models.CharField(max_length=20, choices=Health.choices, default=Health.HEALTHY, db_default=Health.HEALTHY)
    health_reason = models.TextField(blank=True, default="", db_default="")
    health_since = models.DateTimeField(null=True, blank=True)
    health_memory = models.JSONField(default=dict, db_default={}, blank=True, help_text="what the next check rests on")
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
        """Why no DAG may be given to it now, apart from its state and room; empty when one may."""
        if self.pool.state != PoolState.ENABLED:
            return f"pool {self.pool_id} is {self.pool.get_state_display().lower()}"
        if self.unreachable_since is not None:
            return f"does not answer since {self.unreachable_since:%H:%M:%S} UTC"
        return f"{self.health}: {self.health_reason}" if self.health in BAD_HEALTH else ""

    @property
    def orphans_reported(self) -> list[dict[str, Any]]:
        """Orphans that were there at two looks: what a DAG leaves for a moment when it ends is not counted."""
        return [each for each in strays_of(self.orphans) if each["looks"] > 1]


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
        constraints = (models.CheckConstraint(condition=~Q(old_birthdate=F("new_birthdate")), name="queue_change_is_one"),)
        indexes = (models.Index(fields=("schedd", "seen_at"), name="idx_queue_changes_schedd"),)

    def __str__(self) -> str:
        return f"{self.schedd_id}: {self.old_birthdate} -> {self.new_birthdate}"


class HealthChange(models.Model):
    """A schedd's health has changed. Written once, never changed."""

    id = models.BigAutoField(primary_key=True)
    schedd = models.ForeignKey(Schedd, on_delete=models.CASCADE, related_name="health_changes")
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
    """More goes wrong at once than can be its own fault (``sites_app.guard``); at most one a pool goes on."""

    id = models.BigAutoField(primary_key=True)
    pool = models.CharField(max_length=100, blank=True, default="", db_default="", help_text="concerned; empty: all")
    holds = models.BooleanField(help_text="nothing new is submitted there while it lasts; otherwise nothing is done by itself")
    reason = models.TextField()
    began_at = models.DateTimeField()
    calm_since = models.DateTimeField(null=True, blank=True, help_text="it is over when this has lasted for the window")
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "systemic_alerts"
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=("pool", "ended_at"), nulls_distinct=False, name="one_systemic_alert_a_pool"),
        )

    def __str__(self) -> str:
        return f"{self.began_at:%Y-%m-%d %H:%M} {self.reason[:60]}"


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
