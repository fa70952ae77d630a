"""Output datasets, processing blocks and merged files (spec 3.1.4; docs/design/model.md, Blocks)."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Collate


class DatasetState(models.TextChoices):
    """Whether the outputs are wanted (error-handling 4.3). A new version makes them SUPERSEDED when it completes."""

    ACTIVE = "active", "Active"
    SUPERSEDED = "superseded", "Superseded"
    INVALIDATED = "invalidated", "Invalidated"


class OutputDataset(models.Model):
    """One output dataset of a workflow. The tape RSE is chosen once per dataset, so that it is not scattered over tapes."""

    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.CASCADE, related_name="output_datasets")
    name = models.CharField(max_length=500)
    step = models.CharField(max_length=100)
    module = models.CharField(max_length=100)
    tier = models.CharField(max_length=50)
    registration = models.JSONField(default=dict, help_text="what DBS wants to know of it (outputs_app.values.DatasetRecord)")
    state = models.CharField(max_length=20, choices=DatasetState.choices, default=DatasetState.ACTIVE)
    tape_rse = models.CharField(max_length=100, blank=True)
    disk_rule_id = models.CharField(
        max_length=100, blank=True, help_text="of the rule on disk for its container, if WMS2 made one"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "output_datasets"
        constraints = (
            models.UniqueConstraint(fields=("workflow", "name"), name="output_dataset_once"),
            models.CheckConstraint(condition=Q(state__in=DatasetState.values), name="output_dataset_state_known"),
        )
        indexes = (
            models.Index(fields=("name",), name="output_dataset_by_name"),
            models.Index(Collate("name", "C"), name="output_dataset_by_beginning"),
        )

    def __str__(self) -> str:
        return self.name


class BlockStatus(models.TextChoices):
    """OPEN takes units until ``sealed_at``; sealed, and asked to be registered: COMPLETE; registered and its tape rule made, or
    none wanted: ARCHIVED. GIVEN_UP: an operator discarded what its registration rests on; nothing more is done for it."""

    OPEN = "open", "Open"
    COMPLETE = "complete", "Complete"
    ARCHIVED = "archived", "Archived"
    FAILED = "failed", "Failed"
    GIVEN_UP = "given_up", "Given up"
    INVALIDATED = "invalidated", "Invalidated"


class ProcessingBlock(models.Model):
    """Files of one dataset at one RSE that are one DBS block and one tape rule. Stays OPEN over rounds until its target size."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.PROTECT, related_name="blocks")
    dataset = models.ForeignKey(OutputDataset, on_delete=models.PROTECT, related_name="blocks")
    block_index = models.PositiveIntegerField(help_text="0-based within the dataset")
    dataset_name = models.CharField(max_length=500)
    dbs_block_name = models.CharField(max_length=500, help_text="/Primary/Processed/TIER#uuid, fixed at creation")
    dbs_block_open = models.BooleanField(default=False, help_text="known to DBS")
    dbs_block_closed = models.BooleanField(default=False, help_text="registered in DBS with all its files")
    total_work_units = models.PositiveIntegerField(default=0)
    planned_bytes = models.BigIntegerField(default=0, help_text="of its files")
    sealed_at = models.DateTimeField(null=True, blank=True, help_text="takes no more units")
    first_file_at = models.DateTimeField(null=True, blank=True, help_text="of its members the first was accounted that has files")
    origin_rse = models.CharField(max_length=100, blank=True, help_text="the RSE where its files lie")
    tape_rule_id = models.CharField(max_length=100, blank=True)
    tape_ok_at = models.DateTimeField(null=True, blank=True, help_text="when its tape rule was first seen to be OK")
    no_tape = models.TextField(blank=True, help_text="why it has no tape rule")
    source_rule_id = models.CharField(max_length=100, blank=True, help_text="of the rule that replaces its files' source rules")
    last_rucio_attempt = models.DateTimeField("last failed attempt at DBS or Rucio", null=True, blank=True)
    rucio_attempt_count = models.PositiveIntegerField("failed attempts at DBS or Rucio", default=0)
    rucio_last_error = models.TextField(blank=True)
    failure_context = models.JSONField(default=dict, blank=True)
    warnings = models.JSONField(
        default=list, blank=True, db_default=RawSQL("'[]'::jsonb", ()),
        help_text="what DBS could not store as it was sent, though the block is whole there",
    )  # fmt: skip
    status = models.CharField(max_length=50, choices=BlockStatus.choices, default=BlockStatus.OPEN)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "processing_blocks"
        ordering = ("dataset_name", "block_index")
        constraints = (
            models.CheckConstraint(condition=Q(status__in=BlockStatus.values), name="block_status_known"),
            models.UniqueConstraint(fields=("dataset", "block_index"), name="block_index_once_per_dataset"),
            models.UniqueConstraint(fields=("dbs_block_name",), name="dbs_block_name_once"),
            models.UniqueConstraint(
                fields=("dataset", "origin_rse"), condition=Q(sealed_at__isnull=True), name="one_unsealed_block_per_place"
            ),
            models.CheckConstraint(
                condition=~Q(status=BlockStatus.ARCHIVED) | ~Q(tape_rule_id="") | ~Q(no_tape=""),
                name="block_archived_tells_of_tape",
            ),
        )
        indexes = (
            models.Index(fields=("status",), name="idx_processing_blocks_status"),
            models.Index(fields=("workflow",), name="idx_blocks_open", condition=Q(status=BlockStatus.OPEN)),
            models.Index(fields=("created_at",), name="idx_blocks_created"),
            models.Index(Collate("dbs_block_name", "C"), name="idx_blocks_by_name"),
            models.Index(fields=("updated_at",), name="idx_blocks_updated"),
            models.Index(fields=("origin_rse", "updated_at"), name="idx_blocks_rse"),
            models.Index(
                fields=("updated_at",), name="idx_blocks_tape_waits",
                condition=Q(status=BlockStatus.ARCHIVED, tape_ok_at__isnull=True) & ~Q(tape_rule_id=""),
            ),
        )  # fmt: skip

    def __str__(self) -> str:
        return self.dbs_block_name


