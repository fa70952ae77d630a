"""Input files of a workflow and, for splitting by lumi, its input as lumis; pileup (docs/design/model.md, Rows).

What is done of them is derived from claims and exclusions, never kept here.
"""

from __future__ import annotations

from django.contrib.postgres.fields import BigIntegerRangeField
from django.contrib.postgres.indexes import HashIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Collate
from django.utils import timezone

from dags_app.planning.specs import ExclusionKind


class ExcludedBecause(models.TextChoices):
    """``ExclusionKind`` with words for people."""

    UNWANTED = ExclusionKind.UNWANTED, "Not wanted by the request"
    LATE = ExclusionKind.LATE, "Came too late"
    UNUSABLE = ExclusionKind.UNUSABLE, "Cannot be split as asked"
    LOST = ExclusionKind.LOST, "Could not be read"
    OPERATOR = ExclusionKind.OPERATOR, "Left out by an operator"
    ACCEPTED = ExclusionKind.ACCEPTED, "Accepted by an operator"
    INHERITED = ExclusionKind.INHERITED, "Of the request it was derived from"
    DERIVED = ExclusionKind.DERIVED, "Taken over by a derived request"


#: Order of LFNs as Python, and so the splitters, compare them. The database's own may put "a" before "B".
BY_BYTES = Collate("lfn", "C")


class InputFile(models.Model):
    """One file of the input dataset as the catalogues described it when it was imported.

    ``lumis`` is ``{run: [[first, last], ...]}``; ``rses`` are where it was at ``located_at``. ``parent_rses`` has
    a list of RSEs for each different set of places where its parents were: a job needs one of every list at its site.
    ``wanted_events``: those expected in the lumis that the request wants, where these are not all of the file's.
    ``waiting_since``: planning has found no site for it, ``waiting_reason`` says why. What jobs said of it before
    ``restored_at``, when an operator lifted its exclusion, no longer speaks against it.
    """

    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.CASCADE, related_name="input_files")
    lfn = models.CharField(max_length=700)
    block_name = models.CharField(max_length=700)
    size_bytes = models.BigIntegerField()
    events = models.BigIntegerField()
    wanted_events = models.BigIntegerField(null=True, blank=True)
    adler32 = models.CharField(max_length=8, blank=True)
    lumis = models.JSONField(default=dict)
    odd_lumis = models.JSONField(
        default=list, db_default=[], blank=True, help_text="[run, first, last, events of each]: without events, or with many more"
    )
    rses = models.JSONField(default=list)
    parents = models.JSONField(default=list, blank=True)
    parent_rses = models.JSONField(default=list, blank=True)
    excluded_reason = models.TextField(blank=True)
    excluded_at = models.DateTimeField(null=True, blank=True)
    excluded_by = models.CharField(max_length=100, blank=True)
    excluded_kind = models.CharField(max_length=10, choices=ExcludedBecause.choices, blank=True)
    restored_at = models.DateTimeField(null=True, blank=True)
    located_at = models.DateTimeField(default=timezone.now)
    waiting_since = models.DateTimeField(null=True, blank=True)
    waiting_reason = models.TextField(blank=True)

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
            models.CheckConstraint(
                condition=Q(excluded_at__isnull=True, excluded_kind="")
                | Q(excluded_at__isnull=False, excluded_kind__in=ExcludedBecause.values, waiting_since__isnull=True),
                name="input_file_exclusion_has_kind",
            ),
        )
        indexes = (
            models.Index(fields=("workflow",), name="input_files_excluded", condition=Q(excluded_at__isnull=False)),
            models.Index(fields=("workflow",), name="input_files_waiting", condition=Q(waiting_since__isnull=False)),
            HashIndex(fields=("lfn",), name="input_files_by_lfn"),
        )

    def __str__(self) -> str:
        return self.lfn


class LumiFate(models.TextChoices):
    """What becomes of a lumi that the request wants. The last two: see ``ExclusionKind``."""

    WANTED = "wanted", "Wanted"
    EXCLUDED = "excluded", "Excluded"
    REFUSED = "refused", "Refused"
    INHERITED = "inherited", "Inherited"
    DERIVED = "derived", "Taken over"


class InputLumis(models.Model):
    """Lumis that a request split by lumi wants, each in one row, in however many files it lies.

    EXCLUDED: every file that holds them is excluded. REFUSED: no job may take them, ``reason`` says why. WANTED and EXCLUDED are
    made anew from the files when those change, the others stay for ever (``input_lumis.py``). ``span`` is closed on both ends.
    """

    id = models.BigAutoField(primary_key=True)
    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.CASCADE, related_name="input_lumis")
    run = models.BigIntegerField()
    span = BigIntegerRangeField()
    fate = models.CharField(max_length=10, choices=LumiFate.choices, default=LumiFate.WANTED)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "input_lumis"
        verbose_name_plural = "input lumis"
        constraints = (
            models.CheckConstraint(condition=Q(fate__in=LumiFate.values), name="input_lumis_fate_known"),
            models.CheckConstraint(condition=~Q(span__isempty=True), name="input_lumis_not_empty"),
            models.CheckConstraint(condition=~Q(fate=LumiFate.REFUSED) | ~Q(reason=""), name="input_lumis_refusal_has_reason"),
        )
        indexes = (models.Index(fields=("workflow", "run"), name="input_lumis_by_run"),)

    def __str__(self) -> str:
        return f"{self.run}: {self.span}"


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
