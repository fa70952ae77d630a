"""Where a workflow stands, as spec 7.2 writes it."""

from __future__ import annotations

from rest_framework import serializers

from requests_app.api.serializers import UnitCountsSerializer


class StandingDagSerializer(serializers.Serializer):
    """The workflow's newest DAG. The node counts but ``nodes_done`` are DAGMan's of the outer DAG: a work unit is one node."""

    id = serializers.UUIDField(source="dag.id")
    status = serializers.CharField(source="dag.status")
    total_nodes = serializers.IntegerField(source="dag.total_nodes")
    node_counts = serializers.DictField(source="dag.node_counts", child=serializers.IntegerField())
    nodes_idle = serializers.IntegerField(source="dag.nodes_idle")
    nodes_running = serializers.IntegerField(source="dag.nodes_running")
    nodes_done = serializers.IntegerField(source="dag_nodes_done", help_text="nodes of both levels in work units that are done")
    nodes_failed = serializers.IntegerField(source="dag.nodes_failed")
    nodes_held = serializers.IntegerField(source="dag.nodes_held")
    observed_at = serializers.DateTimeField(source="dag.observed_at", allow_null=True)
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
    work_units = UnitCountsSerializer(source="units", help_text="of all rounds")
    blocks = StandingBlockSerializer(many=True)
    progress_percent = serializers.FloatField()
    estimated_completion = serializers.DateTimeField(
        allow_null=True, help_text="what is left at the rate since the DAG was submitted; null when nothing is measured"
    )