class BlockWorkUnit(models.Model):
    """A unit that is done has brought files into the block."""

    block = models.ForeignKey(ProcessingBlock, on_delete=models.CASCADE, related_name="members")
    unit = models.ForeignKey("dags_app.WorkUnit", on_delete=models.CASCADE, related_name="block_memberships")
    dataset = models.ForeignKey(OutputDataset, on_delete=models.PROTECT)
    done = models.BooleanField(default=False, help_text="no: a former release planned it")
    size_bytes = models.BigIntegerField(default=0, help_text="of the files")

    class Meta:
        db_table = "block_work_units"
        constraints = (models.UniqueConstraint(fields=("unit", "block"), name="unit_in_block_once"),)
        indexes = (models.Index(fields=("block",), name="block_members_open", condition=Q(done=False)),)

    def __str__(self) -> str:
        return f"{self.unit_id} in {self.block_id}"


class Validity(models.TextChoices):
    """Whether users may read the file."""

    VALID = "valid", "Valid"
    INVALID = "invalid", "Invalid"


#: Files that a rule of ours keeps where they were written, their own or their block's; others Rucio may have removed there.
RULED = ~Q(rule_id="") | ~Q(block__source_rule_id="")


class OutputFile(models.Model):
    """One merged file, as its unit's manifest declared it: where it lies, what is in it, and which rule protects it."""

    id = models.BigAutoField(primary_key=True)
    lfn = models.CharField(max_length=700, unique=True)
    dataset = models.ForeignKey(OutputDataset, on_delete=models.PROTECT, related_name="files")
    block = models.ForeignKey(ProcessingBlock, on_delete=models.PROTECT, related_name="files")
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
        indexes = (models.Index(fields=("dataset",), name="idx_output_files_invalid", condition=Q(validity=Validity.INVALID)),)

    def __str__(self) -> str:
        return self.lfn

    @property
    def is_valid(self) -> bool:
        """Whether users may read it."""
        return self.validity == Validity.VALID
