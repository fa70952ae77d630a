"""Work units and their claims (docs/design/model.md, Claims). Per-node things are never rows; work units are."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q


class WorkUnitState(models.TextChoices):
    """PLANNED also while it runs, which only its DAG knows. DONE only when the manifest equals the claim; DONE_UNACCOUNTED:
    DAGMan says done, the manifest is missing or wrong."""

    PLANNED = "planned", "Planned or running"
    DONE_UNACCOUNTED = "done_unaccounted", "Done, unaccounted"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    ABANDONED = "abandoned", "Abandoned"


#: States in which a unit's claims are live, i.e. no other unit may claim that work.
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
            models.Index(
                fields=("site", "done_at"), name="work_unit_done_there", include=("jobs",), condition=Q(state=WorkUnitState.DONE)
            ),
        )

    def __str__(self) -> str:
        return self.name


class WorkUnitClaim(models.Model):
    """A range of work that one unit processes, ``first`` to ``last`` with both. Live claims never overlap: the database refuses
    them from every writer, by the trigger ``live_claims_disjoint`` (docs/adr/0007).

    ``scope`` is the input file's id for events of a file, else ``Workflow.number``; ``run`` is 0 for files. Foreign keys in the
    database would cost more than the claim: the trigger looks up what live rows refer to.
    """

    KIND_GENERATED = 0
    KIND_FILE_EVENTS = 1
    KIND_RUN_LUMIS = 2
    KIND_GENERATED_LUMIS = 3  # the lumis of generated events, claimed beside them

    id = models.BigAutoField(primary_key=True)
    unit = models.ForeignKey(WorkUnit, on_delete=models.CASCADE, related_name="claims", db_constraint=False)
    input_file = models.ForeignKey(
        "requests_app.InputFile",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="claims",
        db_constraint=False,
        db_index=False,
    )
    kind = models.SmallIntegerField()
    scope = models.BigIntegerField()
    run = models.BigIntegerField()
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    events = models.BigIntegerField(default=0)
    live = models.BooleanField(default=True)

    class Meta:
        db_table = "work_unit_claims"
        constraints = (
            models.CheckConstraint(condition=Q(first__lte=F("last")), name="claim_not_empty"),
            models.CheckConstraint(
                condition=Q(kind=1, input_file=F("scope"), run=0) | Q(kind__in=(0, 2, 3), input_file__isnull=True),
                name="claim_scope_fits_kind",
            ),
            models.CheckConstraint(condition=~Q(kind=1) | Q(input_file__isnull=False), name="claim_of_a_file_names_it"),
        )
        indexes = (
            models.Index(fields=("input_file", "first"), name="claim_by_file", condition=Q(input_file__isnull=False)),
            models.Index(
                fields=("scope", "kind", "run", "first"),
                name="live_claim_by_run",
                condition=Q(live=True, input_file__isnull=True),
            ),
        )

    def __str__(self) -> str:
        return f"kind {self.kind} of {self.scope}, run {self.run}: {self.first} to {self.last}"
