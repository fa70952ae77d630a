"""Control rows: leases, evaluations, limits, the service's level, dead letters, whose database it is (docs/design/model.md)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from requests_app.admission.ordering import GroupKind
from wms2.runtime.json_columns import mapping, number
from wms2.runtime.levels import CLOSES_AT, EASED, Level
from wms2.web.formatting import exact

#: The right to run the life cycle's cycle.
LEADER_LEASE = "lifecycle"
SERVICE_LEVEL = "level"
#: What is measured of the service.
SIGNALS = ("cycle", "evaluations", "effects", "database", "broker", "schedds")
_KINDS = tuple((kind.value, kind.value.capitalize()) for kind in GroupKind)


class Lease(models.Model):
    """A named right to act, held for a while. ``epoch`` rises at each change of owner and fences the former one's writes.

    ``owner`` is the node that keeps it; ``process`` the one that acts at this moment, in the database session ``backend_pid``.
    """

    name = models.CharField(max_length=100, primary_key=True)
    owner = models.CharField(max_length=200, blank=True)
    process = models.CharField(max_length=200, blank=True)
    backend_pid = models.IntegerField(null=True, blank=True)
    backend_started_at = models.DateTimeField(null=True, blank=True)
    epoch = models.BigIntegerField(default=0)
    acquired_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    changes = models.JSONField(default=list, blank=True, help_text="times of the last changes of owner, to see flapping")
    data = models.JSONField(default=dict, blank=True, help_text="what the holder last did, e.g. the last cycle")

    class Meta:
        db_table = "leases"

    def __str__(self) -> str:
        return f"{self.name}: {self.owner or 'no process'} (epoch {self.epoch})" if self.epoch else self.name


class Limit(models.Model):
    """An operator's change of a setting of ``wms2.conf`` at run time. The frozen default holds where no row stands."""

    name = models.CharField(max_length=100, primary_key=True)
    value = models.JSONField()
    reason = models.TextField()
    actor = models.CharField(max_length=100)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "limits"
        ordering = ("name",)

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


class Reconciliation(models.Model):
    """A whole cycle that was asked for; asked again before it has begun, it is the same one. It ends with what it found."""

    asked_at = models.DateTimeField(auto_now_add=True)
    asked_by = models.CharField(max_length=100)
    reason = models.TextField()
    asked = models.PositiveIntegerField(default=1, help_text="how often it was asked for")
    begun_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    found = models.JSONField(default=dict, blank=True)

    class Meta:
        db_table = "reconciliations"
        ordering = ("id",)
        indexes = (models.Index(fields=("id",), name="idx_reconciliations_open", condition=Q(ended_at__isnull=True)),)

    def __str__(self) -> str:
        return f"{self.id}: {self.state}"

    @property
    def state(self) -> str:
        """waiting, running or ended."""
        return "ended" if self.ended_at else "running" if self.begun_at else "waiting"


class Installation(models.Model):
    """Whose database this is. One row; a process with another instance id or environment refuses to start."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    instance = models.CharField(max_length=63)
    environment = models.CharField(max_length=20)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "installation"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="installation_is_one_row"),)

    def __str__(self) -> str:
        return f"{self.instance} ({self.environment})"


class ServiceLevel(models.Model):
    """The level as the leader's last cycle judged it, the operators' switch, and the trouble of the leader's own host."""

    name = models.CharField(max_length=40, primary_key=True, default=SERVICE_LEVEL)
    level = models.CharField(max_length=10, choices=Level, default=Level.NORMAL)
    reason = models.TextField(blank=True, help_text="what was too slow when the level changed")
    since = models.DateTimeField(null=True, blank=True)
    looks = models.SmallIntegerField(
        default=0, help_text="cycles in a row that spoke for more (or, negative, for less) than this"
    )
    signals = models.JSONField(default=dict, blank=True, help_text="share of its limit, by signal, at the last cycle")
    stopped_by = models.CharField(max_length=100, blank=True, help_text="who has switched new work off; empty: it may start")
    stopped_reason = models.TextField(blank=True)
    stopped_at = models.DateTimeField(null=True, blank=True)
    trouble = models.SmallIntegerField(default=0, help_text="of the leader's own host, 0 to 8; each is a quarter more patience")
    trouble_reason = models.TextField(blank=True)
    updated_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "service_levels"
        constraints = (
            models.CheckConstraint(condition=Q(name=SERVICE_LEVEL), name="service_level_is_one_row"),
            models.CheckConstraint(condition=Q(level__in=Level.values), name="service_level_known"),
            models.CheckConstraint(condition=Q(trouble__gte=0, trouble__lte=8), name="service_level_trouble_bounds"),
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.level}{', new work switched off' if self.stopped_by else ''}"

    @property
    def known(self) -> Level:
        """Its level; of one that only a later release knows, the middle one."""
        return Level(self.level) if self.level in Level.values else Level.STRAINED

    @property
    def pressures(self) -> dict[str, float]:
        """Each signal, 0 before it was measured."""
        return {name: number(mapping(self.signals).get(name)) for name in SIGNALS}

    @property
    def no_new_work(self) -> str:
        """Why nothing new starts; empty when it may. All that is queued says it: no number that changes with each cycle."""
        if self.stopped_by:
            return f"new work is switched off by {self.stopped_by}: {self.stopped_reason}"
        closing = " and ".join(name for name, value in self.pressures.items() if value >= CLOSES_AT * EASED)
        closed = f"the service is overloaded and closed for new work: {closing or 'all signals ease'}"
        return closed if self.level == Level.CLOSED else ""


