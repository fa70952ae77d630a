"""How far a request is, and how far it was: absolute counters, the latest of which wins (ADR 0096)."""

from __future__ import annotations

from django.db import models


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
        verbose_name_plural = "progress"

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
        return f"{self.at:%F %T}: {self.units_done} of {self.units}"
