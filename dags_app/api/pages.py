"""Puts together what the ``nodes`` page shows: a page of the outer status file, and each shown unit's own file."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from dags_app.dagman import NodeState, NodeStatus
from dags_app.live import UNIT_NAME, StatusReading, unit_status
from dags_app.models import DAG


def in_states(reading: StatusReading, states: Iterable[NodeState] | None) -> list[NodeStatus]:
    """Nodes in these states, or all, by name."""
    nodes = reading.status.nodes if reading.status else ()
    wanted = None if states is None else set(states)
    return sorted((node for node in nodes if wanted is None or node.state in wanted), key=lambda node: node.name)


def reading_shown(reading: StatusReading) -> dict[str, Any]:
    """A status file without its nodes."""
    status = reading.status
    return {
        "path": reading.path,
        "problem": reading.problem,
        "written_at": datetime.fromtimestamp(status.written_at, UTC) if status else None,
        "final": status.final if status else None,
        "counts": status.counts if status else None,
    }


def unit_shown(dag: DAG, node: NodeStatus) -> dict[str, Any]:
    """One outer node with what is inside it."""
    if not UNIT_NAME.fullmatch(node.name):
        return {**node_shown(node), "inner": None}
    reading = unit_status(dag, node.name)
    return {**node_shown(node), "inner": {**reading_shown(reading), "nodes": map(node_shown, in_states(reading, None))}}


def node_shown(node: NodeStatus) -> dict[str, Any]:
    """One node."""
    return {
        "name": node.name,
        "state": node.state.name.lower(),
        "details": node.details,
        "retries": node.retries,
        "jobs_queued": node.jobs_queued,
        "jobs_held": node.jobs_held,
    }


def queue_shown(dag: DAG) -> dict[str, Any]:
    """The last observation of the queue."""
    return {
        "schedd": dag.schedd_name,
        "cluster": dag.dagman_cluster_id,
        "observed_at": dag.seen_at,
        "missing_since": dag.missing_since,
        "unanswered_since": dag.unanswered_since,
        "counts": dag.observed,
    }
