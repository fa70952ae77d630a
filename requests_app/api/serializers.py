"""Requests and workflows as JSON. Spec 3.1.1, 3.1.2, 7.2."""

from __future__ import annotations

from uuid import UUID

from rest_framework import serializers

from dags_app.api.serializers import JobSuccessSerializer
from dags_app.counts import UnitCounts
from dags_app.models import DAG, SizingDecision
from dags_app.planning.measured import Spread
from requests_app.models import KeptAccount, ReqMgr2Request, Request, RequestTransition, Workflow
from requests_app.selectors.admission import QueuedRow
from requests_app.selectors.explain import Explanation
from requests_app.selectors.requests import RequestDetail
from requests_app.selectors.rounds import SPREADS, MeasuredRound, StepDetail
from requests_app.selectors.workflows import BlockProgress, WorkflowProgress
from wms2.api.answers import answer, rows

WorkflowBriefSerializer = answer(
    "WorkflowBrief", Workflow, "The workflow of a request; null until it has been made from the document.", "id", "status",
)  # fmt: skip
UnitCountsSerializer = answer(
    "UnitCounts", UnitCounts, "Work units by state; ``total`` leaves out those that were given up and planned anew.",
    "total", "planned", "done", "done_unaccounted", "failed", "abandoned",
    done_unaccounted="DAGMan says done, the manifest does not agree yet",
)  # fmt: skip
#: Of ``status_shown``.
_SHOWN = (
    "the status; completing while it ends its work and a request derived from it does the rest, recovering while it makes files"
    " again that were lost after it had completed"
)


