"""Requests and workflows as JSON. Spec 3.1.1, 3.1.2, 7.2."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers

from dags_app.api.serializers import JobSuccessSerializer
from dags_app.models import SizingDecision
from requests_app.models import ReqMgr2Request, Request, RequestTransition, Workflow
from requests_app.selectors.requests import RequestPicture
from requests_app.selectors.rounds import SPREADS
from wms2.api.shown import shown


class WorkflowBriefSerializer(serializers.Serializer):
    """The workflow of a request; null until it has been made from the document."""

    id = serializers.UUIDField()
    status = serializers.CharField()


class UnitCountsSerializer(serializers.Serializer):
    """Work units by state; ``total`` leaves out those that were given up and planned anew."""

    total = serializers.IntegerField()
    planned = serializers.IntegerField()
    done = serializers.IntegerField()
    done_unaccounted = serializers.IntegerField(help_text="DAGMan says done, the manifest does not agree yet")
    failed = serializers.IntegerField()
    abandoned = serializers.IntegerField()


#: Of ``status_shown``.
_SHOWN = (
    "the status; completing while it ends its work and a request derived from it does the rest, recovering while it makes files"
    " again that were lost after it had completed"
)


class RequestListSerializer(serializers.ModelSerializer):
    """One line of the list."""

    computed_from: ClassVar = {
        "workflow": "workflow__id", "work_units": "workflow__status", "in_group": "in_group__name", "status_shown": "derived_by",
    }  # fmt: skip
    in_group = serializers.CharField(allow_null=True, read_only=True)
    status_shown = serializers.CharField(read_only=True, help_text=_SHOWN)
    workflow = WorkflowBriefSerializer(allow_null=True, read_only=True)
    work_units = UnitCountsSerializer(read_only=True)

    class Meta:
        model = Request
        fields: tuple[str, ...] = (
            "request_name", "status", "status_shown", "status_since", "requestor", "group", "campaign", "prep_id",
            "input_dataset", "priority", "urgent", "adaptive", "notes", "stop_intent", "hold_code", "hold_reason", "waiting_for",
            "next_attempt_at", "failed_attempts", "last_error", "alert_code", "alerted_at", "superseded_by_request", "derived_by",
            "in_group", "workflow", "work_units", "created_at", "updated_at", "queued_at", "completed_at",
        )  # fmt: skip


class TransitionSerializer(serializers.ModelSerializer):
    """One status change."""

    class Meta:
        model = RequestTransition
        fields: tuple[str, ...] = ("from_status", "to_status", "at", "actor", "reason", "evidence")


class AccountSerializer(serializers.Serializer):
    """The ledger: planned + done + attempted + excluded + inherited + left = all, in events and files; for a request split by
    lumi, in lumis (with ``refused_lumis``). Empty numbers with a violation."""

    numbers = serializers.DictField(child=serializers.IntegerField())
    summary = serializers.CharField(allow_blank=True)
    violation = serializers.CharField(allow_blank=True)


class DagBriefSerializer(serializers.Serializer):
    """The newest DAG of a request."""

    id = serializers.UUIDField()
    status = serializers.CharField()
    kind = serializers.CharField()
    schedd_name = serializers.CharField(allow_blank=True)
    dagman_cluster_id = serializers.CharField(allow_blank=True)
    total_work_units = serializers.IntegerField()
    units_done = serializers.IntegerField()
    nodes_idle = serializers.IntegerField(help_text="node jobs in the queue at observed_at")
    nodes_running = serializers.IntegerField()
    nodes_held = serializers.IntegerField()
    observed_at = serializers.DateTimeField(source="seen_at", allow_null=True)
    submitted_at = serializers.DateTimeField(allow_null=True)


class ReqMgr2Serializer(serializers.ModelSerializer):
    """A request as ReqMgr2 had it when it was last compared."""

    class Meta:
        model = ReqMgr2Request
        fields: tuple[str, ...] = ("name", "status", "compared_at", "elements", "problem")


class WorkflowSerializer(serializers.ModelSerializer):
    """One workflow with its specification; PSets stay in the DAG's sandbox."""

    request_name = serializers.CharField(source="request_id")

    class Meta:
        model = Workflow
        fields: tuple[str, ...] = (
            "id", "request_name", "status", "input_dataset", "splitting_algo", "splitting_params", "config_cache_id",
            "spec", "requested_events", "next_first_event", "next_first_lumi", "input_imported_at", "inputs_removed_at",
            "total_nodes", "created_at", "updated_at",
        )  # fmt: skip


