"""Control rows: leases, limits that operators change, and whose database this is (docs/design/model.md, Rows)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

#: The right to run the life cycle's cycle.
LEADER_LEASE = "lifecycle"


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
        return f"{self.name}: {self.owner or 'nobody'} (epoch {self.epoch})"


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
    """A whole cycle that somebody asked for; asked again before it has begun, it is the same one. It ends with what it found."""

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
