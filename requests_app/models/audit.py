"""Append-only records: transitions, events, audit entries. Never updated, never deleted by WMS2."""

from __future__ import annotations

from django.db import models
from django.db.models.expressions import RawSQL


class RequestTransition(models.Model):
    """One status change with who, why, and the guard's evidence."""

    request = models.ForeignKey("requests_app.Request", on_delete=models.CASCADE, related_name="transitions")
    from_status = models.CharField(max_length=50, blank=True)
    to_status = models.CharField(max_length=50)
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=100)
    reason = models.TextField()
    evidence = models.JSONField(default=dict, blank=True)

    class Meta:
        db_table = "request_transitions"
        ordering = ("id",)
        indexes = (models.Index(fields=("request", "id"), name="request_transition_order"),)

    def __str__(self) -> str:
        return f"{self.from_status or '-'} -> {self.to_status}"


class Event(models.Model):
    """The feed. Ids commit out of order: a reader stops at rows whose ``xid`` is not below its snapshot's oldest transaction."""

    id = models.BigAutoField(primary_key=True)
    xid = models.BigIntegerField(db_default=RawSQL("(pg_current_xact_id()::text)::bigint", ()), editable=False)
    request = models.ForeignKey("requests_app.Request", on_delete=models.CASCADE, null=True, blank=True, related_name="events")
    kind = models.CharField(max_length=60)
    data = models.JSONField(default=dict, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "events"
        ordering = ("id",)
        indexes = (models.Index(fields=("request", "id"), name="event_by_request"),)

    def __str__(self) -> str:
        return f"{self.id} {self.kind}"


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
        indexes = (models.Index(fields=("target_type", "target", "id"), name="audit_by_target"),)

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"
