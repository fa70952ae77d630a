"""Where a workflow stands, as spec 7.2 writes it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from requests_app.api.serializers import UnitCountsSerializer
from requests_app.selectors.workflows import WorkflowStanding


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

    id = serializers.UUIDField()
    dataset_name = serializers.CharField()
    block_index = serializers.IntegerField()
    status = serializers.CharField()
    work_units = serializers.CharField(help_text="done/all, e.g. 12/25")


class WorkflowStandingSerializer(serializers.Serializer):
    """Progress of one workflow."""

    workflow_id = serializers.UUIDField()
    request_name = serializers.CharField()
    status = serializers.CharField()
    dag = StandingDagSerializer(allow_null=True)
    work_units = UnitCountsSerializer(help_text="of all rounds")
    blocks = StandingBlockSerializer(many=True)
    progress_percent = serializers.FloatField()
    estimated_completion = serializers.DateTimeField(
        allow_null=True, help_text="what is left at the rate since the DAG was submitted; null when nothing is measured"
    )


def standing_shown(standing: WorkflowStanding) -> Any:
    """The JSON of one workflow's standing."""
    workflow = standing.workflow
    body = {
        "workflow_id": workflow.pk,
        "request_name": workflow.request_id,
        "status": workflow.status,
        "dag": standing if standing.dag else None,
        "work_units": standing.units,
        "blocks": [
            {
                "id": block.pk,
                "dataset_name": block.dataset_name,
                "block_index": block.block_index,
                "status": block.status,
                "work_units": f"{done}/{block.total_work_units}",
            }
            for block, done in standing.blocks
        ],
        "progress_percent": standing.progress_percent,
        "estimated_completion": standing.estimated_completion,
    }
    return WorkflowStandingSerializer(body).data
