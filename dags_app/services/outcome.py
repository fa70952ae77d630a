"""How a DAG ended: job history first, ``.metrics`` second, status file third (``htcondor.md`` section 2; decisions 2).

Where they disagree, or nothing is left to read, the outcome is unknown: the DAG stays as it is and an alert is raised. Unknown
is never COMPLETED.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dags_app import dagman
from dags_app.models import DAG, DAGStatus
from wms2.adapters import factory
from wms2.errors import StaleState

JOB_REMOVED, JOB_COMPLETED = 3, 4
#: DAG_Status values of the job ad.
DAG_OK, DAG_NODE_FAILED, DAG_ABORTED, DAG_REMOVED, DAG_HALTED = 0, 2, 3, 4, 6


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
    directory = Path(dag.submit_dir)
    metrics = dagman.read_metrics(directory / "workflow.dag.metrics")
    status = dagman.read_status_file(directory / "workflow.dag.status")
    if metrics is not None and str(metrics.dagman_id) != dag.dagman_cluster_id:
        metrics = None  # of an earlier submission of the same directory
    states = {name: int(node.state) for name, node in status.nodes.items()} if status else {}
    done, failed = sum(s == 5 for s in states.values()), sum(s == 6 for s in states.values())
    evidence = {
        "history": asdict(ad) if ad else None,
        "metrics": asdict(metrics) if metrics else None,
        "units": {"done": done, "failed": failed, "total": len(states)},
        "rescue": sorted(p.name for p in directory.glob("workflow.dag.rescue[0-9][0-9][0-9]")),
    }
    if ad is None and metrics is None:
        return Outcome(None, "not in the queue, not in the history, no metrics file", evidence=evidence)
    exit_code = ad.exit_code if ad else metrics.exit_code if metrics else None
    dag_status = ad.dag_status if ad else metrics.dag_status if metrics else None
    removed = (ad is not None and ad.job_status == JOB_REMOVED) or dag_status == DAG_REMOVED
    if removed or dag_status == DAG_HALTED:
        if dag.stop_requested_at is not None:
            return Outcome(DAGStatus.STOPPED, "stopped by us", evidence=evidence)
        why = ad.remove_reason if ad and ad.remove_reason else "halted or removed by somebody else"
        return Outcome(DAGStatus.REMOVED, why, evidence=evidence)
    if ad is not None and metrics is not None and metrics.exit_code != exit_code:
        return Outcome(None, f"job history says exit {exit_code}, the metrics file {metrics.exit_code}", evidence=evidence)
    if exit_code == 0 and dag_status == DAG_OK:
        if states and done != len(states):
            return Outcome(None, f"DAGMan says all done, its status file {done} of {len(states)}", evidence=evidence)
        return Outcome(DAGStatus.COMPLETED, "all units done", evidence=evidence)
    if exit_code == 0:
        return Outcome(None, f"exit 0 with DAG_Status {dag_status}", evidence=evidence)
    ended = DAGStatus.PARTIAL if done else DAGStatus.FAILED
    return Outcome(ended, f"exit {exit_code}, DAG_Status {dag_status}", aborted=dag_status == DAG_ABORTED, evidence=evidence)
