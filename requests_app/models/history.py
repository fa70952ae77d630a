"""What happened to requests: transitions, which stay; events, kept for a time (``lifecycle.retention``); progress (ADR 0029)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from wms2.web.formatting import exact


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
            models.Index(fields=("kind", "position"), name="idx_events_kind"),
            models.Index(fields=("id",), name="idx_events_unplaced", condition=Q(position__isnull=True)),
        )

    def __str__(self) -> str:
        return f"{self.id} {self.kind}"


class EventFeed(models.Model):
    """How far the feed goes, one row: the process that has it locked gives places (``requests_app.feed.publish``)."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    last = models.BigIntegerField(default=0, help_text="the newest place given")
    removed = models.BigIntegerField(default=0, help_text="of places up to this some events are removed")

    class Meta:
        db_table = "event_feed"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="event_feed_is_one_row"),)

    def __str__(self) -> str:
        return f"{self.removed} to {self.last}"


class Counters(models.Model):
    """Work units of all rounds, of each as its newest DAG has them, and jobs in the queue."""

    at = models.DateTimeField(help_text="begin of the window in which they were counted")
    units = models.IntegerField(help_text="work units planned")
    units_done = models.IntegerField()
    units_failed = models.IntegerField(help_text="by DAGMan; a rescue does them again")
    jobs_idle = models.IntegerField()
    jobs_running = models.IntegerField()
    jobs_held = models.IntegerField()

    class Meta:
        abstract = True


class Progress(Counters):
    """A request's summary, which stays."""

    request = models.OneToOneField("requests_app.Request", on_delete=models.CASCADE, primary_key=True, related_name="progress")
    first_at = models.DateTimeField()
    peak_running = models.IntegerField(help_text="the most jobs that ran at once")
    job_seconds = models.FloatField(help_text="running jobs times seconds, summed up")

    class Meta:
        db_table = "progress"
        verbose_name, verbose_name_plural = "progress summary", "progress summaries"

    def __str__(self) -> str:
        return f"{self.units_done} of {self.units}"


class ProgressSample(Counters):
    """The counters of one window in which they had changed; later of ten minutes: jobs on average, units as at their end."""

    request = models.ForeignKey("requests_app.Request", on_delete=models.CASCADE, related_name="progress_samples")
    mean = models.BooleanField(default=False, help_text="of ten minutes")

    class Meta:
        db_table = "progress_samples"
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("request", "mean", "at"), name="progress_sample_once"),)
        indexes = (models.Index(fields=("mean", "at"), name="idx_progress_samples_at"),)

    def __str__(self) -> str:
        return f"{exact(self.at)}: {self.units_done} of {self.units}"
