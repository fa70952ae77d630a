"""DAGs as JSON. Spec 3.1.3; ``nodes`` and ``logs`` are what DAGMan's files say now."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from dags_app import counts
from dags_app.dagman import NodeState
from dags_app.models import DAG, DAGHistory

NODE_STATES = [(state.name.lower(), state.name.lower()) for state in NodeState]
_QUEUE = "node jobs of all its work units in the schedd's queue at observed_at"


class JobSuccessSerializer(serializers.Serializer):
    """Ended processing and merge jobs."""

    ended_well = serializers.IntegerField(help_text="of accounted work units")
    ended_badly = serializers.IntegerField(allow_null=True, help_text="failed attempts; null where they were not counted")
    success_rate = serializers.FloatField(allow_null=True, help_text="ended well of all that ended, 0 to 1; null before any has")


class DagCountsSerializer(serializers.Serializer):
    """A DAG counted; nodes are those inside its units."""

    units = serializers.DictField(child=serializers.IntegerField(), help_text="waiting, running, done, failed")
    nodes = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="idle, running, held: in the queue at observed_at; done, failed: of units that run up to a minute older."
        " The rest of total_nodes is not submitted",
    )
    success = JobSuccessSerializer()


class DagListSerializer(serializers.ModelSerializer):
    """One line of the list."""

    computed_from: ClassVar = {"observed_at": "last_seen_at", "nodes_failed": "inner_failed"}

    workflow_id = serializers.UUIDField()
    request_name = serializers.CharField(source="workflow.request_id")
    round = serializers.IntegerField(source="round.index", help_text="0-based")
    parent_dag_id = serializers.UUIDField(allow_null=True)
    nodes_idle = serializers.IntegerField(help_text=_QUEUE)
    nodes_running = serializers.IntegerField(help_text=_QUEUE)
    nodes_failed = serializers.SerializerMethodField(help_text="nodes inside its units that have failed for good")
    nodes_held = serializers.IntegerField(help_text=_QUEUE)
    observed_at = serializers.DateTimeField(
        source="seen_at", allow_null=True, help_text="last answer of the schedd that contained the DAG"
    )

    class Meta:
        model = DAG
        fields: tuple[str, ...] = (
            "id", "workflow_id", "request_name", "round", "kind", "status", "schedd_name", "dagman_cluster_id", "parent_dag_id",
            "total_nodes", "nodes_idle", "nodes_running", "nodes_failed", "nodes_held", "total_work_units", "units_done",
            "observed_at", "missing_since", "unanswered_since", "stop_requested_at", "created_at", "submitted_at",
            "completed_at",
        )  # fmt: skip

    def get_nodes_failed(self, dag: DAG) -> int:
        """From what was observed."""
        return counts.nodes_failed(dag)


class DagHistorySerializer(serializers.ModelSerializer):
    """One line of a DAG's history."""

    class Meta:
        model = DAGHistory
        fields: tuple[str, ...] = (
            "created_at", "event_type", "from_status", "to_status", "nodes_done", "nodes_failed", "nodes_running", "detail",
        )  # fmt: skip


class DagSerializer(DagListSerializer):
    """One DAG with its places, submission, evidence and history."""

    nodes_done = serializers.IntegerField(source="counted.nodes.done", help_text="nodes inside its units that are done")
    counts = DagCountsSerializer(source="counted")
    jobs = serializers.DictField(help_text="node jobs in the queue at observed_at, by role and by site: state -> number")
    sites = serializers.DictField(
        source="jobs_by_site", child=serializers.DictField(child=serializers.IntegerField()),
        help_text="jobs by site: idle, running and held ones in the queue at observed_at; of its round done ones, i.e. processing"
        " and merge jobs of accounted work units, and failed attempts",
    )  # fmt: skip
    throttles = serializers.DictField(help_text="limits of its categories as it was submitted, and what its share rests on")
    completed_work_units = serializers.SerializerMethodField(help_text="names of the round's work units that are done")
    history = DagHistorySerializer(many=True)

    class Meta(DagListSerializer.Meta):
        fields: tuple[str, ...] = (
            *DagListSerializer.Meta.fields, "nodes_done", "counts", "jobs", "sites", "merge_groups", "throttles",
            "completed_work_units", "node_counts", "total_edges", "dag_file_path",
            "submit_dir", "rescue_dag_path", "files_sha256", "instance", "directory_id", "attempt", "fence", "submit_intent_at",
            "submit_error", "placement", "job_priority", "stop_mode", "stop_reason", "observed", "outcome", "history",
        )  # fmt: skip

    def to_representation(self, instance: Any) -> Any:
        """Counted once."""
        instance.counted, instance.jobs_by_site = counts.dag_counts(instance), counts.jobs_by_site(instance)
        return super().to_representation(instance)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_completed_work_units(self, dag: DAG) -> list[str]:
        """From rows, never a list that grows in a column."""
        return counts.units_completed(dag)


