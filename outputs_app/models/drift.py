"""Where DBS or Rucio hold something else than WMS2 believes, and how far the comparison of each dataset has come (ADR 0019)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class DriftKind(models.TextChoices):
    """What differs; what is done about each is in ``outputs_app.checks.reconciliation.remedies``."""

    DATASET_TYPE = "dataset_type", "Dataset has another access type in DBS"
    DBS_BLOCK_MISSING = "dbs_block_missing", "Block missing in DBS"
    DBS_BLOCK_EXTRA = "dbs_block_extra", "Block of unknown origin in DBS"
    DBS_BLOCK_OPEN = "dbs_block_open", "Block open in DBS"
    DBS_BLOCK_COUNTS = "dbs_block_counts", "Counts of a block differ in DBS"
    DBS_FILE_MISSING = "dbs_file_missing", "File missing in DBS"
    DBS_FILE_EXTRA = "dbs_file_extra", "File of unknown origin in DBS"
    DBS_FILE_INVALID = "dbs_file_invalid", "File invalid in DBS"
    DBS_FILE_DIFFERS = "dbs_file_differs", "File differs in DBS"
    RUCIO_BLOCK_MISSING = "rucio_block_missing", "Block missing in Rucio"
    RUCIO_BLOCK_OPEN = "rucio_block_open", "Block open in Rucio"
    RUCIO_FILE_MISSING = "rucio_file_missing", "File not in its block in Rucio"
    RUCIO_FILE_EXTRA = "rucio_file_extra", "File of unknown origin in a block in Rucio"
    RUCIO_FILE_DIFFERS = "rucio_file_differs", "File differs in Rucio"
    REPLICA_MISSING = "replica_missing", "Replica missing"
    REPLICA_UNAVAILABLE = "replica_unavailable", "Replica not available"
    RULE_GONE = "rule_gone", "Rule gone"
    RULE_ELSEWHERE = "rule_elsewhere", "Rule names another RSE"
    RULE_TROUBLE = "rule_trouble", "Rule stuck, suspended or waiting"
    RULE_UNKNOWN = "rule_unknown", "Rule of ours that no row knows"


class DriftState(models.TextChoices):
    """Unsettled needs a person. Asked: a repair was asked for, and no comparison was made since."""

    UNSETTLED = "unsettled", "Open"
    ASKED = "asked", "Repair asked"
    ACCEPTED = "accepted", "Accepted"
    REPAIRED = "repaired", "Repaired"
    GONE = "gone", "Gone by itself"


#: As long as a comparison finds it again.
OPEN_DRIFT = (DriftState.UNSETTLED, DriftState.ASKED, DriftState.ACCEPTED)


class Drift(models.Model):
    """One difference. While it stands there is one row for it, however often it is seen."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=30, choices=DriftKind.choices)
    state = models.CharField(max_length=10, choices=DriftState.choices, default=DriftState.UNSETTLED)
    name = models.CharField(max_length=700, help_text="LFN, block or dataset")
    rule_id = models.CharField(max_length=32, blank=True, help_text="of a difference in a rule")
    request = models.ForeignKey(
        "requests_app.Request", on_delete=models.CASCADE, null=True, blank=True, related_name="drift",
        help_text="none: a rule whose request this database does not know",
    )  # fmt: skip
    dataset = models.ForeignKey(
        "outputs_app.OutputDataset", on_delete=models.CASCADE, null=True, blank=True, related_name="drift"
    )
    block = models.ForeignKey(
        "outputs_app.ProcessingBlock", on_delete=models.CASCADE, null=True, blank=True, related_name="drift"
    )
    expected = models.CharField(max_length=500)
    found = models.CharField(max_length=500)
    since = models.DateTimeField(help_text="first seen")
    last_seen = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True, help_text="a comparison did not find it any more")
    actor = models.CharField(max_length=100, blank=True, help_text="who accepted it, or asked for its repair")
    reason = models.TextField(blank=True)

    class Meta:
        db_table = "drift"
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(kind__in=DriftKind.values), name="drift_kind_known"),
            models.CheckConstraint(condition=Q(state__in=DriftState.values), name="drift_state_known"),
            models.UniqueConstraint(
                fields=("kind", "name", "rule_id"), condition=Q(state__in=OPEN_DRIFT), name="drift_once_while_it_stands"
            ),
        )
        indexes = (
            models.Index(fields=("request",), name="drift_unsettled", condition=Q(state=DriftState.UNSETTLED)),
            models.Index(fields=("dataset",), name="drift_standing", condition=Q(state__in=OPEN_DRIFT)),
        )

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


class Comparison(models.Model):
    """The comparison of one dataset with DBS and Rucio, made again and again; without a dataset: the census of all our rules.

    Claimed as an effect is, with a lease and a rising epoch; ``up_to_block`` is where the next portion goes on.
    """

    id = models.BigAutoField(primary_key=True)
    dataset = models.OneToOneField(
        "outputs_app.OutputDataset", on_delete=models.CASCADE, null=True, blank=True, related_name="comparison"
    )
    due_at = models.DateTimeField(null=True, blank=True, help_text="none: only when an operator asks")
    asked_at = models.DateTimeField(null=True, blank=True, help_text="an operator asked for it")
    begun_at = models.DateTimeField(null=True, blank=True, help_text="the run that is under way")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="the last run that was whole")
    up_to_block = models.IntegerField(null=True, blank=True, help_text="index of the last block that is compared")
    result = models.JSONField(default=dict, blank=True, help_text="numbers of the run that is under way, or of the last")
    last_error = models.TextField(blank=True)
    claim_epoch = models.BigIntegerField(default=0)
    claim_expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "comparisons"
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=("dataset",), condition=Q(dataset__isnull=True), nulls_distinct=False, name="one_census"
            ),
        )
        indexes = (models.Index(fields=("due_at",), name="comparison_due"),)

    def __str__(self) -> str:
        return "census" if self.dataset_id is None else f"comparison of dataset {self.dataset_id}"
