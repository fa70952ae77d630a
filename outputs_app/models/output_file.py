"""Merged output files, as the units' manifests declared them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class Validity(models.TextChoices):
    """Whether users may read the file."""

    VALID = "valid", "Valid"
    INVALID = "invalid", "Invalid"


class OutputFile(models.Model):
    """One merged file: where it lies, what is in it, and which rule protects it."""

    id = models.BigAutoField(primary_key=True)
    lfn = models.CharField(max_length=700, unique=True)
    dataset = models.ForeignKey("outputs_app.OutputDataset", on_delete=models.PROTECT, related_name="files")
    block = models.ForeignKey("outputs_app.ProcessingBlock", on_delete=models.PROTECT, related_name="files")
    unit = models.ForeignKey("dags_app.WorkUnit", on_delete=models.PROTECT, related_name="output_files")
    rse = models.CharField(max_length=100)
    size_bytes = models.BigIntegerField()
    adler32 = models.CharField(max_length=8)
    events = models.BigIntegerField()
    lumis = models.JSONField(help_text="{run: [[lumi, events or null], ...]}")
    parents = models.JSONField(default=list, blank=True)
    rule_id = models.CharField(max_length=100, blank=True)
    validity = models.CharField(max_length=10, choices=Validity.choices, default=Validity.VALID)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "output_files"
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(validity__in=Validity.values), name="output_file_validity_known"),
            models.CheckConstraint(condition=Q(size_bytes__gt=0, events__gte=0), name="output_file_counts"),
        )
        indexes = (
            models.Index(fields=("block",), name="output_file_by_block"),
            models.Index(fields=("unit",), name="output_file_by_unit"),
        )

    def __str__(self) -> str:
        return self.lfn

    @property
    def is_valid(self) -> bool:
        """Whether users may read it."""
        return self.validity == Validity.VALID
