"""Reads the ad of a DAGMan job, live or from history, and says how a DAGMan ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dags_app.dagman.attributes import integer, optional_integer, text
from dags_app.dagman.values import DagmanCounts, DagmanJob, DagmanStatus, DagMetrics, DagOutcome


def dagman_job(ad: Mapping[str, Any]) -> DagmanJob:
    """The ad of a DAGMan job, outer or inner, from ``Schedd.query`` or ``history``.

    Raises:
        DagmanFileError: the ad lacks what every job has.
    """
    status = optional_integer(ad, "DAG_Status")
    return DagmanJob(
        cluster=integer(ad, "ClusterId"),
        job_status=integer(ad, "JobStatus"),
        exit_code=optional_integer(ad, "ExitCode"),
        status=None if status is None else DagmanStatus(status),
        counts=_ad_counts(ad),
        in_recovery=bool(optional_integer(ad, "DAG_InRecovery")),
        updated_at=optional_integer(ad, "DAG_AdUpdateTime"),
        node=text(ad, "DAGNodeName"),
        parent_cluster=optional_integer(ad, "DAGManJobId"),
        instance=text(ad, "WMS2_Instance"),
        request_name=text(ad, "WMS2_Request"),
        dag_id=text(ad, "WMS2_DagID"),
        unit=text(ad, "WMS2_Unit"),
        fence=optional_integer(ad, "WMS2_Fence"),
        starts=optional_integer(ad, "NumJobStarts") or 0,
        hold_reason=text(ad, "HoldReason"),
        remove_reason=text(ad, "RemoveReason"),
        ended_at=optional_integer(ad, "CompletionDate") or None,
    )


#: What ``dagman_job`` reads; the projection of a query.
DAGMAN_ATTRIBUTES = (
    "ClusterId", "JobStatus", "ExitCode", "DAG_Status", "DAG_InRecovery", "DAG_AdUpdateTime", "DAGNodeName", "DAGManJobId",
    "DAG_NodesTotal", "DAG_NodesDone", "DAG_NodesPrerun", "DAG_NodesQueued", "DAG_NodesPostrun", "DAG_NodesReady",
    "DAG_NodesUnready", "DAG_NodesFailed", "DAG_NodesFutile", "DAG_JobsIdle", "DAG_JobsHeld", "DAG_JobsRunning",
    "WMS2_Instance", "WMS2_Request", "WMS2_DagID", "WMS2_Unit", "WMS2_Fence", "NumJobStarts", "HoldReason", "RemoveReason",
    "CompletionDate",
)  # fmt: skip


def _ad_counts(ad: Mapping[str, Any]) -> DagmanCounts | None:
    if optional_integer(ad, "DAG_NodesTotal") is None:
        return None
    return DagmanCounts(
        total=integer(ad, "DAG_NodesTotal"),
        done=integer(ad, "DAG_NodesDone"),
        prerun=integer(ad, "DAG_NodesPrerun"),
        queued=integer(ad, "DAG_NodesQueued"),
        postrun=integer(ad, "DAG_NodesPostrun"),
        ready=integer(ad, "DAG_NodesReady"),
        unready=integer(ad, "DAG_NodesUnready"),
        failed=integer(ad, "DAG_NodesFailed"),
        futile=integer(ad, "DAG_NodesFutile"),
        jobs_idle=integer(ad, "DAG_JobsIdle"),
        jobs_held=integer(ad, "DAG_JobsHeld"),
        jobs_running=integer(ad, "DAG_JobsRunning"),
    )


def job_outcome(job: DagmanJob) -> DagOutcome | None:
    """How a DAGMan job ended, by its history ad; None while it has not left the queue."""
    if not job.has_left:
        return None
    if job.job_status == 3:
        return DagOutcome.REMOVED
    failed = job.counts is not None and job.counts.failed > 0
    return ended(job.exit_code, job.status, failed=failed, started=job.counts is not None and job.counts.total > 0)


def metrics_outcome(metrics: DagMetrics) -> DagOutcome:
    """How a DAGMan ended, by its metrics file: the second source, when history does not answer or is already rotated."""
    return ended(metrics.exit_code, metrics.status, failed=metrics.nodes_failed > 0, started=metrics.nodes_total > 0)


def ended(exit_code: int | None, status: int | None, *, failed: bool, started: bool) -> DagOutcome:
    """23.9 ends a drained DAG with status OK, so exit 1 without a failed node is what tells it there."""
    if status == DagmanStatus.REMOVED:
        return DagOutcome.REMOVED
    if status == DagmanStatus.ABORTED:
        return DagOutcome.ABORTED
    if exit_code == 0:
        return DagOutcome.COMPLETED
    if status == DagmanStatus.HALTED or (status == DagmanStatus.OK and exit_code == 1 and started and not failed):
        return DagOutcome.DRAINED
    if status == DagmanStatus.NODE_FAILED or failed:
        return DagOutcome.NODES_FAILED
    return DagOutcome.BROKEN