class EvaluationLease(models.Model):
    """The right to evaluate one request, and when it is due again.

    ``epoch`` rises each time the lease is taken and fences the writes of its former holder. While it is held, ``due_at`` is
    the moment at which it expires: the request of a process that died is due then. None: nothing but a wake makes it due.
    """

    request = models.OneToOneField("requests_app.Request", on_delete=models.CASCADE, primary_key=True, related_name="lease")
    due_at = models.DateTimeField(null=True, blank=True)
    sweep = models.BooleanField(
        default=False, help_text="due only because it was not looked at for long; nothing should be found"
    )
    found = models.TextField(blank=True, default="", help_text="what a sweep did that no wake has explained yet")
    owner = models.CharField(max_length=200, blank=True)
    epoch = models.BigIntegerField(default=0)
    expires_at = models.DateTimeField(null=True, blank=True)
    evaluated_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "evaluation_leases"
        indexes = (models.Index(fields=("due_at",), name="idx_evaluations_due", condition=Q(due_at__isnull=False)),)

    def __str__(self) -> str:
        due = f"{exact(self.due_at)} at the latest" if self.due_at else "when something wakes it"
        return f"{self.request_id}: looked at again {due}"


class DeadLetterKind(models.TextChoices):
    """What it is; by this the list says what to do, and its operations call those of the owner."""

    EFFECT = "effect", "Registration"
    HARVEST = "harvest", "DQM harvesting"
    LEFTOVER = "leftover", "Removal of files"
    STORAGE = "storage", "Look at a storage"
    COMPARISON = "comparison", "Comparison with DBS and Rucio"
    PACK = "pack", "Packing of a DAG's directory"
    REQMGR2 = "reqmgr2", "Request in ReqMgr2"
    TASK = "task", "Task of the schedule"


class DeadLetter(models.Model):
    """One of them. ``row`` is the key of the owner's row; of a request, save tasks of the schedule, the census and strangers."""

    id = models.CharField(max_length=300, primary_key=True)
    kind = models.CharField(max_length=20, choices=DeadLetterKind.choices)
    row = models.CharField(max_length=250)
    request = models.ForeignKey(
        "requests_app.Request", to_field="request_name", db_column="request_name", on_delete=models.DO_NOTHING, null=True,
        related_name="+",
    )  # fmt: skip
    what = models.TextField()
    attempts = models.IntegerField()
    since = models.DateTimeField()
    last_error = models.TextField()

    class Meta:
        db_table = "dead_letters"
        managed = False
        ordering = ("since",)

    def __str__(self) -> str:
        return self.what


class AdmissionLimit(models.Model):
    """Limits of a band of priorities, a campaign or a requester; without a name: of all that have none of their own."""

    kind = models.CharField(max_length=10, choices=_KINDS)
    name = models.CharField(max_length=100, blank=True)
    least_priority = models.IntegerField(null=True, blank=True, help_text="of a band: it goes up to the next higher band's")
    max_dags = models.PositiveIntegerField(null=True, blank=True, help_text="DAGs live at once; empty: any number")
    rate_per_hour = models.FloatField(null=True, blank=True, help_text="starts an hour; empty: any number")
    burst = models.PositiveIntegerField(default=1, help_text="starts that may be made at once after a quiet time")
    hard = models.BooleanField(default=False, db_default=False, help_text="holds also while slots are free; else these are lent")
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=100, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "admission_limits"
        ordering = ("kind", "name")
        constraints = (
            models.UniqueConstraint(fields=("kind", "name"), name="admission_limit_once"),
            models.CheckConstraint(condition=Q(kind__in=[kind.value for kind in GroupKind]), name="admission_limit_kind_known"),
            models.CheckConstraint(
                condition=(Q(rate_per_hour__isnull=True) | Q(rate_per_hour__gt=0)) & Q(burst__gte=1), name="admission_limit_fills"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else f"every other {self.kind}"


class AdmissionBucket(models.Model):
    """A bucket of starts that is not full: it is when ``full_at`` has passed, by the database's clock. No row: it is full."""

    kind = models.CharField(max_length=10, choices=_KINDS)
    name = models.CharField(max_length=100)
    full_at = models.DateTimeField()

    class Meta:
        db_table = "admission_buckets"
        constraints = (models.UniqueConstraint(fields=("kind", "name"), name="admission_bucket_once"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: full at {self.full_at:%Y-%m-%d %H:%M:%S} UTC"


class AdmissionState(models.Model):
    """One row. ``stopped``: why none started at the last pass; ``flooded_since``: too many jobs wait; ``passed_over``: how many
    of the queue's first could not be placed; ``again_at``: when the next pass is made although nothing changes.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    stopped = models.TextField(blank=True)
    flooded_since = models.DateTimeField(null=True, blank=True)
    passed_over = models.PositiveIntegerField(default=0)
    again_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "admission_state"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="admission_state_is_one_row"),)

    def __str__(self) -> str:
        return f"no request starts, for {self.stopped}" if self.stopped else "open"
