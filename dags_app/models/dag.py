"""One row per DAG submission (spec 3.1.3; docs/design/model.md, DAG statuses)."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import models
from django.db.models import F, Q
from django.db.models.expressions import RawSQL


class DAGStatus(models.TextChoices):
    """PLANNING -> READY -> SUBMITTED -> RUNNING <-> HALTED -> one of the ends; READY -> REMOVED when discarded."""

    PLANNING = "planning", "Planning"
    READY = "ready", "Ready"
    SUBMITTED = "submitted", "Submitted"
    RUNNING = "running", "Running"
    HALTED = "halted", "Halted"
    COMPLETED = "completed", "Completed"
    PARTIAL = "partial", "Partial"
    FAILED = "failed", "Failed"
    STOPPED = "stopped", "Stopped by us"
    REMOVED = "removed", "Removed"


#: A workflow has at most one DAG in one of these; they also count against admission.
LIVE_DAG = (DAGStatus.PLANNING, DAGStatus.READY, DAGStatus.SUBMITTED, DAGStatus.RUNNING, DAGStatus.HALTED)

#: Statuses in which a DAGMan job is expected in the queue.
IN_QUEUE = (DAGStatus.SUBMITTED, DAGStatus.RUNNING, DAGStatus.HALTED)


#: An empty object, also for who inserts without knowing the column.
_NONE = RawSQL("'{}'::jsonb", ())


class DAGKind(models.TextChoices):
    """Why this submission exists; set at creation, decides whether it counts against the rescue limit."""

    FRESH = "fresh", "Fresh round"
    FAILURE_RESCUE = "failure_rescue", "Rescue after failures"
    STOP_RESCUE = "stop_rescue", "Rescue after a stop"


class DAG(models.Model):
    """What was given to ``condor_submit_dag``: its place, its submission, and what was last observed of it.

    A rescue is a new row with ``parent_dag`` and the same directory; ``directory_id`` is the id of the chain's first row and is
    what the rendered files carry as WMS2_DagID. The outer DAGMan's job ad carries this row's own id, ``fence`` and attempt.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workflow = models.ForeignKey("requests_app.Workflow", on_delete=models.PROTECT, related_name="dags")
    round = models.ForeignKey("requests_app.Round", on_delete=models.PROTECT, related_name="dags")
    kind = models.CharField(max_length=20, choices=DAGKind.choices, default=DAGKind.FRESH)
    directory_id = models.UUIDField(editable=False)
    dag_file_path = models.TextField()
    submit_dir = models.TextField()
    files_sha256 = models.CharField(max_length=64, blank=True, help_text="sum over SHA256SUMS of the rendered, immutable files")
    rescue_dag_path = models.TextField(blank=True)
    instance = models.CharField(max_length=63)

    # --- submission: intent first, then the call, then the record
    schedd = models.ForeignKey("sites_app.Schedd", on_delete=models.PROTECT, null=True, blank=True, related_name="dags")
    schedd_name = models.CharField(max_length=255, blank=True)
    dagman_cluster_id = models.CharField(max_length=50, blank=True)
    queue_birthdate = models.BigIntegerField(
        null=True, blank=True, help_text="of the schedd's queue at submission: cluster numbers count within it"
    )
    attempt = models.PositiveIntegerField(default=0)
    fence = models.BigIntegerField(default=0, help_text="strictly rising per workflow; an older one changes nothing")
    submit_intent_at = models.DateTimeField(null=True, blank=True)
    submit_error = models.TextField(blank=True)
    placement = models.JSONField(default=dict, blank=True, help_text="chosen schedd and why the others were not")
    job_priority = models.IntegerField(default=0)
    passed_priority = models.IntegerField(null=True, blank=True, help_text="what its jobs in the queue were given last")
    sizes = models.JSONField(
        default=dict, blank=True, db_default={}, help_text="memory by task and the step profile that its submission brings"
    )

    # --- recovery and stop
    parent_dag = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="rescues")
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    stop_mode = models.CharField(max_length=10, blank=True, help_text="drain or now")
    stop_reason = models.TextField(blank=True)

    # --- loss of the schedd's queue: suspected by evidence, confirmed by a person
    suspected_at = models.DateTimeField(
        null=True, blank=True, help_text="neither queue, history nor files know how it ended, for longer than the window"
    )
    lost_confirmed_at = models.DateTimeField(null=True, blank=True, help_text="a person confirmed that it is lost")
    lost_confirmation = models.JSONField(default=dict, blank=True, help_text="who confirmed it, why, and the evidence then")
    lost_settled_at = models.DateTimeField(null=True, blank=True, help_text="the schedd answered, and it is not in its queue")

    # --- structure and observation
    total_nodes = models.IntegerField(default=0)
    total_edges = models.IntegerField(default=0)
    node_counts = models.JSONField(default=dict)
    # node jobs in the queue, of all its units, when the schedd answered last (``seen_at``)
    nodes_idle = models.IntegerField(default=0, help_text="node jobs that wait for a slot")
    nodes_running = models.IntegerField(default=0, help_text="node jobs that run")
    nodes_held = models.IntegerField(default=0, help_text="node jobs on hold")
    jobs = models.JSONField(
        default=dict,
        db_default=_NONE,
        blank=True,
        help_text="the same by role and by site: state -> node jobs; waits: site -> since when some wait there and none runs",
    )
    failed_units = models.JSONField(
        default=dict,
        db_default=_NONE,
        blank=True,
        help_text="how many units have failed, and how their nodes had ended: done, failed",
    )
    nodes_done = models.IntegerField(default=0, help_text="work units done, by DAGMan: each is a node of the outer DAG")
    nodes_failed = models.IntegerField(default=0, help_text="work units failed, by DAGMan")
    total_work_units = models.IntegerField(default=0)
    merge_groups = models.PositiveIntegerField(
        default=10, help_text="units that it runs at the same time at most, as submitted, or as rendered"
    )
    throttles = models.JSONField(
        default=dict,
        db_default=_NONE,
        blank=True,
        help_text="limits of its categories, as submitted; empty: rendered, and never changed",
    )
    units_done = models.IntegerField(default=0)
    observed = models.JSONField(default=dict, blank=True, help_text="counts of the last DAGMan job ad")
    # of those in which something had changed; ``seen_at`` is the last of all
    observed_at = models.DateTimeField(null=True, blank=True, help_text="last answer of the schedd that contained the DAG")
    missing_since = models.DateTimeField(null=True, blank=True, help_text="the schedd answers, and the DAG is not in its queue")
    unanswered_since = models.DateTimeField(null=True, blank=True, help_text="the schedd does not answer")
    outcome = models.JSONField(default=dict, blank=True, help_text="evidence for the end state: history, metrics, status, rescue")

    # --- its directory, once nothing wants it any more (``requests_app.lifecycle.packing``)
    packed_at = models.DateTimeField(null=True, blank=True, help_text="its directory is a zip beside the former place since then")
    pack_tried_at = models.DateTimeField(null=True, blank=True, help_text="of the first DAG of a directory: the last try")
    pack_problem = models.TextField(blank=True, default="", db_default="", help_text="why its directory could not be packed")

    # --- what its units left at sites (``requests_app.lifecycle.cleaner``)
    leftovers_at = models.DateTimeField(
        null=True, blank=True, help_text="of the first DAG of a directory: what is to be removed of its units was written down"
    )

    status = models.CharField(max_length=50, choices=DAGStatus.choices, default=DAGStatus.PLANNING)
    created_at = models.DateTimeField(auto_now_add=True)
    submitted_at = models.DateTimeField(null=True, blank=True)
    began_at = models.DateTimeField(null=True, blank=True, help_text="when a job of it was first seen to run or to have ended")
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "dags"
        verbose_name, verbose_name_plural = "DAG", "DAGs"
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=Q(status__in=DAGStatus.values), name="dag_status_known"),
            models.CheckConstraint(condition=Q(kind__in=DAGKind.values), name="dag_kind_known"),
            models.UniqueConstraint(fields=("workflow",), condition=Q(status__in=LIVE_DAG), name="one_live_dag_per_workflow"),
            models.UniqueConstraint(fields=("workflow", "fence"), condition=Q(fence__gt=0), name="dag_fence_once_per_workflow"),
            models.UniqueConstraint(
                fields=("schedd", "queue_birthdate", "dagman_cluster_id"),
                condition=~Q(dagman_cluster_id=""),
                nulls_distinct=False,
                name="dagman_cluster_once_per_queue",
            ),
            models.CheckConstraint(
                condition=Q(kind=DAGKind.FRESH, parent_dag__isnull=True) | (~Q(kind=DAGKind.FRESH) & Q(parent_dag__isnull=False)),
                name="dag_rescue_has_parent",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=(DAGStatus.SUBMITTED, DAGStatus.RUNNING, DAGStatus.HALTED)) | ~Q(dagman_cluster_id=""),
                name="dag_running_has_cluster",
            ),
        )
        indexes = (
            models.Index(fields=("status",), name="idx_dags_status"),
            models.Index(fields=("created_at",), name="idx_dags_created"),
            models.Index(fields=("completed_at",), name="idx_dags_completed", condition=Q(completed_at__isnull=False)),
            models.Index(fields=("schedd_name",), name="idx_dags_schedd", condition=~Q(dagman_cluster_id="")),
            models.Index(fields=("dagman_cluster_id",), name="idx_dags_cluster", condition=~Q(dagman_cluster_id="")),
            models.Index(fields=("parent_dag",), name="idx_dags_parent", condition=Q(parent_dag__isnull=False)),
            models.Index(fields=("schedd",), name="idx_dags_live", condition=Q(status__in=LIVE_DAG)),
            models.Index(F("pack_tried_at").asc(nulls_first=True), name="idx_dags_unpacked", condition=Q(packed_at__isnull=True)),
            models.Index(fields=("id",), name="idx_dags_not_packable", condition=Q(packed_at__isnull=True) & ~Q(pack_problem="")),
            models.Index(fields=("round",), name="idx_dags_leftovers", condition=Q(leftovers_at__isnull=True)),
            models.Index(
                fields=("schedd",),
                name="idx_dags_lost",
                condition=Q(lost_confirmed_at__isnull=False, lost_settled_at__isnull=True),
            ),
        )

    def __str__(self) -> str:
        return f"{self.id} ({self.status})"

    @property
    def seen_at(self) -> datetime | None:
        """When an answer of the schedd contained it last. Its own row is written only when something has changed."""
        away = self.missing_since is not None or self.unanswered_since is not None or self.status not in IN_QUEUE
        if away or self.observed_at is None or self.schedd is None or self.schedd.last_answer_at is None:
            return self.observed_at
        return max(self.observed_at, self.schedd.last_answer_at)


class DAGHistory(models.Model):
    """What happened to a DAG (spec 3.2, ``dag_history``)."""

    id = models.BigAutoField(primary_key=True)
    dag = models.ForeignKey(DAG, on_delete=models.CASCADE, related_name="history")
    event_type = models.CharField(max_length=50)
    from_status = models.CharField(max_length=50, blank=True)
    to_status = models.CharField(max_length=50, blank=True)
    nodes_done = models.IntegerField(null=True, blank=True)
    nodes_failed = models.IntegerField(null=True, blank=True)
    nodes_running = models.IntegerField(null=True, blank=True)
    detail = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "dag_history"
        ordering = ("id",)
        verbose_name, verbose_name_plural = "DAG history entry", "DAG history entries"
        indexes = (models.Index(fields=("created_at",), name="idx_dag_history_created"),)

    def __str__(self) -> str:
        return f"{self.event_type} {self.from_status}->{self.to_status}"