class SpreadSerializer(serializers.Serializer):
    """How a quantity is spread over jobs, within 1 %."""

    p50 = serializers.FloatField()
    p95 = serializers.FloatField()


class StepMeasuredSerializer(serializers.Serializer):
    """A step over those jobs of the round that ran it alike: so many processes side by side, so many threads each."""

    step = serializers.CharField(source="row.step")
    processes = serializers.IntegerField(source="row.processes")
    threads = serializers.IntegerField(source="row.threads")
    jobs = serializers.IntegerField(source="row.jobs")
    events_read = serializers.IntegerField(source="row.events_read")
    events_written = serializers.IntegerField(source="row.events_written")
    wall_seconds = serializers.FloatField(source="row.wall_seconds", help_text="of all jobs")
    cpu_seconds = serializers.FloatField(source="row.cpu_seconds", help_text="of all jobs")
    cpu_efficiency = serializers.FloatField(allow_null=True, help_text="CPU time over wall time and threads of all processes")
    bytes_written = serializers.DictField(
        source="row.bytes_written", child=serializers.IntegerField(), help_text="by output module"
    )
    spreads = serializers.DictField(
        child=SpreadSerializer(), help_text=f"of the jobs: {', '.join(SPREADS)}; those that were measured"
    )
    exit_codes = serializers.DictField(child=serializers.IntegerField(), help_text="code -> failed attempts of the step")


class DecisionSerializer(serializers.ModelSerializer):
    """One number that a DAG was planned with, or a rescue submitted with, and why."""

    class Meta:
        model = SizingDecision
        fields: tuple[str, ...] = (
            "dag_id", "task", "step", "what", "before", "measured", "chosen", "why", "bound", "pinned", "profile_version",
            "created_at",
        )  # fmt: skip


class RoundSerializer(serializers.Serializer):
    """One round: what it was planned with and why, its DAGs, and what it measured."""

    index = serializers.IntegerField(source="row.index", help_text="0-based")
    created_at = serializers.DateTimeField(source="row.created_at")
    closed_at = serializers.DateTimeField(source="row.closed_at", allow_null=True)
    sizing = serializers.DictField(source="row.sizing", help_text="resources and splitting that it was planned with")
    dags = DagBriefSerializer(many=True, help_text="the first one, then its rescues")
    decisions = DecisionSerializer(many=True)
    steps = StepMeasuredSerializer(many=True)
    exit_codes = serializers.DictField(
        child=serializers.DictField(child=serializers.IntegerField()), help_text="step -> code -> failed attempts"
    )


class WorkflowRoundsSerializer(serializers.Serializer):
    """All rounds of a workflow."""

    workflow_id = serializers.UUIDField()
    rounds = RoundSerializer(many=True)


class WorkflowListSerializer(WorkflowSerializer):
    """One line of the list."""

    computed_from: ClassVar = {"work_units": "id"}
    work_units = UnitCountsSerializer(read_only=True)

    class Meta(WorkflowSerializer.Meta):
        fields: tuple[str, ...] = (
            "id", "request_name", "status", "input_dataset", "splitting_algo", "requested_events", "work_units", "created_at",
            "updated_at",
        )  # fmt: skip


