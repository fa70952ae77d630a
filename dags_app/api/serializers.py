"""DAGs as JSON. Spec 3.1.3; ``nodes`` and ``logs`` are what DAGMan's files say now."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rest_framework import serializers

from dags_app import counts
from dags_app.counts import DagCounts, JobSuccess
from dags_app.dagman import DagmanCounts, NodeState, NodeStatus
from dags_app.live import LogTail, StatusReading
from dags_app.models import DAG, DAGHistory
from dags_app.packs import PackedFile
from wms2.api.answers import Computed, Url, answer, rows

NODE_STATES = [(state.name.lower(), state.name.lower()) for state in NodeState]
_QUEUE = "node jobs of all its work units in the schedd's queue at observed_at"

JobSuccessSerializer = answer(
    "JobSuccess", JobSuccess, "Ended processing and merge jobs.", "ended_well", "ended_badly", "success_rate",
    ended_well="of accounted work units",
    ended_badly="failed attempts; null where they were not counted",
    success_rate="ended well of all that ended, 0 to 1; null before any has",
)  # fmt: skip
DagCountsSerializer = answer(
    "DagCounts", DagCounts, "A DAG counted; nodes are those inside its units.", "units", "nodes", "success",
    units="waiting, running, done, failed",
    nodes="idle, running, held: in the queue at observed_at; done, failed: of units that run up to a minute older."
    " The rest of total_nodes is not submitted",
)  # fmt: skip
_DAG = (
    "id", "workflow_id=workflow_id", "request_name=workflow.request_id", "round=round.index", "kind", "status", "schedd_name",
    "dagman_cluster_id", "parent_dag_id=parent_dag_id", "total_nodes", "nodes_idle=nodes_idle", "nodes_running=nodes_running",
    "nodes_failed", "nodes_held=nodes_held", "total_work_units", "units_done", "observed_at=seen_at", "missing_since",
    "unanswered_since", "stop_requested_at", "created_at", "submitted_at", "completed_at",
)  # fmt: skip
_OF_DAG: dict[str, Any] = {
    "round": "0-based",
    "nodes_idle": _QUEUE,
    "nodes_running": _QUEUE,
    "nodes_failed": Computed(
        counts.nodes_failed,
        serializers.IntegerField(),
        column="inner_failed",
        help_text="nodes inside its units that have failed for good",
    ),
    "nodes_held": _QUEUE,
    "observed_at": "last answer of the schedd that contained the DAG",
}
DagListSerializer = rows("DagList", DAG, "One line of the list.", *_DAG, **_OF_DAG, computed_from={"observed_at": "last_seen_at"})
DagHistorySerializer = rows(
    "DagHistory", DAGHistory, "One line of a DAG's history.",
    "created_at", "event_type", "from_status", "to_status", "nodes_done", "nodes_failed", "nodes_running", "detail",
)  # fmt: skip


class _CountedOnce(serializers.ModelSerializer):
    def to_representation(self, instance: Any) -> Any:
        """Counted for all fields together."""
        instance.counted, instance.jobs_by_site = counts.dag_counts(instance), counts.jobs_by_site(instance)
        return super().to_representation(instance)


DagSerializer = rows(
    "Dag", DAG, "One DAG with its places, submission, evidence and history.",
    *_DAG, "nodes_done", "counts", "jobs", "sites", "merge_groups", "throttles", "completed_work_units", "node_counts",
    "total_edges", "dag_file_path", "submit_dir", "rescue_dag_path", "files_sha256", "instance", "directory_id", "attempt",
    "fence", "submit_intent_at", "submit_error", "placement", "job_priority", "stop_mode", "stop_reason", "observed", "outcome",
    **_OF_DAG,
    nodes_done=serializers.IntegerField(source="counted.nodes.done", help_text="nodes inside its units that are done"),
    counts=DagCountsSerializer(source="counted"),
    jobs=serializers.DictField(help_text="node jobs in the queue at observed_at, by role and by site: state -> number"),
    sites=serializers.DictField(
        source="jobs_by_site", child=serializers.DictField(child=serializers.IntegerField()),
        help_text="jobs by site: idle, running and held ones in the queue at observed_at; of its round done ones, i.e. processing"
        " and merge jobs of accounted work units, and failed attempts",
    ),
    throttles=serializers.DictField(help_text="limits of its categories as it was submitted, and what its share rests on"),
    completed_work_units=Computed(
        counts.units_completed, serializers.ListField(child=serializers.CharField()),
        help_text="names of the round's work units that are done",
    ),
    history=DagHistorySerializer(many=True),
    base=_CountedOnce,
)  # fmt: skip


class NodeStateField(serializers.ChoiceField):
    """DAGMan's state of a node, in lower case."""

    def to_representation(self, value: Any) -> str:
        """Of the enum."""
        return str(value.name.lower())


DagmanCountsSerializer = answer("DagmanCounts", DagmanCounts, "Nodes by state, and jobs of those that are submitted.")
_READING = ("path", "problem", "written_at", "final=status.final", "counts=status.counts")
_READ: dict[str, Any] = {
    "final": serializers.BooleanField(
        source="status.final", allow_null=True, help_text="DAGMan announced no further update"
    ),
    "counts": DagmanCountsSerializer(source="status.counts", allow_null=True),
}  # fmt: skip
_DETAILS = "DAGMan's sentence on how it ended"
NodeSerializer = answer(
    "Node", NodeStatus, "One node of a status file.", state=NodeStateField(choices=NODE_STATES), details=_DETAILS
)
UnitNodesSerializer = answer(
    "UnitNodes", StatusReading, "The nodes inside one work unit.", *_READING, **_READ, nodes=NodeSerializer(many=True)
)
StatusReadingSerializer = answer(
    "StatusReading", StatusReading,
    "A status file: its place, when it was written, its counts; ``problem`` says why there is nothing.", *_READING, **_READ,
)  # fmt: skip
OuterNodeSerializer = answer(
    "OuterNode", NodeStatus, "A node of the outer DAG, i.e. a work unit, with the nodes inside it.",
    state=NodeStateField(choices=NODE_STATES),
    details=_DETAILS,
    inner=UnitNodesSerializer(allow_null=True, help_text="null for a node that is no work unit"),
)  # fmt: skip
QueueSerializer = answer(
    "Queue", DAG,
    "What the schedd said of the DAG's DAGMan job the last time it was asked; one question serves all DAGs each cycle.",
    "schedd=schedd_name", "cluster=dagman_cluster_id", "observed_at=seen_at", "missing_since", "unanswered_since",
    "counts=observed",
    missing_since="the schedd answers, and the job is not in its queue",
    unanswered_since="the schedd does not answer",
    counts="counts of the job's ad, and how many work units run",
)  # fmt: skip
DagNodesSerializer = answer(
    "DagNodes", {"dag_id": UUID, "request_name": str, "status": str, "outer": StatusReading, "queue": DAG, "next": Url | None},
    "One page of nodes.",
    queue=QueueSerializer(),
    results=OuterNodeSerializer(many=True),
)  # fmt: skip
LogFileSerializer = answer("LogFile", PackedFile, "One file.", "path", "size_bytes", "modified_at")
LogTailSerializer = answer(
    "LogTail", LogTail, "The end of a log.", "path", "problem", "truncated", "lines",
    truncated="there is more before these lines",
)  # fmt: skip
DagLogsSerializer = answer(
    "DagLogs", {"dag_id": UUID, "submit_dir": str, "files": list[PackedFile], "tail": LogTail},
    "Where the logs of a DAG are, on the submit host, and the end of DAGMan's own.",
)  # fmt: skip