RequestListSerializer = rows(
    "RequestList", Request, "One line of the list.",
    "request_name", "status", "status_shown", "status_since", "requestor", "group", "campaign", "prep_id", "input_dataset",
    "priority", "urgent", "adaptive", "notes", "stop_intent", "hold_code", "hold_reason", "waiting_for", "next_attempt_at",
    "failed_attempts", "last_error", "alert_code", "alerted_at", "failing", "superseded_by_request", "derived_by", "in_group",
    "workflow", "work_units", "created_at", "updated_at", "queued_at", "completed_at",
    status_shown=serializers.CharField(read_only=True, help_text=_SHOWN),
    in_group=serializers.CharField(allow_null=True, read_only=True),
    workflow=WorkflowBriefSerializer(allow_null=True, read_only=True),
    work_units=UnitCountsSerializer(read_only=True),
    computed_from={
        "workflow": "workflow__id", "work_units": "workflow__status", "in_group": "in_group__name", "status_shown": "derived_by",
    },
)  # fmt: skip
TransitionSerializer = rows(
    "Transition", RequestTransition, "One status change.", "from_status", "to_status", "at", "actor", "reason", "evidence",
)  # fmt: skip
AccountSerializer = answer(
    "Account", KeptAccount,
    "The ledger: planned + done + attempted + excluded + inherited + left = all, in events and files; for a request split by\n"
    "lumi, in lumis (with ``refused_lumis``). Empty numbers with a violation.",
    "numbers", "summary", "violation", numbers=serializers.DictField(child=serializers.IntegerField()),
)  # fmt: skip
DagBriefSerializer = answer(
    "DagBrief", DAG, "The newest DAG of a request.",
    "id", "status", "kind", "schedd_name", "dagman_cluster_id", "total_work_units", "units_done", "nodes_idle", "nodes_running",
    "nodes_held", "observed_at=seen_at", "submitted_at",
    nodes_idle="node jobs in the queue at observed_at",
)  # fmt: skip
ReqMgr2Serializer = rows(
    "ReqMgr2", ReqMgr2Request, "A request as ReqMgr2 had it when it was last compared.",
    "name", "status", "compared_at", "elements", "problem",
)  # fmt: skip
WorkflowSerializer = rows(
    "Workflow", Workflow, "One workflow with its specification; PSets stay in the DAG's sandbox.",
    "id", "request_name=request_id", "status", "input_dataset", "splitting_algo", "splitting_params", "config_cache_id", "spec",
    "requested_events", "next_first_event", "next_first_lumi", "input_imported_at", "inputs_removed_at", "total_nodes",
    "created_at", "updated_at",
)  # fmt: skip
WorkflowListSerializer = rows(
    "WorkflowList", Workflow, "One line of the list.",
    "id", "request_name=request_id", "status", "input_dataset", "splitting_algo", "requested_events", "work_units", "created_at",
    "updated_at",
    work_units=UnitCountsSerializer(read_only=True), computed_from={"work_units": "id"},
)  # fmt: skip
SpreadSerializer = answer("Spread", Spread, "How a quantity is spread over jobs, within 1 %.")
StepMeasuredSerializer = answer(
    "StepMeasured", StepDetail,
    "A step over those jobs of the round that ran it alike: so many processes side by side, so many threads each.",
    "row.step", "row.processes", "row.threads", "row.jobs", "row.events_read", "row.events_written", "row.wall_seconds",
    "row.cpu_seconds", "cpu_efficiency", "bytes_written", "spreads", "exit_codes",
    wall_seconds="of all jobs",
    cpu_seconds="of all jobs",
    cpu_efficiency="CPU time over wall time and threads of all processes",
    bytes_written=serializers.DictField(
        source="row.bytes_written", child=serializers.IntegerField(), help_text="by output module"
    ),
    spreads=f"of the jobs: {', '.join(SPREADS)}; those that were measured",
    exit_codes="code -> failed attempts of the step",
)  # fmt: skip
DecisionSerializer = rows(
    "Decision", SizingDecision, "One number that a DAG was planned with, or a rescue submitted with, and why.",
    "dag_id", "task", "step", "what", "before", "measured", "chosen", "why", "bound", "pinned", "profile_version", "created_at",
)  # fmt: skip
RoundSerializer = answer(
    "Round", MeasuredRound, "One round: what it was planned with and why, its DAGs, and what it measured.",
    "row.index", "row.created_at", "row.closed_at", "row.sizing", "dags", "decisions", "steps", "exit_codes",
    index="0-based",
    sizing="resources and splitting that it was planned with",
    dags=DagBriefSerializer(many=True, help_text="the first one, then its rescues"),
    decisions=DecisionSerializer(many=True),
    exit_codes="step -> code -> failed attempts",
)  # fmt: skip
WorkflowRoundsSerializer = answer(
    "WorkflowRounds", {"workflow_id": UUID, "rounds": list[MeasuredRound]}, "All rounds of a workflow."
)
_RequestRowSerializer = rows(
    "RequestRow", Request, "Columns of a request that are shown as they are.",
    "request_name", "status", "status_shown", "status_since", "stop_intent", "hold_code", "hold_reason", "waiting_for",
    "next_attempt_at", "failed_attempts", "last_error", "alert_code", "alerted_at", "notes", "requestor", "requestor_dn", "group",
    "campaign", "prep_id", "priority", "urgent", "adaptive", "input_dataset", "superseded_by_request", "cleanup_policy",
    "derived_by", "flush", "created_at", "updated_at", "queued_at", "completed_at", "evaluated_at=lease.evaluated_at?",
    status_shown=serializers.CharField(help_text=_SHOWN),
)  # fmt: skip
QueuePositionSerializer = answer(
    "Turn", QueuedRow, "Where a queued request stands.",
    "place", "band", "risen_priority", "expected_start", "expected_basis",
    place=serializers.IntegerField(help_text="in the order of admission, from 1"),
    band="of priorities; empty: none",
    risen_priority=serializers.IntegerField(help_text="its priority with what waiting has added"),
    expected_start="null: not known",
    expected_basis="what that rests on, or why it is not known",
)  # fmt: skip
RemovingSerializer = answer(
    "Removing", DAG, "What a stop takes out of a schedd's queue; jobs as the schedd counted them last.",
    "schedd=schedd_name", "dag=pk", "dagman_cluster_id", "jobs_idle=nodes_idle", "jobs_running=nodes_running",
    "jobs_held=nodes_held", "unanswered_since",
    unanswered_since="the schedd is silent: nothing is proved",
)  # fmt: skip
ExplanationSerializer = answer(
    "Explanation", Explanation, "Where a request stands, in sentences; each may be empty.",
    why="what holds it where it is",
    alert="what its alert says",
    next="what happens by itself",
    todo="what a person should do",
)  # fmt: skip
RequestSerializer = answer(
    "Request", RequestDetail, "One request with all that is known of it.",
    "explanation", "request.warnings", "names.output_datasets", "request.splitting_params", "request.payload_config",
    "request.production_steps", "request.overrides", "previous_version_request=request.previous_version_request_id",
    "request.in_group", "names.depends_on", "names.dependents", "derived_from=request.derived_from_id", "workflow", "dag",
    "queue=queued", "removing", "work_units=units", "completed_work_units=units.done", "job_success", "ledger", "effects_open",
    "reqmgr2", "status_transitions", "request.request_data",
    warnings=serializers.ListField(source="request.warnings", child=serializers.CharField()),
    overrides="settings of this request alone, its pins among them",
    in_group=serializers.CharField(source="request.in_group", allow_null=True, help_text="with which it completes"),
    depends_on="requests that complete before it begins",
    dependents="requests that depend on it",
    derived_from="whose unused work it does",
    workflow=WorkflowBriefSerializer(allow_null=True),
    dag=DagBriefSerializer(allow_null=True, help_text="the newest"),
    queue=QueuePositionSerializer(source="queued", allow_null=True, help_text="null: not queued, or passed over after a failure"),
    removing=RemovingSerializer(many=True, help_text="while it is being stopped: what is taken out of queues"),
    job_success="of all rounds",
    ledger=AccountSerializer(source="account", allow_null=True),
    effects_open="state -> registrations not done yet",
    reqmgr2=ReqMgr2Serializer(source="request.reqmgr2", default=None, allow_null=True, read_only=True),
    status_transitions=TransitionSerializer(source="transitions", many=True),
    request_data=serializers.DictField(source="request.request_data", help_text="the ReqMgr2 document as it came"),
    columns={"request": _RequestRowSerializer},
)  # fmt: skip