class _RequestRowSerializer(serializers.ModelSerializer):
    """Columns of a request that are shown as they are."""

    status_shown = serializers.CharField(help_text=_SHOWN)
    evaluated_at = serializers.DateTimeField(source="lease.evaluated_at", default=None, allow_null=True)

    class Meta:
        model = Request
        fields: tuple[str, ...] = (
            "request_name", "status", "status_shown", "status_since", "stop_intent", "hold_code", "hold_reason", "waiting_for",
            "next_attempt_at", "failed_attempts", "last_error", "alert_code", "alerted_at", "notes", "requestor", "requestor_dn",
            "group", "campaign", "prep_id", "priority", "urgent", "adaptive", "input_dataset", "superseded_by_request",
            "cleanup_policy", "derived_by", "flush", "created_at", "updated_at", "queued_at", "completed_at", "evaluated_at",
        )  # fmt: skip


class TurnSerializer(serializers.Serializer):
    """Where a queued request stands."""

    place = serializers.IntegerField(help_text="in the order of admission, from 1")
    band = serializers.CharField(allow_blank=True, help_text="of priorities; empty: none")
    risen_priority = serializers.IntegerField(help_text="its priority with what waiting has added")
    expected_start = serializers.DateTimeField(allow_null=True, help_text="null: not known")
    expected_basis = serializers.CharField(help_text="what that rests on, or why it is not known")


class RemovingSerializer(serializers.Serializer):
    """What a stop takes out of a schedd's queue; jobs as the schedd counted them last."""

    schedd = serializers.CharField(source="schedd_name")
    dag = serializers.UUIDField(source="pk")
    dagman_cluster_id = serializers.CharField(allow_blank=True)
    jobs_idle = serializers.IntegerField(source="nodes_idle")
    jobs_running = serializers.IntegerField(source="nodes_running")
    jobs_held = serializers.IntegerField(source="nodes_held")
    unanswered_since = serializers.DateTimeField(allow_null=True, help_text="the schedd is silent: nothing is proved")


class ExplanationSerializer(serializers.Serializer):
    """Where a request stands, in sentences; each may be empty."""

    why = serializers.CharField(help_text="what holds it where it is")
    alert = serializers.CharField(help_text="what its alert says")
    next = serializers.CharField(help_text="what happens by itself")
    todo = serializers.CharField(help_text="what a person should do")


class RequestSerializer(serializers.Serializer):
    """One request with all that is known of it; made of a ``RequestPicture``."""

    explanation = ExplanationSerializer()
    warnings = serializers.ListField(source="request.warnings", child=serializers.CharField())
    output_datasets = serializers.ListField(child=serializers.CharField())
    splitting_params = serializers.DictField(source="request.splitting_params")
    payload_config = serializers.DictField(source="request.payload_config")
    production_steps = serializers.ListField(source="request.production_steps")
    overrides = serializers.DictField(source="request.overrides", help_text="settings of this request alone, its pins among them")
    previous_version_request = serializers.CharField(source="request.previous_version_request_id", allow_null=True)
    in_group = serializers.CharField(source="request.in_group", allow_null=True, help_text="with which it completes")
    depends_on = serializers.ListField(child=serializers.CharField(), help_text="requests that complete before it begins")
    dependents = serializers.ListField(child=serializers.CharField(), help_text="requests that depend on it")
    derived_from = serializers.CharField(source="request.derived_from_id", allow_null=True, help_text="whose unused work it does")
    workflow = WorkflowBriefSerializer(allow_null=True)
    dag = DagBriefSerializer(allow_null=True, help_text="the newest")
    queue = TurnSerializer(source="turn", allow_null=True, help_text="null: not queued, or passed over after a failure")
    removing = RemovingSerializer(many=True, help_text="while it is being stopped: what is taken out of queues")
    work_units = UnitCountsSerializer(source="units")
    completed_work_units = serializers.IntegerField(source="units.done")
    job_success = JobSuccessSerializer(allow_null=True, help_text="of all rounds")
    ledger = AccountSerializer(source="account", allow_null=True)
    effects_open = serializers.DictField(child=serializers.IntegerField(), help_text="state -> registrations not done yet")
    reqmgr2 = ReqMgr2Serializer(source="request.reqmgr2", default=None, allow_null=True, read_only=True)
    status_transitions = TransitionSerializer(source="transitions", many=True)
    request_data = serializers.DictField(source="request.request_data", help_text="the ReqMgr2 document as it came")

    def get_fields(self) -> dict[str, serializers.Field]:
        """The row's own columns first."""
        columns = _RequestRowSerializer(read_only=True).get_fields()
        for name, column in columns.items():
            column.source = f"request.{name}"
        return {**columns, **super().get_fields()}


