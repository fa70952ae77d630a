"""The internal twin of a request, and its rounds (spec 3.1.2; docs/design/model.md, Rounds and rescues)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.expressions import RawSQL


class WorkflowStatus(models.TextChoices):
    """Mirrors the request's status; written by ``states.transition`` only."""

    NEW = "new", "New"
    PLANNING = "planning", "Planning"
    ACTIVE = "active", "Active"
    STOPPING = "stopping", "Stopping"
    RESUBMITTING = "resubmitting", "Resubmitting"
    HELD = "held", "Held"
    COMPLETED = "completed", "Completed"
    PARTIAL = "partial", "Partial"
    FAILED = "failed", "Failed"
    ABORTED = "aborted", "Aborted"


class Workflow(models.Model):
    """Typed specification and offsets of one request's work.

    ``spec`` is a ``dags_app.planning.specs.WorkflowSpec`` as JSON. ``next_first_event`` and ``next_first_lumi`` only move
    forward. ``fence_counter`` gives each DAG submission its strictly rising token. ``total_nodes`` is that of all rounds.
    """

    #: What a page has read with it, by name (``selectors.request_rows``): what is offered there reads none of it again.
    rows_read: Mapping[str, Sequence[Any]] = MappingProxyType({})

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.BigIntegerField(
        unique=True,
        editable=False,
        db_default=RawSQL("nextval('workflow_number_seq')", ()),
        help_text="integer key for range constraints",
    )
    request = models.OneToOneField(
        "requests_app.Request",
        to_field="request_name",
        on_delete=models.PROTECT,
        related_name="workflow",
        db_column="request_name",
    )
    input_dataset = models.CharField(max_length=500, blank=True)
    splitting_algo = models.CharField(max_length=50)
    splitting_params = models.JSONField(default=dict, blank=True)
    config_cache_id = models.CharField(max_length=100, blank=True)
    spec = models.JSONField(db_column="config_data")
    psets = models.JSONField(default=dict, blank=True, help_text="step name -> the PSet's text, as ConfigCache gave it")

    fence_counter = models.BigIntegerField(default=0)
    next_first_event = models.BigIntegerField(default=1)
    next_first_lumi = models.BigIntegerField(default=1)
    requested_events = models.BigIntegerField(default=0, help_text="events to generate, or events of the input: its own share")
    inherited_events = models.BigIntegerField(default=0, db_default=0, help_text="those of what it was derived from")
    input_imported_at = models.DateTimeField(null=True, blank=True)
    input_read_at = models.DateTimeField(null=True, blank=True, help_text="when DBS was last asked for new input files")
    input_grew_at = models.DateTimeField(null=True, blank=True, help_text="when that last brought any")
    input_closed_at = models.DateTimeField(null=True, blank=True, help_text="since when the input is taken as complete")

    inputs_removed_at = models.DateTimeField(
        null=True, blank=True, help_text="when nothing of its unmerged files was left that had not been removed"
    )

    total_nodes = models.IntegerField(default=0)
    cut_at = models.DateTimeField(null=True, blank=True, help_text="when work of lost files was last given back")

    status = models.CharField(max_length=50, choices=WorkflowStatus.choices, default=WorkflowStatus.NEW)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "workflows"
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=Q(status__in=WorkflowStatus.values), name="workflow_status_known"),
            models.CheckConstraint(
                condition=Q(next_first_event__gte=1, next_first_lumi__gte=1), name="workflow_offsets_positive"
            ),
        )
        indexes = (
            models.Index(fields=("status",), name="idx_workflows_status"),
            models.Index(fields=("created_at",), name="idx_workflows_created"),
            models.Index(fields=("updated_at",), name="idx_workflows_updated"),
        )

    def __str__(self) -> str:
        return self.request_id


class KeptAccount(models.Model):
    """The account of a workflow's work as it was counted last, and what it rests on; ``selectors/account.py`` writes it."""

    workflow = models.OneToOneField(Workflow, on_delete=models.CASCADE, primary_key=True, related_name="kept_account")
    basis = models.CharField(max_length=40, help_text="a hash of what it rests on, as it was before the count")
    numbers = models.JSONField()
    summary = models.TextField(blank=True)
    violation = models.TextField(blank=True)
    counted_at = models.DateTimeField()
    took_seconds = models.FloatField()

    class Meta:
        db_table = "kept_accounts"

    def __str__(self) -> str:
        return self.summary or self.violation


class Round(models.Model):
    """One DAG's worth of a workflow's work; a rescue belongs to the round of the DAG it rescues."""

    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="rounds")
    index = models.PositiveIntegerField()
    sizing = models.JSONField(default=dict, help_text="resources and limits the round was planned with")
    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "rounds"
        ordering = ("workflow", "index")
        constraints = (
            models.UniqueConstraint(fields=("workflow", "index"), name="round_index_once"),
            models.UniqueConstraint(
                fields=("workflow",), condition=Q(closed_at__isnull=True), name="one_open_round_per_workflow"
            ),
        )

    def __str__(self) -> str:
        return f"round {self.index}"
