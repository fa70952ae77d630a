"""Work units and their claims (docs/design/model.md, Claims). Per-node things are never rows; work units are."""

from __future__ import annotations

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import BigIntegerRangeField, RangeOperators
from django.db import models
from django.db.models import Q


class WorkUnitState(models.TextChoices):
    """DONE only when the manifest equals the claim; DONE_UNACCOUNTED: DAGMan says done, the manifest is missing or wrong."""

    PLANNED = "planned", "Planned"
    DONE_UNACCOUNTED = "done_unaccounted", "Done, unaccounted"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    ABANDONED = "abandoned", "Abandoned"


#: States in which a unit's claims are live, i.e. nobody else may claim that work.
LIVE_UNIT = (WorkUnitState.PLANNED, WorkUnitState.DONE_UNACCOUNTED, WorkUnitState.DONE)


class WorkUnit(models.Model):
    """One merge group: a set of processing jobs whose merged output is one unit of progress."""

    id = models.BigAutoField(primary_key=True)
    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.CASCADE, related_name="work_units")
    round = models.ForeignKey("requests_app.Round", on_delete=models.CASCADE, related_name="work_units")
    dag = models.ForeignKey(
        "dags_app.DAG", on_delete=models.PROTECT, related_name="work_units", help_text="the round's first DAG"
    )
    index = models.PositiveIntegerField()
    name = models.CharField(max_length=20, help_text="node of the outer DAG, mg_NNNNNN")
    state = models.CharField(max_length=20, choices=WorkUnitState.choices, default=WorkUnitState.PLANNED)
    jobs = models.PositiveIntegerField()
    events = models.BigIntegerField(default=0)
    estimated_output_bytes = models.BigIntegerField(default=0)
    site = models.CharField(max_length=100, blank=True)
    rse = models.CharField(max_length=100, blank=True)
    fence = models.BigIntegerField(null=True, blank=True, help_text="of the submission whose manifest was taken")
    manifest_sha256 = models.CharField(max_length=64, blank=True)
    problem = models.TextField(blank=True, help_text="why it is unaccounted or failed")
    problem_since = models.DateTimeField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "work_units"
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(state__in=WorkUnitState.values), name="work_unit_state_known"),
            models.UniqueConstraint(fields=("round", "index"), name="work_unit_once_per_round"),
            models.CheckConstraint(
                condition=~Q(state=WorkUnitState.DONE) | (~Q(manifest_sha256="") & Q(fence__isnull=False)),
                name="work_unit_done_has_manifest",
            ),
        )
        indexes = (
            models.Index(fields=("workflow", "state"), name="work_unit_by_state"),
            models.Index(fields=("dag",), name="work_unit_open", condition=~Q(state=WorkUnitState.DONE)),
        )

    def __str__(self) -> str:
        return self.name


class WorkUnitClaim(models.Model):
    """A range of work that one unit processes. Live claims never overlap: the exclusion constraint says so.

    ``scope`` is the one-point range of the input file's id (kind 1), or of ``Workflow.number`` (kinds 0 and 2); ``run`` the
    one-point range of the run (0 for files); ``span`` events or lumis, closed on both ends (PostgreSQL shows ``[a, b+1)``).
    Written with ranges only, because GiST has operators for them without an extension.
    """

    KIND_GENERATED = 0
    KIND_FILE_EVENTS = 1
    KIND_RUN_LUMIS = 2
    KIND_GENERATED_LUMIS = 3  # the lumis of generated events, claimed beside them

    id = models.BigAutoField(primary_key=True)
    unit = models.ForeignKey(WorkUnit, on_delete=models.CASCADE, related_name="claims")
    input_file = models.ForeignKey(
        "requests_app.InputFile", on_delete=models.PROTECT, null=True, blank=True, related_name="claims"
    )
    kind = BigIntegerRangeField()
    scope = BigIntegerRangeField()
    run = BigIntegerRangeField()
    span = BigIntegerRangeField()
    events = models.BigIntegerField(default=0)
    live = models.BooleanField(default=True)

    class Meta:
        db_table = "work_unit_claims"
        constraints = (
            ExclusionConstraint(
                name="live_claims_disjoint",
                expressions=[
                    ("scope", RangeOperators.OVERLAPS),
                    ("kind", RangeOperators.OVERLAPS),
                    ("run", RangeOperators.OVERLAPS),
                    ("span", RangeOperators.OVERLAPS),
                ],
                condition=Q(live=True),
            ),
            models.CheckConstraint(condition=~Q(span__isempty=True), name="claim_span_not_empty"),
        )
        indexes = (models.Index(fields=("input_file",), name="claim_by_file", condition=Q(input_file__isnull=False)),)

    def __str__(self) -> str:
        return f"{self.kind} {self.scope} {self.span}"
