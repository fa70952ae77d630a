"""Pileup datasets as the catalogues described them when they were last read; shared by all requests, read again when too old."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class PileupDataset(models.Model):
    """A pileup dataset. ``reading`` names the set of blocks that counts; others belong to readings that did not end."""

    name = models.CharField(max_length=700, primary_key=True)
    reading = models.UUIDField(null=True, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "pileup_datasets"
        constraints = (
            models.CheckConstraint(
                condition=Q(reading__isnull=True, resolved_at__isnull=True) | Q(reading__isnull=False, resolved_at__isnull=False),
                name="pileup_resolved_has_reading",
            ),
        )

    def __str__(self) -> str:
        return self.name


class PileupBlock(models.Model):
    """One block with its valid files (LFNs, sorted) and the RSEs that hold all of it; sites come from CRIC when it is used."""

    id = models.BigAutoField(primary_key=True)
    dataset = models.ForeignKey(PileupDataset, on_delete=models.CASCADE, related_name="blocks")
    reading = models.UUIDField()
    name = models.CharField(max_length=700)
    events = models.BigIntegerField()
    files = models.JSONField(default=list)
    rses = models.JSONField(default=list)

    class Meta:
        db_table = "pileup_blocks"
        constraints = (
            models.UniqueConstraint(fields=("dataset", "reading", "name"), name="pileup_block_once"),
            models.CheckConstraint(condition=Q(events__gte=0), name="pileup_events_positive"),
        )

    def __str__(self) -> str:
        return self.name
