"""Jobs at a site that are no nodes of a DAG, and the files that are not needed any more, which such jobs remove (ADR 0010)."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q


class SiteJobPurpose(models.TextChoices):
    """What a site job does; at a site one of each at a time, but for harvesting, where each job has a run of its own."""

    REMOVE = "remove", "Remove files"
    LIST = "list", "Compare files with the storage"
    HARVEST = "harvest", "Harvest DQM files"


class SiteJobState(models.TextChoices):
    """PREPARED -> SUBMITTED -> DONE | FAILED. A row is submitted at most once: what failed is done again by another."""

    PREPARED = "prepared", "Prepared"
    SUBMITTED = "submitted", "Submitted"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"


LIVE_SITE_JOB = (SiteJobState.PREPARED, SiteJobState.SUBMITTED)


class SiteJob(models.Model):
    """One job of ours at a site, in a schedd's queue under its own id as ``WMS2_DagID``."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    site = models.CharField(max_length=100)
    purpose = models.CharField(max_length=20, choices=SiteJobPurpose.choices)
    state = models.CharField(max_length=20, choices=SiteJobState.choices, default=SiteJobState.PREPARED)
    schedd = models.ForeignKey("sites_app.Schedd", on_delete=models.PROTECT, related_name="site_jobs")
    directory = models.TextField(help_text="what it is given, and what it leaves; gone once that was read")
    cluster = models.CharField(max_length=50, blank=True)
    intent_at = models.DateTimeField(null=True, blank=True, help_text="it was or is being submitted; never again after this")
    missing_since = models.DateTimeField(null=True, blank=True, help_text="the schedd answers, and does not know it")
    items = models.PositiveIntegerField(default=0, help_text="what it was given to do")
    result = models.JSONField(default=dict, blank=True, help_text="what it says: host, times, totals")
    problem = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "site_jobs"
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=Q(state__in=SiteJobState.values), name="site_job_state_known"),
            models.CheckConstraint(condition=Q(purpose__in=SiteJobPurpose.values), name="site_job_purpose_known"),
            models.CheckConstraint(
                condition=~Q(state=SiteJobState.SUBMITTED) | Q(intent_at__isnull=False), name="site_job_submitted_by_intent"
            ),
            models.UniqueConstraint(
                fields=("site", "purpose"),
                condition=Q(state__in=LIVE_SITE_JOB) & ~Q(purpose=SiteJobPurpose.HARVEST),
                name="one_live_job_per_site_and_purpose",
            ),
        )
        indexes = (
            models.Index(fields=("created_at",), name="site_jobs_created"),
            models.Index(fields=("cluster",), name="site_jobs_cluster", condition=~Q(cluster="")),
        )

    def __str__(self) -> str:
        return f"{self.purpose} at {self.site}"


class Leftover(models.Model):
    """What a work unit that has ended may have left at one site. ``settled_at``: gone, as far as a job could find it.

    Written when nothing can use the unit's files any more; the row goes when there was nothing, else it stays as evidence.
    """

    id = models.BigAutoField(primary_key=True)
    unit = models.ForeignKey("dags_app.WorkUnit", on_delete=models.CASCADE, related_name="leftovers")
    site = models.CharField(max_length=100)
    bases = models.JSONField(default=list, help_text="directories below which alone anything may be removed")
    journals = models.JSONField(default=list, help_text="LFNs of the directories of journals, which name further files")
    lfns = models.JSONField(default=list, help_text="of files that are known without a journal")
    job = models.ForeignKey(SiteJob, on_delete=models.SET_NULL, null=True, blank=True, related_name="leftovers")
    removed = models.JSONField(default=list, blank=True, help_text="LFNs of the files that were removed")
    removed_files = models.PositiveIntegerField(default=0)
    problem = models.TextField(blank=True, help_text="why something could not be removed when that was tried last")
    tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "leftovers"
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("unit", "site"), name="leftover_once_per_site"),)
        indexes = (
            models.Index(fields=("next_try_at",), name="leftovers_due", condition=Q(settled_at__isnull=True, job__isnull=True)),
            models.Index(fields=("site",), name="leftovers_open", condition=Q(settled_at__isnull=True)),
            models.Index(fields=("job",), name="leftovers_by_job", condition=Q(job__isnull=False)),
        )

    def __str__(self) -> str:
        return f"{self.unit_id} at {self.site}"
