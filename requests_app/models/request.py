"""The request row, its group, what ReqMgr2 has of it (spec 3.1.1; docs/design/model.md, Request statuses; ADR 0023, 0024)."""

from __future__ import annotations

import uuid
from datetime import datetime
from urllib.parse import quote

from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.db.models.expressions import RawSQL
from django.db.models.functions import Collate, Concat, Upper
from django.urls import reverse
from django.utils import timezone

from requests_app.admission.ordering import ITS_TURN, LIMIT
from wms2.conf import conf
from wms2.web.formatting import word


class RequestStatus(models.TextChoices):
    """Where a request stands. ``requests_app.states.TRANSITIONS`` has the edges; nothing else writes a status."""

    NEW = "new", "New"
    SUBMITTED = "submitted", "Submitted"
    QUEUED = "queued", "Queued"
    PLANNING = "planning", "Planning"
    ACTIVE = "active", "Active"
    PARTIAL = "partial", "Partial"
    STOPPING = "stopping", "Stopping"
    RESUBMITTING = "resubmitting", "Resubmitting"
    HELD = "held", "Held"
    VALIDATING_OUTPUTS = "validating_outputs", "Validating outputs"
    WAITING_INTEGRITY = "waiting_integrity", "Waiting integrity"
    VALIDATED_OUTPUTS = "validated_outputs", "Validated outputs"
    REMOVING_FILES = "removing_files", "Removing files"
    COMPLETED = "completed", "Completed"
    ARCHIVED = "archived", "Archived"
    FAILED = "failed", "Failed"
    ABORTED = "aborted", "Aborted"
    CLEANING = "cleaning", "Cleaning"
    CLEANED = "cleaned", "Cleaned"


class ShownStatus(models.TextChoices):
    """What is shown in place of a status, and never stored: it ends the work it has, another was derived from it; it had
    completed, and makes lost files again."""

    COMPLETING = "completing", "Completing"
    RECOVERING = "recovering", "Recovering"


_AT_WORK = (RequestStatus.QUEUED, RequestStatus.PLANNING, RequestStatus.ACTIVE, RequestStatus.PARTIAL, RequestStatus.RESUBMITTING)
#: Statuses that the life cycle never looks at again.
TERMINAL = (RequestStatus.ARCHIVED, RequestStatus.FAILED, RequestStatus.ABORTED, RequestStatus.CLEANED)
#: Everything was made, registered and validated. Lost files can be made again.
DONE = (RequestStatus.COMPLETED, RequestStatus.ARCHIVED)
#: Statuses that the cycle evaluates every time. COMPLETED needs nothing more, NEW belongs to the requester.
EVALUATED = tuple(s for s in RequestStatus if s not in (*TERMINAL, RequestStatus.NEW, RequestStatus.COMPLETED))


#: After the last job: nothing runs and nothing is planned. What is held of these comes back to the first.
AFTER_WORK = (
    RequestStatus.VALIDATING_OUTPUTS,
    RequestStatus.WAITING_INTEGRITY,
    RequestStatus.VALIDATED_OUTPUTS,
    RequestStatus.REMOVING_FILES,
)
#: While a request is in one of them its unmerged files stay: a case may still want its work done again.
UNMERGED_FROZEN = AFTER_WORK[:3]
#: A request may be restarted until so many versions of it exist (spec 15, question 11).
MAX_VERSIONS = 5


def status_shown(status: str, derived_by: str, completed_at: datetime | None) -> RequestStatus | ShownStatus:
    """As people are to see it."""
    if completed_at is not None and status in (*_AT_WORK, *AFTER_WORK):
        return ShownStatus.RECOVERING
    return ShownStatus.COMPLETING if derived_by and status in _AT_WORK else word(RequestStatus, status)


