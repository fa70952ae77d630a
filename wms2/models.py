"""The tables that belong to no app: who did what, which requests have to be looked at, how many rows there are of which kind."""

from __future__ import annotations

from django.db import models


class AuditEntry(models.Model):
    """Every write, refusal, takeover and automatic decision: who, what, why, on what evidence."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=100)
    action = models.CharField(max_length=100)
    target_type = models.CharField(max_length=50, blank=True)
    target = models.CharField(max_length=300, blank=True)
    outcome = models.CharField(max_length=20, default="done", help_text="done or refused")
    reason = models.TextField(blank=True)
    evidence = models.JSONField(default=dict, blank=True)

    class Meta:
        db_table = "audit_entries"
        ordering = ("-id",)
        verbose_name_plural = "audit entries"
        indexes = (
            models.Index(fields=("target_type", "target", "id"), name="audit_by_target"),
            models.Index(fields=("at",), name="idx_audit_at"),
        )

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"


class Wake(models.Model):
    """Something has changed that a request's life cycle has to look at (``wms2.wakes``); gone once that has begun."""

    id = models.BigAutoField(primary_key=True)
    request_id = models.UUIDField()
    why = models.CharField(max_length=60)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "wakes"
        ordering = ("id",)
        indexes = (models.Index(fields=("request_id",), name="idx_wakes_request"),)

    def __str__(self) -> str:
        return f"{self.why}: {self.request_id}"


class RowCount(models.Model):
    """A change of the number of rows of one kind, or the sum of such changes; written by triggers (``wms2.row_counts``)."""

    counted = models.CharField(max_length=50, help_text="the table")
    kind = models.CharField(max_length=100)
    number = models.BigIntegerField()

    class Meta:
        db_table = "row_counts"

    def __str__(self) -> str:
        return f"{self.counted} {self.kind}: {self.number:+}"