class DagmanCountsSerializer(serializers.Serializer):
    """Nodes by state, and jobs of those that are submitted."""

    total = serializers.IntegerField()
    done = serializers.IntegerField()
    prerun = serializers.IntegerField()
    queued = serializers.IntegerField()
    postrun = serializers.IntegerField()
    ready = serializers.IntegerField()
    unready = serializers.IntegerField()
    failed = serializers.IntegerField()
    futile = serializers.IntegerField()
    jobs_idle = serializers.IntegerField()
    jobs_held = serializers.IntegerField()


class NodeStateField(serializers.ChoiceField):
    """DAGMan's state of a node, in small letters."""

    def to_representation(self, value: Any) -> str:
        """Of the enum."""
        return str(value.name.lower())


class NodeSerializer(serializers.Serializer):
    """One node of a status file."""

    name = serializers.CharField()
    state = NodeStateField(choices=NODE_STATES)
    details = serializers.CharField(allow_blank=True, help_text="DAGMan's sentence on how it ended")
    retries = serializers.IntegerField()
    jobs_queued = serializers.IntegerField()
    jobs_held = serializers.IntegerField()


class StatusReadingSerializer(serializers.Serializer):
    """A status file: its place, when it was written, its counts; ``problem`` says why there is nothing."""

    path = serializers.CharField()
    problem = serializers.CharField(allow_blank=True)
    written_at = serializers.DateTimeField(allow_null=True)
    final = serializers.BooleanField(source="status.final", allow_null=True, help_text="DAGMan announced no further update")
    counts = DagmanCountsSerializer(source="status.counts", allow_null=True)


class UnitNodesSerializer(StatusReadingSerializer):
    """The nodes inside one work unit."""

    nodes = NodeSerializer(many=True)


class OuterNodeSerializer(NodeSerializer):
    """A node of the outer DAG, i.e. a work unit, with the nodes inside it."""

    inner = UnitNodesSerializer(allow_null=True, help_text="null for a node that is no work unit")


class QueueSerializer(serializers.Serializer):
    """What the schedd said of the DAG's DAGMan job the last time it was asked; one question serves all DAGs each cycle."""

    schedd = serializers.CharField(source="schedd_name", allow_blank=True)
    cluster = serializers.CharField(source="dagman_cluster_id", allow_blank=True)
    observed_at = serializers.DateTimeField(source="seen_at", allow_null=True)
    missing_since = serializers.DateTimeField(allow_null=True, help_text="the schedd answers, and the job is not in its queue")
    unanswered_since = serializers.DateTimeField(allow_null=True, help_text="the schedd does not answer")
    counts = serializers.DictField(source="observed", help_text="counts of the job's ad, and how many work units run")


class DagNodesSerializer(serializers.Serializer):
    """One page of nodes."""

    dag_id = serializers.UUIDField()
    request_name = serializers.CharField()
    status = serializers.CharField()
    outer = StatusReadingSerializer()
    queue = QueueSerializer()
    next = serializers.URLField(allow_null=True)
    results = OuterNodeSerializer(many=True)


class LogFileSerializer(serializers.Serializer):
    """One file."""

    path = serializers.CharField()
    size_bytes = serializers.IntegerField()
    modified_at = serializers.DateTimeField()


class LogTailSerializer(serializers.Serializer):
    """The end of a log."""

    path = serializers.CharField()
    problem = serializers.CharField(allow_blank=True)
    truncated = serializers.BooleanField(help_text="there is more before these lines")
    lines = serializers.ListField(child=serializers.CharField(allow_blank=True))


class DagLogsSerializer(serializers.Serializer):
    """Where the logs of a DAG are, on the submit host, and the end of DAGMan's own."""

    dag_id = serializers.UUIDField()
    submit_dir = serializers.CharField()
    files = LogFileSerializer(many=True)
    tail = LogTailSerializer()
