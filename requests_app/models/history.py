"""Append-only records of requests: transitions, which stay, and events, which are kept for a time (``lifecycle.retention``)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


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
    """The feed, which ``requests_app.feed`` and triggers of the database write. An id is given before the row is committed, a
    place (``position``) after it: readers go by places."""

    id = models.BigAutoField(primary_key=True)
    position = models.BigIntegerField(
        null=True, unique=True, editable=False, help_text="its place in the feed: the id that readers see"
    )
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
            models.Index(fields=("id",), name="idx_events_unplaced", condition=Q(position__isnull=True)),
        )

    def __str__(self) -> str:
        return f"{self.id} {self.kind}"


class EventFeed(models.Model):
    """How far the feed goes, one row: whoever has it locked gives places (``requests_app.feed.publish``)."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    last = models.BigIntegerField(default=0, help_text="the newest place given")
    removed = models.BigIntegerField(default=0, help_text="of places up to this some events are removed")

    class Meta:
        db_table = "event_feed"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="event_feed_is_one_row"),)

    def __str__(self) -> str:
        return f"{self.removed} to {self.last}"
