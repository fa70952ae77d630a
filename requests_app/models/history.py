"""Append-only records of requests: transitions, which stay, and events, which are kept for a time (``lifecycle.retention``)."""

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
        indexes = (
            models.Index(fields=("request", "id"), name="event_by_request"),
            models.Index(fields=("at",), name="idx_events_at"),
        )

    def __str__(self) -> str:
        return f"{self.id} {self.kind}"