def request_shown(picture: RequestPicture) -> Any:
    """The JSON of one request."""
    return shown(RequestSerializer, picture)


class StandingDagSerializer(serializers.Serializer):
    """The workflow's newest DAG. Nodes are those inside its work units, by state as ``GET /dags/{id}`` has them."""

    id = serializers.UUIDField(source="dag.id")
    status = serializers.CharField(source="dag.status")
    total_nodes = serializers.IntegerField(source="dag.total_nodes")
    node_counts = serializers.DictField(source="dag.node_counts", child=serializers.IntegerField())
    nodes_idle = serializers.IntegerField(source="dag_counts.nodes.idle")
    nodes_running = serializers.IntegerField(source="dag_counts.nodes.running")
    nodes_done = serializers.IntegerField(source="dag_counts.nodes.done")
    nodes_failed = serializers.IntegerField(source="dag_counts.nodes.failed")
    nodes_held = serializers.IntegerField(source="dag_counts.nodes.held")
    units = serializers.DictField(source="dag_counts.units", child=serializers.IntegerField())
    jobs = serializers.DictField(source="dag.jobs", help_text="node jobs in the queue by role and by site: state -> number")
    units_at_once = serializers.IntegerField(source="dag.merge_groups", help_text="work units that it runs at once at most")
    observed_at = serializers.DateTimeField(source="dag.seen_at", allow_null=True)
    total_work_units = serializers.IntegerField(source="dag.total_work_units")
    work_units = UnitCountsSerializer(source="dag_units", help_text="of the DAG's round")


class StandingBlockSerializer(serializers.Serializer):
    """A block's progress."""

    id = serializers.UUIDField(source="block.pk")
    dataset_name = serializers.CharField(source="block.dataset_name")
    block_index = serializers.IntegerField(source="block.block_index")
    status = serializers.CharField(source="block.status")
    work_units = serializers.CharField(help_text="done/all, e.g. 12/25")


class WorkflowStandingSerializer(serializers.Serializer):
    """Progress of one workflow."""

    workflow_id = serializers.UUIDField(source="workflow.pk")
    request_name = serializers.CharField(source="workflow.request_id")
    status = serializers.CharField(source="workflow.status")
    dag = StandingDagSerializer(source="with_dag", allow_null=True)
    nodes = serializers.DictField(
        source="table.nodes", child=serializers.IntegerField(), help_text="of all rounds, as of the DAG; and their total"
    )
    sites = serializers.DictField(
        child=serializers.DictField(child=serializers.IntegerField()),
        help_text="jobs by site: idle, running and held ones in the queue; done ones and failed attempts of all rounds",
    )
    job_success = JobSuccessSerializer(source="table.success", help_text="of all rounds")
    category_throttles = serializers.DictField(
        child=serializers.IntegerField(allow_null=True), help_text="limits of its categories in force; null: none of its own"
    )
    work_units = UnitCountsSerializer(source="units", help_text="of all rounds")
    blocks = StandingBlockSerializer(many=True)
    progress_percent = serializers.FloatField()
    estimated_completion = serializers.DateTimeField(
        allow_null=True, help_text="what is left at the rate since the DAG was submitted; null when nothing is measured"
    )
