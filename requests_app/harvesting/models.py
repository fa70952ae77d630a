"""DQM harvestings of requests that have completed (ADR 0020)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class HarvestState(models.TextChoices):
    """WAITING -> RUNNING -> DONE, or WAITING again, and FAILED after too many attempts; an operator retries or discards."""

    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    DISCARDED = "discarded", "Discarded"


class Harvest(models.Model):
    """One ROOT file of one output dataset for DQM servers. RUNNING while ``job`` has it: done when that job says so."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey(
        "requests_app.Request",
        to_field="request_name",
        db_column="request_name",
        on_delete=models.CASCADE,
        related_name="harvests",
    )
    dataset = models.CharField(max_length=500)
    run = models.BigIntegerField(default=0, help_text="0: all runs together")
    state = models.CharField(max_length=20, choices=HarvestState.choices, default=HarvestState.WAITING)
    job = models.ForeignKey("dags_app.SiteJob", on_delete=models.SET_NULL, null=True, blank=True, related_name="harvests")
    attempts = models.PositiveIntegerField(default=0, help_text="jobs that failed, since an operator last said retry")
    next_try_at = models.DateTimeField()
    uploads = models.JSONField(default=list, blank=True, help_text="name, size, md5 of each file, the server and its answer")
    problem = models.TextField(blank=True, help_text="why it could not be done when that was tried last")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "harvests"
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(condition=Q(state__in=HarvestState.values), name="harvest_state_known"),
            models.UniqueConstraint(fields=("request", "dataset", "run"), name="harvest_once"),
        )
        indexes = (
            models.Index(fields=("state", "next_try_at"), name="harvests_open", condition=~Q(state__in=("done", "discarded"))),
        )

    def __str__(self) -> str:
        return f"{self.dataset}, {f'run {self.run}' if self.run else 'all runs'}"
