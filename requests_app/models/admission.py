"""What operators set for admission, and what it has to remember (ADR 0094)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from requests_app.admission.ordering import GroupKind

_KINDS = tuple((kind.value, kind.value.capitalize()) for kind in GroupKind)


class AdmissionLimit(models.Model):
    """Limits of a band of priorities, a campaign or a requester; without a name: of all that have none of their own."""

    kind = models.CharField(max_length=10, choices=_KINDS)
    name = models.CharField(max_length=100, blank=True)
    least_priority = models.IntegerField(null=True, blank=True, help_text="of a band: it goes up to the next higher band's")
    max_dags = models.PositiveIntegerField(null=True, blank=True, help_text="DAGs live at once; empty: any number")
    rate_per_hour = models.FloatField(null=True, blank=True, help_text="starts an hour; empty: any number")
    burst = models.PositiveIntegerField(default=1, help_text="starts that may be made at once after a quiet time")
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
    """One row. ``stopped``: why nobody started at the last pass; ``flooded_since``: too many jobs wait; ``passed_over``: how many
    of the queue's first could not be placed.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    stopped = models.TextField(blank=True)
    flooded_since = models.DateTimeField(null=True, blank=True)
    passed_over = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "admission_state"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="admission_state_is_one_row"),)

    def __str__(self) -> str:
        return f"nobody starts, for {self.stopped}" if self.stopped else "open"
