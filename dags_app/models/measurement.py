"""What rounds measured of each step, and what was decided from it (docs/adr/0009). Jobs are no rows, their sums are."""

from __future__ import annotations

from django.db import models


class StepMeasurement(models.Model):
    """One step over those jobs of a round that ran it alike; as large for ten jobs as for a million.

    ``histograms`` is quantity -> bin -> jobs, in bins of 2 % (``dags_app.histogram``), so that rows can be added up:
    rss_mb, slot_rss_mb, cgroup_peak_mb, seconds_per_event, job_seconds, cpu_efficiency.
    """

    id = models.BigAutoField(primary_key=True)
    round = models.ForeignKey("requests_app.Round", on_delete=models.CASCADE, related_name="measurements")
    step = models.CharField(max_length=200)
    processes = models.PositiveIntegerField(help_text="cmsRun side by side in a job")
    threads = models.PositiveIntegerField(help_text="of each process")
    jobs = models.BigIntegerField()
    events_read = models.BigIntegerField(default=0)
    events_written = models.BigIntegerField(default=0)
    lumis_read = models.BigIntegerField(default=0, help_text="lumis of what the jobs worked on")
    files_read = models.BigIntegerField(default=0, help_text="files of the request's input, by all jobs")
    wall_seconds = models.FloatField(default=0, help_text="of all jobs")
    cpu_seconds = models.FloatField(default=0, help_text="of all jobs")
    bytes_written = models.JSONField(default=dict, blank=True, help_text="output module -> bytes of all jobs")
    histograms = models.JSONField(default=dict, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "step_measurements"
        ordering = ("round", "step", "processes", "threads")
        constraints = (
            models.UniqueConstraint(fields=("round", "step", "processes", "threads"), name="step_measurement_once_per_round"),
        )

    def __str__(self) -> str:
        return f"{self.step}, {self.processes} x {self.threads} threads: {self.jobs} jobs"


class SizingDecision(models.Model):
    """One number that a DAG was planned with or a rescue submitted with, and why (``planning.measured.Decision``)."""

    id = models.BigAutoField(primary_key=True)
    dag = models.ForeignKey("dags_app.DAG", on_delete=models.CASCADE, related_name="decisions")
    task = models.PositiveIntegerField(default=1)
    step = models.CharField(max_length=200, blank=True)
    what = models.CharField(max_length=50)
    before = models.FloatField(null=True, blank=True)
    measured = models.FloatField(null=True, blank=True)
    chosen = models.FloatField()
    why = models.TextField()
    bound = models.CharField(max_length=200, blank=True, help_text="what kept it from what was measured; empty: nothing")
    pinned = models.BooleanField(default=False, help_text="an operator had fixed it")
    profile_version = models.PositiveIntegerField(default=0, help_text="of the step profile that came with it")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "sizing_decisions"
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("dag", "task", "step", "what"), name="sizing_decision_once_per_dag"),)

    def __str__(self) -> str:
        return f"{self.step or f'task {self.task}'}: {self.what} {self.chosen:g}"
