"""How a DAG ended: job history first, ``.metrics`` second, status file third (``htcondor.md`` section 2; decisions 2).

Where they disagree, or nothing is left to read, the outcome is unknown: the DAG stays as it is and an alert is raised. Unknown
is never COMPLETED.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dags_app.dagman import (
    DagMetrics,
    DagOutcome,
    DagStatusFile,
    NodeState,
    last_rescue,
    metrics_outcome,
    read_metrics,
    read_status,
)
from dags_app.dagman.jobs import ended
from dags_app.models import DAG, DAGStatus
from wms2.adapters import factory
from wms2.adapters.types import HistoryAd, JobStatus
from wms2.errors import StaleState


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end state, or None with the reason why it cannot be told."""

    status: DAGStatus | None
    why: str
    aborted: bool = False  # ABORT-DAG-ON (code 43)
    evidence: dict[str, Any] = field(default_factory=dict)


def dag_outcome(dag: DAG) -> Outcome:
    """Judge a DAG that the schedd says is not in its queue.

    Raises:
        ServiceUnavailable: the schedd's history did not answer.
    """
    if dag.schedd is None:
        raise StaleState(f"DAG {dag.pk} has no schedd")
    ad = factory.htcondor(dag.schedd.name, dag.schedd.collector).history(int(dag.dagman_cluster_id))
    path = Path(dag.dag_file_path)
    metrics = read_metrics(path.with_name(path.name + ".metrics"))
    if metrics is not None and metrics.cluster != dag.dagman_cluster_id:
        metrics = None  # of an earlier submission of the same directory
    return judge(dag, ad, metrics, read_status(path.with_name(path.name + ".status")), _evidence_rescue(path))


def judge(dag: DAG, ad: HistoryAd | None, metrics: DagMetrics | None, status: DagStatusFile | None, rescue: str) -> Outcome:
    """The rules, over what was found."""
    states = [node.state for node in status.nodes] if status else []
    done, failed = states.count(NodeState.DONE), states.count(NodeState.ERROR)
    evidence: dict[str, Any] = {"units": {"done": done, "failed": failed, "total": len(states)}, "rescue": rescue}
    if ad is not None:
        evidence["history"] = {
            "job_status": ad.job_status,
            "exit_code": ad.exit_code,
            "dag_status": ad.dag_status,
            "why": ad.remove_reason,
        }
    if metrics is not None:
        evidence["metrics"] = {"exit_code": metrics.exit_code, "dag_status": int(metrics.status), "done": metrics.nodes_done}
    by_history = _by_history(ad) if ad is not None else None
    by_metrics = metrics_outcome(metrics) if metrics is not None else None
    ending = by_history or by_metrics
    if ending is None:
        return Outcome(None, "not in the queue, not in the history, no metrics file of this submission", evidence=evidence)
    if by_history and by_metrics and by_history is not by_metrics:
        why = f"the job history says {by_history.value}, the metrics file {by_metrics.value}"
        return Outcome(None, why, evidence=evidence)
    if ending in (DagOutcome.REMOVED, DagOutcome.DRAINED):
        if dag.stop_requested_at is not None:
            return Outcome(DAGStatus.STOPPED, "stopped by us", evidence=evidence)
        why = ad.remove_reason if ad is not None and ad.remove_reason else f"{ending.value} by somebody else"
        return Outcome(DAGStatus.REMOVED, why, evidence=evidence)
    if ending is DagOutcome.COMPLETED:
        if states and done != len(states):
            return Outcome(None, f"DAGMan says all done, its status file {done} of {len(states)}", evidence=evidence)
        return Outcome(DAGStatus.COMPLETED, "all units done", evidence=evidence)
    ended_as = DAGStatus.PARTIAL if done else DAGStatus.FAILED
    why = f"{ending.value}: {failed} of {len(states)} units failed" if states else ending.value
    return Outcome(ended_as, why, aborted=ending is DagOutcome.ABORTED, evidence=evidence)


def _by_history(ad: HistoryAd) -> DagOutcome:
    if ad.job_status == JobStatus.REMOVED:
        return DagOutcome.REMOVED
    failed, total = ad.nodes_failed or 0, ad.nodes_total or 0
    return ended(ad.exit_code, ad.dag_status, failed=failed > 0, started=total > 0)


def _evidence_rescue(dag_file: Path) -> str:
    rescue = last_rescue(dag_file)
    return rescue.path.name if rescue else ""
