"""Input files of a workflow (``model.md`` section 2). Their state is derived from claims and exclusions."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class InputFile(models.Model):
    """One file of the input dataset as the catalogues described it when it was imported.

    ``lumis`` is ``{run: [[first, last], ...]}``; ``rses`` are where a complete replica of its block was.
    """

    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.CASCADE, related_name="input_files")
    lfn = models.CharField(max_length=700)
    block_name = models.CharField(max_length=700)
    size_bytes = models.BigIntegerField()
    events = models.BigIntegerField()
    adler32 = models.CharField(max_length=8, blank=True)
    lumis = models.JSONField(default=dict)
    rses = models.JSONField(default=list)
    parents = models.JSONField(default=list, blank=True)
    excluded_reason = models.TextField(blank=True)
    excluded_at = models.DateTimeField(null=True, blank=True)
    excluded_by = models.CharField(max_length=100, blank=True)

    class Meta:
        db_table = "input_files"
        constraints = (
            models.UniqueConstraint(fields=("workflow", "lfn"), name="input_file_once"),
            models.CheckConstraint(condition=Q(events__gte=0, size_bytes__gte=0), name="input_file_counts_positive"),
            models.CheckConstraint(
                condition=Q(excluded_at__isnull=True, excluded_reason="")
                | (Q(excluded_at__isnull=False) & ~Q(excluded_reason="")),
                name="input_file_exclusion_has_reason",
            ),
        )
        indexes = (models.Index(fields=("workflow",), name="input_files_excluded", condition=Q(excluded_at__isnull=False)),)

    def __str__(self) -> str:
        return self.lfn
