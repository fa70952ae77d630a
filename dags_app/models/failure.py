"""Failure rules, and what failed: groups of like failures with samples, and input files that failures name.

Failures come from the failure log of each DAG's directory, read on from where it was read to (``FailureLog``). Per-node things
are never rows (docs/design/model.md, Rows): a group counts, and keeps its newest samples.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Collate

from dags_app.payload.contract import rules

#: Characters of an input file's name; longer ones name none.
LONGEST_LFN = 700


class FailureCategory(models.TextChoices):
    """Classes of error-handling 2.4."""

    TRANSIENT = rules.TRANSIENT, "Transient"
    PERMANENT = rules.PERMANENT, "Permanent"
    DATA = rules.DATA, "Data"
    INFRASTRUCTURE = rules.INFRASTRUCTURE, "Infrastructure"


class FailureAction(models.TextChoices):
    """What a rule asks of the POST script."""

    RETRY = rules.RETRY, "Retry"
    OTHER_SITE = rules.OTHER_SITE, "Once more here, then at another site"
    MORE_MEMORY = rules.MORE_MEMORY, "Retry with more memory"
    STOP = rules.STOP, "Give the node up"
    ABORT_DAG = rules.ABORT_DAG, "Abort the DAG"


class FailureRule(models.Model):
    """One rule; the first enabled one whose conditions all hold decides. Empty conditions hold for everything."""

    class Source(models.TextChoices):
        """Whose words they are: a shipped rule that an operator has changed is the operator's."""

        SHIPPED = "shipped", "Shipped"
        OPERATOR = "operator", "Operator"

    id = models.BigAutoField(primary_key=True)
    order = models.PositiveIntegerField(help_text="lower ones are tried first")
    name = models.SlugField(max_length=100, unique=True, help_text="stands in post.json and in the errors of a request")
    enabled = models.BooleanField(default=True)
    source = models.CharField(max_length=10, choices=Source.choices, default=Source.OPERATOR, editable=False)
    first_code = models.IntegerField(null=True, blank=True, help_text="exit code, or the first of a range")
    last_code = models.IntegerField(null=True, blank=True, help_text="last exit code of the range; empty: one code only")
    message = models.CharField(max_length=500, blank=True, help_text="regular expression, searched for in the error message")
    step = models.CharField(max_length=200, blank=True, help_text="regular expression, searched for in the step's name")
    site = models.CharField(max_length=200, blank=True, help_text="regular expression, searched for in the site's name")
    category = models.CharField(max_length=20, choices=FailureCategory.choices)
    action = models.CharField(max_length=20, choices=FailureAction.choices)
    cooloff_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="before the first retry, doubled with each further one; empty: the configured base"
    )
    memory_factor = models.FloatField(null=True, blank=True, help_text="the next attempt gets so many times the memory, e.g. 1.5")
    note = models.TextField(blank=True, help_text="what the failure means")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "failure_rules"
        ordering = ("order", "id")
        constraints = (
            models.CheckConstraint(condition=Q(category__in=FailureCategory.values), name="failure_rule_category_known"),
            models.CheckConstraint(condition=Q(action__in=FailureAction.values), name="failure_rule_action_known"),
            models.CheckConstraint(
                condition=Q(last_code__isnull=True) | Q(first_code__isnull=False, last_code__gte=F("first_code")),
                name="failure_rule_codes_in_order",
            ),
            models.CheckConstraint(
                condition=Q(first_code__isnull=False) | ~Q(message="") | ~Q(step="") | ~Q(site=""),
                name="failure_rule_has_condition",
            ),
        )

    def __str__(self) -> str:
        return self.name


class FailureLog(models.Model):
    """How far the failure log of a DAG directory has been read. One row per directory: rescues go on in the same file."""

    directory_id = models.UUIDField(primary_key=True)
    offset_bytes = models.BigIntegerField(default=0)
    attempts = models.PositiveIntegerField(
        null=True, default=0, help_text="failed attempts in it; empty: they were not counted from its beginning"
    )
    problem = models.TextField(blank=True, help_text="why it could not be read on")

    class Meta:
        db_table = "failure_logs"

    def __str__(self) -> str:
        return f"{self.directory_id} at {self.offset_bytes}"