DagProgressSerializer = answer(
    "StandingDag", WorkflowProgress,
    "The workflow's newest DAG. Nodes are those inside its work units, by state as ``GET /dags/{id}`` has them.",
    "dag.id", "dag.status", "dag.total_nodes", "node_counts", "nodes_idle=dag_counts.nodes.idle",
    "nodes_running=dag_counts.nodes.running", "nodes_done=dag_counts.nodes.done", "nodes_failed=dag_counts.nodes.failed",
    "nodes_held=dag_counts.nodes.held", "dag_counts.units", "dag.jobs", "units_at_once=dag.merge_groups",
    "observed_at=dag.seen_at", "dag.total_work_units", "work_units=dag_units",
    node_counts=serializers.DictField(child=serializers.IntegerField()),
    jobs="node jobs in the queue by role and by site: state -> number",
    units_at_once="work units that it runs at once at most",
    work_units="of the DAG's round",
)  # fmt: skip
BlockProgressSerializer = answer(
    "StandingBlock", BlockProgress, "A block's progress.",
    "id=block.pk", "block.dataset_name", "block.block_index", "block.status", "work_units",
    work_units="done/all, e.g. 12/25",
)  # fmt: skip
WorkflowProgressSerializer = answer(
    "WorkflowStanding", WorkflowProgress, "Progress of one workflow.",
    "workflow_id=workflow.pk", "request_name=workflow.request_id", "workflow.status", "dag=with_dag", "table.nodes", "sites",
    "job_success=table.success", "category_throttles", "work_units=units", "blocks", "progress_percent", "estimated_completion",
    dag=DagProgressSerializer(source="with_dag", allow_null=True),
    nodes="of all rounds, as of the DAG; and their total",
    sites="jobs by site: idle, running and held ones in the queue; done ones and failed attempts of all rounds",
    job_success=JobSuccessSerializer(source="table.success", help_text="of all rounds"),
    category_throttles="limits of its categories in force; null: none of its own",
    work_units="of all rounds",
    estimated_completion="what is left at the rate since the DAG was submitted; null when nothing is measured",
)  # fmt: skip