class StopIntent(models.TextChoices):
    """What a STOPPING request becomes, weakest first; a later intent may only be stronger."""

    RESUME = "resume", "Stop, then resume"
    STEP = "step", "Production step"
    MOVE = "move", "Stop, then move"
    HOLD = "hold", "Stop, then hold"
    RESTART = "restart", "Kill and clone"
    FAIL = "fail", "Stop, then fail"
    ABORT = "abort", "Abort"
    CLEAN = "clean", "Stop, then clean"

    @property
    def strength(self) -> int:
        """Position in the order above; higher wins."""
        return list(StopIntent).index(self)

    @property
    def goes_on(self) -> bool:
        """Whether the request runs again by itself after the stop."""
        return self.strength < StopIntent.HOLD.strength


class HoldCode(models.TextChoices):
    """Why a request is HELD; each has an entry in docs/runbook.md."""

    REFUSED = "refused", "Request or input refused"
    OPERATOR = "operator", "Held by a user"
    TIMEOUT = "timeout", "Too long in an internal step"
    LEDGER = "ledger", "Ledger violation"
    SUBMISSION = "submission", "Submission refused by the schedd"
    THRESHOLD = "threshold", "Too many failed work units"
    RESCUES = "rescues", "Rescue attempts used up"
    ABORT_CODE = "abort_code", "DAG aborted itself (code 43)"
    REMOVED = "removed", "DAG removed from outside"
    QUEUE_LOST = "queue_lost", "Schedd queue lost"
    SHORT = "short", "Fewer events than asked after all rounds"
    EXCLUDED = "excluded", "Input files were left out"
    OUTCOME_UNKNOWN = "outcome_unknown", "DAG ended, outcome not provable"
    RUN_ELSEWHERE = "run_elsewhere", "Another system may run it"
    FAILED_ELSEWHERE = "failed_elsewhere", "Set to failed in ReqMgr2"
    PARENT = "parent", "A request that it depends on gives it no input"


class CleanupPolicy(models.TextChoices):
    """What happens to the previous version's outputs (spec 3.1.1)."""

    KEEP_UNTIL_REPLACED = "keep_until_replaced", "Keep until replaced"
    IMMEDIATE_CLEANUP = "immediate_cleanup", "Clean up when the new version completes"