class FailureGroup(models.Model):
    """Failed attempts of one workflow that are alike."""

    id = models.BigAutoField(primary_key=True)
    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.CASCADE, related_name="failure_groups")
    category = models.CharField(max_length=20, choices=FailureCategory.choices)
    code = models.IntegerField()
    site = models.CharField(max_length=100, blank=True)
    step = models.CharField(max_length=200, blank=True)
    rule = models.CharField(max_length=100, blank=True)
    attempts = models.PositiveIntegerField(default=0, help_text="failed attempts")
    given_up = models.PositiveIntegerField(default=0, help_text="of them those after which the node was not tried again")
    actions = models.JSONField(
        default=dict, blank=True, help_text="what the POST script did after them: action -> attempts; used_up: no retry was left"
    )
    rounds = models.JSONField(default=dict, blank=True, db_default={}, help_text="failed attempts by index of the round")
    reason = models.TextField(blank=True, help_text="of the newest")
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        db_table = "failure_groups"
        ordering = ("-attempts", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("workflow", "category", "code", "site", "step", "rule"), name="failure_group_once_per_workflow"
            ),
        )
        indexes = (
            models.Index(
                fields=("last_at",),
                include=("code", "site", "category", "rule", "attempts", "given_up"),
                name="idx_failure_groups_recent",
            ),
            models.Index(fields=("code", "site", "last_at"), name="idx_failure_groups_place"),
        )

    def __str__(self) -> str:
        return f"{self.category} {self.code} {self.step} at {self.site or 'no site'}"


class FailureSample(models.Model):
    """One of the newest failed attempts of a group, with what a rule looks at and the end of its log."""

    id = models.BigAutoField(primary_key=True)
    group = models.ForeignKey(FailureGroup, on_delete=models.CASCADE, related_name="samples")
    dag = models.ForeignKey("dags_app.DAG", on_delete=models.CASCADE, related_name="failure_samples")
    unit = models.CharField(max_length=20)
    node = models.CharField(max_length=100)
    attempt = models.PositiveIntegerField()
    job_id = models.CharField(max_length=50)
    final = models.BooleanField()
    at = models.DateTimeField()
    message = models.TextField(blank=True)
    bad_files = models.JSONField(default=list, blank=True)
    log_tail = models.TextField(blank=True)

    class Meta:
        db_table = "failure_samples"
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("at",), name="idx_failure_samples_at"),
            models.Index(Collate("job_id", "C"), name="idx_failure_samples_job"),
        )

    def __str__(self) -> str:
        return f"{self.unit}/{self.node} attempt {self.attempt}"


class FailedInputFile(models.Model):
    """An input file that failures of a workflow named as missing, unreadable or corrupt."""

    id = models.BigAutoField(primary_key=True)
    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.CASCADE, related_name="failed_input_files")
    lfn = models.CharField(max_length=LONGEST_LFN)
    attempts = models.PositiveIntegerField(default=0)
    site = models.CharField(max_length=100, blank=True, help_text="of the newest")
    code = models.IntegerField(help_text="of the newest")
    last_at = models.DateTimeField()

    class Meta:
        db_table = "failed_input_files"
        ordering = ("-attempts", "id")
        constraints = (models.UniqueConstraint(fields=("workflow", "lfn"), name="failed_input_file_once_per_workflow"),)

    def __str__(self) -> str:
        return self.lfn


class UnreadableInput(models.Model):
    """That an input file could not be read at a site in one submission: evidence that outlives rescues and rounds.

    One row for each submission (``fence``), because only that several agree, or one again hours later, speaks against the file
    and not against the site's storage (docs/adr/0011).
    """

    id = models.BigAutoField(primary_key=True)
    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.CASCADE, related_name="unreadable_input")
    lfn = models.CharField(max_length=LONGEST_LFN)
    site = models.CharField(max_length=100)
    fence = models.BigIntegerField()
    code = models.IntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    not_sure = models.BooleanField(
        default=False, db_default=False, help_text="the file's own storage did not say it: counts only with the same hours later"
    )

    class Meta:
        db_table = "unreadable_input"
        verbose_name_plural = "unreadable input"
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("workflow", "lfn", "site", "fence"), name="unreadable_input_once_a_submission"),
        )

    def __str__(self) -> str:
        return f"{self.lfn} at {self.site}"
