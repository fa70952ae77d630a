"""Whether registered blocks are what they should be: evidence for each block, and a case for each file that is not (ADR 0020)."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from wms2.runtime.json_columns import records


class BlockValidation(models.Model):
    """What the catalogues and the storage say of one block. Validated: every valid file of ours is there and right, none besides.

    ``generation`` rises when it is to be validated again: what an older look still finds does not count.
    """

    block = models.OneToOneField(
        "outputs_app.ProcessingBlock", on_delete=models.CASCADE, primary_key=True, related_name="validation"
    )
    generation = models.PositiveIntegerField(default=1)
    asked_at = models.DateTimeField()
    catalogues_at = models.DateTimeField(null=True, blank=True, help_text="when DBS and Rucio were compared whole")
    validated_at = models.DateTimeField(null=True, blank=True, help_text="since when nothing is wrong with it")
    files = models.PositiveIntegerField(default=0, help_text="valid ones, as DBS has them")
    events = models.BigIntegerField(default=0, help_text="in them, as DBS counts them")
    evidence = models.JSONField(default=dict, blank=True, help_text="what was compared, with what result")
    spans = models.JSONField(default=dict, blank=True, help_text="run -> first and last lumi of its files")
    every_checksum = models.BooleanField(default=False, help_text="its files are read whole at their sites, not a sample of them")

    class Meta:
        db_table = "block_validations"
        indexes = (models.Index(fields=("asked_at",), name="block_validations_open", condition=Q(validated_at__isnull=True)),)

    def __str__(self) -> str:
        return f"validation {self.generation} of {self.block_id}"


class StorageCheck(models.Model):
    """The valid files of a block at one RSE, to be compared with the storage itself by a job at its site."""

    id = models.BigAutoField(primary_key=True)
    validation = models.ForeignKey(BlockValidation, on_delete=models.CASCADE, related_name="storage_checks")
    generation = models.PositiveIntegerField()
    rse = models.CharField(max_length=100)
    site = models.CharField(max_length=100)
    files = models.PositiveIntegerField(help_text="that are to be looked at")
    job = models.ForeignKey("dags_app.SiteJob", on_delete=models.SET_NULL, null=True, blank=True, related_name="storage_checks")
    up_to_file = models.BigIntegerField(default=0, help_text="id of the last file that a job has looked at")
    looked_at = models.PositiveIntegerField(default=0, help_text="files seen with their sizes")
    checksums = models.PositiveIntegerField(default=0, help_text="of these read whole, for their checksum")
    problem = models.TextField(blank=True, help_text="why it could not be looked at when that was tried last")
    tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "storage_checks"
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("validation", "generation", "rse"), name="storage_check_once_per_rse"),)
        indexes = (
            models.Index(fields=("next_try_at",), name="storage_checks_due", condition=Q(done_at__isnull=True, job__isnull=True)),
            models.Index(fields=("job",), name="storage_checks_by_job", condition=Q(job__isnull=False)),
        )

    def __str__(self) -> str:
        return f"{self.validation_id} at {self.rse}"


class FindingKind(models.TextChoices):
    """What is wrong with a file; the worst first, where there is more than one thing."""

    MISSING_REPLICA = "missing_replica", "Missing at its storage"
    SIZE_MISMATCH = "size_mismatch", "Size differs"
    CHECKSUM_MISMATCH = "checksum_mismatch", "Checksum differs"
    NOT_IN_CATALOGUE = "not_in_catalogue", "Not in a catalogue"
    CATALOGUE_DIFFERS = "catalogue_differs", "Catalogue says something else"
    DUPLICATE_LUMI = "duplicate_lumi", "Lumi in two valid files"
    PARENT_MISSING = "parent_missing", "Made from a file that is gone"
    ZERO_EVENTS = "zero_events", "No events"
    UNKNOWN_FILE = "unknown_file", "File of unknown origin"
    UNPROTECTED = "unprotected", "No rule keeps it"
    DRAWN_IN = "drawn_in", "Removed with another file"


class CaseState(models.TextChoices):
    """NEW: a person is needed. IN_PROGRESS: what was decided is being done or checked. The others are ends."""

    NEW = "new", "New"
    IN_PROGRESS = "in_progress", "In progress"
    RESOLVED = "resolved", "Resolved"
    REMOVED = "removed", "Removed"


#: A request with one of these waits.
OPEN_CASE = (CaseState.NEW, CaseState.IN_PROGRESS)


class CaseAction(models.TextChoices):
    """What was decided; the block is validated again after any of them."""

    RECOVERED = "recovered", "Recovered: the file is whole again"
    REGISTERED = "registered", "Registered again"
    REMOVED = "removed", "Removed: invalidated, its work is done again"
    ACCEPTED = "accepted", "Accepted as it is"


class IntegrityCase(models.Model):
    """One problem file (or block, by its name). While it is open there is one row for it, however often it is seen."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey("requests_app.Request", on_delete=models.PROTECT, related_name="cases")
    block = models.ForeignKey("outputs_app.ProcessingBlock", on_delete=models.PROTECT, related_name="cases")
    file = models.ForeignKey(
        "outputs_app.OutputFile", on_delete=models.PROTECT, null=True, blank=True, related_name="cases",
        help_text="none: the block itself, or a file that is not ours",
    )  # fmt: skip
    name = models.CharField(max_length=700, help_text="LFN, or the block's name")
    rse = models.CharField(max_length=100, blank=True)
    site = models.CharField(max_length=100, blank=True)
    prognosis = models.CharField(max_length=30, choices=FindingKind.choices)
    evidence = models.JSONField(default=list, help_text="all that was found, with what was expected and when")
    state = models.CharField(max_length=20, choices=CaseState.choices, default=CaseState.NEW)
    action = models.CharField(max_length=20, choices=CaseAction.choices, blank=True)
    actor = models.CharField(max_length=100, blank=True)
    reason = models.TextField(blank=True)
    cut = models.JSONField(
        default=dict, blank=True, help_text="what its removal takes back of units' claims, or the case with which it is removed"
    )
    reminded_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    acted_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "integrity_cases"
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(prognosis__in=FindingKind.values), name="case_prognosis_known"),
            models.CheckConstraint(condition=Q(state__in=CaseState.values), name="case_state_known"),
            models.CheckConstraint(condition=Q(action="") | Q(action__in=CaseAction.values), name="case_action_known"),
            models.CheckConstraint(condition=Q(state=CaseState.NEW) | ~Q(action=""), name="case_decided_has_action"),
            models.UniqueConstraint(fields=("name",), condition=Q(state__in=OPEN_CASE), name="one_open_case_per_file"),
        )
        indexes = (
            models.Index(fields=("request",), name="cases_open", condition=Q(state__in=OPEN_CASE)),
            models.Index(fields=("created_at",), name="cases_created"),
            models.Index(fields=("file",), name="cases_by_file", condition=Q(file__isnull=False)),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What was found, in this release's form."""
        return records(self.evidence, prognosis=str)