class Request(models.Model):
    """What ReqMgr2 sent, typed where WMS2 needs it and raw in ``request_data``.

    ``epoch`` rises when its outputs are taken back: what was asked of services for them before is not done any more. When it is
    evaluated, and by whom, is in ``EvaluationLease``.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    request_name = models.CharField(max_length=255, unique=True)
    requestor = models.CharField(max_length=100)
    requestor_dn = models.CharField(max_length=500, blank=True)
    group = models.CharField(max_length=100, blank=True)
    request_data = models.JSONField(help_text="the ReqMgr2 document as it came")
    prepared = models.JSONField(
        null=True, blank=True, help_text="while submitted: the specification and PSets that the import has found out"
    )
    payload_config = models.JSONField(default=dict, blank=True, help_text="metadata WMS2 does not act on, e.g. RequestType")
    splitting_params = models.JSONField(default=dict, blank=True)
    input_dataset = models.CharField(max_length=500, blank=True)
    campaign = models.CharField(max_length=100, blank=True)
    prep_id = models.CharField(max_length=200, blank=True)
    notes = models.TextField(blank=True, default="", db_default="", help_text="what operators note about it")
    warnings = models.JSONField(default=list, blank=True, help_text="accepted with these; they stay visible")
    priority = models.IntegerField(default=100_000)
    urgent = models.BooleanField(default=False)
    production_steps = models.JSONField(default=list, blank=True)
    adaptive = models.BooleanField(
        default=False, db_default=False, help_text="runs in rounds, each sized by what those before measured"
    )
    complete_early = models.BooleanField(
        default=False, db_default=False, help_text="nothing more is planned: it completes with what is done"
    )
    flush = models.BooleanField(
        default=False, db_default=False, help_text="no more input comes: the next planning takes also what fills no work unit"
    )
    overrides = models.JSONField(
        default=dict, blank=True, help_text="typed changes of settings for this request (requests_app.work.overrides)"
    )

    status = models.CharField(max_length=50, choices=RequestStatus.choices, default=RequestStatus.NEW)
    status_since = models.DateTimeField(default=timezone.now)
    stop_intent = models.CharField(max_length=20, choices=StopIntent.choices, blank=True)
    hold_code = models.CharField(max_length=30, choices=HoldCode.choices, blank=True)
    hold_reason = models.TextField(blank=True)
    next_attempt_at = models.DateTimeField(
        null=True, blank=True, help_text="planning or submission failed; passed over until then"
    )
    failed_attempts = models.PositiveIntegerField(default=0)
    last_error = models.TextField(blank=True)
    waiting_for = models.TextField(blank=True, help_text="what the request waits for now, in words")
    alert_code = models.CharField(max_length=50, blank=True)
    alerted_at = models.DateTimeField(null=True, blank=True)

    reserved_schedd = models.ForeignKey(
        "sites_app.Schedd", on_delete=models.SET_NULL, null=True, blank=True, related_name="+",
        help_text="where it was admitted to; counts while it plans and its DAG has no schedd yet",
    )  # fmt: skip
    moving = models.JSONField(
        default=dict, db_default=RawSQL("'{}'::jsonb", ()), blank=True,
        help_text="where its next DAG is to go, as operators or a drain want it: schedds by key, who, why",
    )  # fmt: skip
    reserved_slots = models.PositiveIntegerField(default=0, help_text="DAGMan slots that its DAG will take there")
    epoch = models.BigIntegerField(default=1)

    previous_version_request = models.ForeignKey(
        "self", to_field="request_name", on_delete=models.PROTECT, null=True, blank=True,
        related_name="next_versions", db_column="previous_version_request",
    )  # fmt: skip
    superseded_by_request = models.CharField(max_length=255, blank=True)
    derived_from = models.OneToOneField(
        "self", to_field="request_name", on_delete=models.PROTECT, null=True, blank=True,
        related_name="+", db_column="derived_from", help_text="whose unused work it has taken over",
    )  # fmt: skip
    derived_by = models.CharField(
        max_length=255, blank=True, default="", db_default="", help_text="the request that has taken over its unused work"
    )
    cleanup_policy = models.CharField(max_length=50, choices=CleanupPolicy.choices, default=CleanupPolicy.KEEP_UNTIL_REPLACED)
    family = models.UUIDField(
        default=uuid.uuid4, editable=False, help_text="requests of one family may write into the same datasets"
    )

    in_group = models.ForeignKey(
        "requests_app.RequestGroup", on_delete=models.PROTECT, null=True, blank=True, related_name="children",
        help_text="completes together with the others of it",
    )  # fmt: skip
    group_ready_at = models.DateTimeField(
        null=True, blank=True, help_text="since when, in this stay in validated outputs, it waits for its group alone"
    )
    depends_on = models.ManyToManyField(
        "self", symmetrical=False, blank=True, related_name="dependents", db_table="request_dependencies",
        help_text="it begins when these have completed, and reads what one of them wrote",
    )  # fmt: skip

    search_text = models.GeneratedField(
        expression=Upper(Concat("request_name", Value("\n"), "prep_id", Value("\n"), "campaign", Value("\n"), "input_dataset")),
        output_field=models.TextField(),
        db_persist=True,
        help_text="what a search looks through, kept by the database",
    )

    failing = models.BooleanField(
        default=False,
        db_default=False,
        help_text="jobs of its live DAG failed lately (requests_app.lifecycle.failing)",
    )
    attention = models.GeneratedField(
        expression=Case(
            When(Q(status=RequestStatus.HELD) | ~Q(alert_code=""), then=Value(0)),
            When(status__in=(*TERMINAL, RequestStatus.COMPLETED), then=Value(3)),
            When(failing=True, then=Value(1)),
            default=Value(2),
        ),
        output_field=models.SmallIntegerField(),
        db_persist=True,
        help_text="0: needs a person, 1: failing, 2: goes on, 3: over; lists begin with the lowest",
    )

    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    queued_at = models.DateTimeField(null=True, blank=True, help_text="when it last entered QUEUED; orders admission")
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "requests"
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=Q(status__in=RequestStatus.values), name="request_status_known"),
            models.CheckConstraint(
                condition=Q(stop_intent="") | Q(stop_intent__in=StopIntent.values), name="request_stop_intent_known"
            ),
            models.CheckConstraint(condition=Q(hold_code="") | Q(hold_code__in=HoldCode.values), name="request_hold_code_known"),
            models.CheckConstraint(
                condition=~Q(status=RequestStatus.HELD) | (~Q(hold_code="") & ~Q(hold_reason="")), name="request_held_has_reason"
            ),
            models.CheckConstraint(
                condition=~Q(status=RequestStatus.STOPPING) | ~Q(stop_intent=""), name="request_stopping_has_intent"
            ),
            models.CheckConstraint(condition=Q(cleanup_policy__in=CleanupPolicy.values), name="request_cleanup_policy_known"),
            models.CheckConstraint(condition=Q(priority__gte=0, priority__lte=999_999), name="request_priority_range"),
            models.CheckConstraint(condition=~Q(request_name=F("superseded_by_request")), name="request_not_its_own_successor"),
        )
        indexes = (
            models.Index(fields=("status",), name="idx_requests_status"),
            models.Index(fields=("campaign",), name="idx_requests_campaign"),
            *(  # the search box finds by beginnings
                models.Index(Collate(column, "C"), name=f"idx_requests_by_{column}")
                for column in ("request_name", "prep_id", "campaign", "input_dataset")
            ),
            models.Index(fields=("priority",), name="idx_requests_priority"),
            models.Index(fields=("-created_at",), name="idx_requests_created"),
            models.Index(fields=("updated_at",), name="idx_requests_updated"),
            models.Index(fields=("status_since",), name="idx_requests_status_since"),
            models.Index(fields=("status", "status_since"), name="idx_requests_status_age"),
            models.Index(fields=("requestor",), name="idx_requests_requestor"),
            models.Index(fields=("attention", "status_since", "id"), name="idx_requests_attention"),
            models.Index(fields=("id",), name="idx_requests_failing", condition=Q(failing=True)),
            models.Index(fields=("created_at", "id"), name="idx_requests_search_text", include=("search_text",)),
            models.Index(fields=("-created_at",), name="idx_requests_alerted", condition=~Q(alert_code="")),
            models.Index(fields=("-created_at",), name="idx_requests_urgent", condition=Q(urgent=True)),
            models.Index(fields=("hold_code", "-created_at"), name="idx_requests_hold", condition=~Q(hold_code="")),
            models.Index(fields=("status",), name="idx_requests_non_terminal", condition=Q(status__in=EVALUATED)),
            models.Index(  # places are counted from it alone
                fields=("urgent",),
                name="idx_requests_eligible",
                condition=Q(status=RequestStatus.QUEUED, next_attempt_at__isnull=True),
                include=("id", "priority", "queued_at", "campaign", "requestor"),
            ),
            models.Index(
                fields=("id",),
                name="idx_requests_kept",
                condition=Q(status=RequestStatus.QUEUED, waiting_for__startswith=LIMIT),
            ),
            # whose reason to wait a pass may have to change; in the order of idx_requests_eligible, which would be preferred else
            models.Index(
                fields=("urgent",),
                name="idx_requests_own_reason",
                condition=Q(status=RequestStatus.QUEUED, next_attempt_at__isnull=True) & ~Q(waiting_for=ITS_TURN),
            ),
            models.Index(
                fields=("next_attempt_at",),
                name="idx_requests_pausing",
                condition=Q(status=RequestStatus.QUEUED, next_attempt_at__isnull=False),
            ),
            models.Index(
                fields=("previous_version_request",),
                name="idx_requests_version_link",
                condition=Q(previous_version_request__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return self.request_name

    def get_absolute_url(self) -> str:
        """Its live page."""
        return reverse("request-page", args=[self.request_name])

    def get_status_display(self) -> str:  # type: ignore[no-redef]  # Django leaves out its own
        """In words."""
        return str(self.status_shown.label)

    @property
    def status_shown(self) -> RequestStatus | ShownStatus:
        """As people are to see it."""
        return status_shown(self.status, self.derived_by, self.completed_at)

    @property
    def is_recovering(self) -> bool:
        """Whether it had completed, and makes lost files again; until it has completed again."""
        return self.completed_at is not None and self.status not in (*DONE, *TERMINAL, RequestStatus.CLEANING)

    @property
    def is_at_end(self) -> bool:
        """Whether nothing of it is planned any more, even if files of it are lost."""
        return self.is_over and self.status != RequestStatus.ARCHIVED

    @property
    def is_over(self) -> bool:
        """Whether the life cycle never looks at it again, not even to validate its outputs again."""
        return self.status in TERMINAL

    @property
    def is_completing(self) -> bool:
        """Whether its outputs are counted as good, and it only has to be completed."""
        return self.status in (RequestStatus.VALIDATED_OUTPUTS, RequestStatus.REMOVING_FILES)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended before its work was done: nothing evaluates it any more."""
        return self.status in (RequestStatus.FAILED, RequestStatus.ABORTED)


class RequestGroup(models.Model):
    """A name for requests that complete together. Where it stands follows from its children when it is shown."""

    name = models.CharField(max_length=150, unique=True)
    note = models.TextField(blank=True, default="")
    created_by = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "request_groups"
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Its live page."""
        return reverse("group-page", args=[self.name])


#: Statuses in ReqMgr2 in which nothing of a request is wanted.
UNWANTED = ("failed", "rejected", "rejected-archived", "aborted", "aborted-completed", "aborted-archived")


class ReqMgr2Request(models.Model):
    """A request in ReqMgr2. Without ``request`` it was not imported: it is about to be, or ``problem`` says why not.

    ``status``, ``priority`` and the site lists are ReqMgr2's at ``compared_at``; only what changes there afterwards is followed,
    so that what an operator changes here later stands.
    """

    name = models.CharField(max_length=255, unique=True, null=True, blank=True, help_text="there; none until its clone is made")
    request = models.OneToOneField(
        "requests_app.Request", on_delete=models.CASCADE, null=True, blank=True, related_name="reqmgr2"
    )
    status = models.CharField(max_length=30, blank=True)
    priority = models.IntegerField(null=True, blank=True)
    site_whitelist = models.JSONField(default=list, blank=True)
    site_blacklist = models.JSONField(default=list, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="when this installation began to acquire it")
    compared_at = models.DateTimeField(null=True, blank=True)
    elements = models.BooleanField(default=False, help_text="the work queue of WMCore has it, too")
    over = models.BooleanField(default=False, help_text="at an end here and there: not compared any more")
    problem = models.TextField(blank=True, help_text="why it is not taken, or what of ReqMgr2 cannot be followed")

    class Meta:
        db_table = "reqmgr2_requests"
        verbose_name, verbose_name_plural = "ReqMgr2 request", "ReqMgr2 requests"
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("id",), name="idx_reqmgr2_followed", condition=Q(over=False, request__isnull=False)),
            models.Index(fields=("id",), name="idx_reqmgr2_problem", condition=~Q(problem="")),
        )

    def __str__(self) -> str:
        return f"{self.name or 'a clone to be made'}: {self.status or 'not seen yet'}"

    @property
    def url(self) -> str:
        """Its page in ReqMgr2."""
        return f"{conf().reqmgr2_url.removesuffix('/data')}/fetch?rid={quote(self.name or '', safe='')}"

    @property
    def is_undecided(self) -> bool:
        """Whether it was rejected there after it completed here, and an operator has to clean it or keep what it made."""
        return self.request is not None and self.request.status in DONE and self.status in UNWANTED and not self.over
