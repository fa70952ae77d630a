"""How a DAG ended: job history and ``.metrics`` say it, status and rescue file must agree (ADR 0006).

Where two of the four disagree, or neither of the first two is there, the outcome is unknown: the DAG stays as it is and an alert
is raised. Unknown is never COMPLETED. Files of an earlier submission of the same directory are not asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from dags_app.dagman import DagMetrics, DagOutcome, DagStatusFile, NodeState, RescueFile, ended
from dags_app.models import DAG, DAGStatus
from dags_app.services import dag_files
from dags_app.services.submit import metrics_before
from sites_app.schedds import adapter
from wms2.adapters.types import HistoryAd, JobStatus
from wms2.errors import StaleState

#: Key in the outcome of a DAG that has not ended: what contradicts what. Taken away when it is in a queue again (``watch``).
_DISPUTED = "disputed"
_UNDER_WAY = (NodeState.PRERUN, NodeState.SUBMITTED, NodeState.POSTRUN)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end state, or None with the reason why it is not known."""

    status: DAGStatus | None
    why: str
    aborted: bool = False  # ABORT-DAG-ON (code 43)
    unproved: bool = False  # neither history nor metrics say anything; no contradiction
    disputed: bool = False  # what the history says is contradicted
    evidence: dict[str, Any] = field(default_factory=dict)


class Sources(NamedTuple):
    """What one submission left behind. None: absent, cut off, or of an earlier submission.

    ``rescue_name``: the rescue file that this submission wrote, "" for none; ``rescue`` what is in it, None when it is not whole.
    ``removed``: units whose DAGMan was removed while the DAG went on. ``damaged``: files that are there and not whole.
    """

    history: HistoryAd | None = None
    metrics: DagMetrics | None = None
    status: DagStatusFile | None = None
    rescue_name: str = ""
    rescue: RescueFile | None = None
    removed: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


def dag_outcome(dag: DAG) -> Outcome:
    """Judge a DAG that the schedd says is not in its queue.

    Raises:
        ServiceUnavailable: the schedd's history did not answer.
    """
    if dag.schedd is None:
        raise StaleState(f"DAG {dag.pk} has no schedd")
    condor = adapter(dag.schedd)
    ad = condor.history(int(dag.dagman_cluster_id), str(dag.pk), dag.created_at)
    outcome, disputed = judge(sources_of(dag, ad), stopped=dag.stop_requested_at is not None), dag.outcome.get(_DISPUTED)
    if disputed and ad is None:  # a schedd's history is cut off at its end: half a contradiction is no proof
        return replace(outcome, status=None, why=f"{disputed}; the job history has it no longer")
    return outcome


def dispute_note(dag: DAG, outcome: Outcome) -> None:
    """Keep that the job history has been part of a contradiction, for the time when it has forgotten the job."""
    if outcome.disputed and dag.outcome.get(_DISPUTED) != outcome.why:
        DAG.objects.filter(pk=dag.pk, status=dag.status).update(outcome={_DISPUTED: outcome.why})


def sources_of(dag: DAG, ad: HistoryAd | None) -> Sources:
    """Read the files of the DAG's directory, and leave out what is not of this submission.

    Of an earlier one may be metrics with this one's number too: numbers begin again in a queue that was lost, and at each schedd.
    """
    path = Path(dag.dag_file_path)
    damaged: list[str] = []
    metrics = dag_files.metrics(path, damaged)
    if metrics is not None and (metrics.cluster != dag.dagman_cluster_id or metrics.started_at == metrics_before(dag)):
        metrics = None
    status = dag_files.status(path, damaged)
    # when this submission began, in seconds of the submit host's clock; 0 when that is not known
    began = ad.queued_at_seconds if ad is not None else int(metrics.started_at) if metrics is not None else 0
    if status is not None and status.written_at < began:
        status = None  # DAGMan writes it anew when it starts: this one could not be replaced
    name = dag_files.rescue_name(path)
    if name == Path(dag.rescue_dag_path).name:
        name = ""  # this submission started from it
    rescue = dag_files.rescue(path, damaged) if name else None
    removed = dag_files.removed_units(path.parent, status, metrics) if status is not None else ()
    return Sources(ad, metrics, status, name, rescue, removed, tuple(damaged))


def judge(found: Sources, *, stopped: bool) -> Outcome:
    """The rules. ``stopped``: we asked for the end."""
    evidence = _evidence(found)
    by_history, by_metrics = history_outcome(found.history), found.metrics.outcome if found.metrics is not None else None
    ending = by_history or by_metrics
    if ending is None:
        why = "not in the queue, not in the history, no metrics file of this submission"
        return Outcome(None, why, unproved=found.history is None, evidence=evidence)
    if by_history and by_metrics and by_history is not by_metrics:
        why = f"the job history says {by_history.value}, the metrics file {by_metrics.value}"
        return Outcome(None, why, disputed=True, evidence=evidence)
    if ending in (DagOutcome.REMOVED, DagOutcome.DRAINED):
        if stopped:
            return Outcome(DAGStatus.STOPPED, "stopped by us", evidence=evidence)
        ad = found.history
        why = ad.remove_reason if ad is not None and ad.remove_reason else f"{ending.value} by another user"
        return Outcome(DAGStatus.REMOVED, why, evidence=evidence)
    objection = _against_completion(found) if ending is DagOutcome.COMPLETED else _against_failure(found, ending)
    if objection:
        return Outcome(None, objection, disputed=by_history is not None, evidence=evidence)
    if ending is DagOutcome.COMPLETED:
        return Outcome(DAGStatus.COMPLETED, "all units done", evidence=evidence)
    units, how = evidence["units"], ending.value
    if ending is DagOutcome.BROKEN:
        evidence["broken"] = how = _gave_up(found)
    why = f"{how}: {units['failed']} of {units['total']} units failed" if units["total"] else how
    if units["removed"]:
        why += f", {units['removed']} were removed from the queue"
    ended_as = DAGStatus.PARTIAL if units["done"] else DAGStatus.FAILED
    return Outcome(ended_as, why, aborted=ending is DagOutcome.ABORTED, evidence=evidence)


def _against_completion(found: Sources) -> str:
    """What contradicts an end with everything done; empty when nothing does."""
    metrics, status = found.metrics, found.status
    if metrics is not None and metrics.nodes_done != metrics.nodes_total:
        return f"DAGMan ended with exit code 0, its metrics file has {metrics.nodes_done} of {metrics.nodes_total} nodes done"
    if found.history is not None and found.history.nodes_failed:
        return f"DAGMan ended with exit code 0, the job history has {found.history.nodes_failed} failed nodes"
    if status is not None and not status.all_done and (status.final or not _is_frozen(found)):
        return f"DAGMan says all done, its status file {len(status.done_nodes())} of {len(status.nodes)}"
    if found.rescue_name:
        return f"DAGMan says all done, and has written {found.rescue_name}, which it does only when something is left"
    return ""


def _against_failure(found: Sources, ending: DagOutcome) -> str:
    """What contradicts an end with something left; empty when nothing does."""
    status = found.status
    if status is not None and status.nodes and status.all_done:
        return f"DAGMan says {ending.value}, its status file that all {len(status.nodes)} units are done"
    rescue = found.rescue
    if rescue is not None and rescue.total and len(rescue.done) == rescue.total:
        return f"DAGMan says {ending.value}, its rescue file that all {rescue.total} units are done"
    return ""


def _gave_up(found: Sources) -> str:
    """A DAGMan that could not run its DAG, or could not go on with it, in an operator's words."""
    ad, metrics = found.history, found.metrics
    code = ad.exit_code if ad is not None else metrics.exit_code if metrics is not None else None
    when = "when it was started again" if ad is not None and ad.counters_outdated else ""
    how = "by a signal" if code is None else f"with exit code {code}"
    return " ".join(filter(None, ("DAGMan itself gave up", how, when))) + "; its log says why"


def _evidence(found: Sources) -> dict[str, Any]:
    evidence: dict[str, Any] = {"units": _units(found), "rescue": found.rescue_name}
    if _is_frozen(found):
        evidence["status_file"] = "older than the end: it is not counted"
    if found.removed:
        evidence["removed_units"] = list(found.removed[:50])
    if found.damaged:
        evidence["damaged"] = list(found.damaged)
    ad, metrics = found.history, found.metrics
    if ad is not None:
        evidence["history"] = {name: getattr(ad, name) for name in ("job_status", "exit_code", "dag_status")}
        evidence["history"]["why"] = ad.remove_reason
    if metrics is not None:
        evidence["metrics"] = {
            "exit_code": metrics.exit_code, "dag_status": int(metrics.status), "done": metrics.nodes_done,
            "started_at": metrics.started_at,
        }  # fmt: skip
    return evidence


def _units(found: Sources) -> dict[str, int]:
    """Counts by the status file, or without one of the end by the rescue file."""
    if found.status is not None and not _is_frozen(found):
        done, total = len(found.status.done_nodes()), len(found.status.nodes)
        failed = len(found.status.failed_nodes()) - len(found.removed)
    elif found.rescue is not None:
        done, total = len(found.rescue.done), found.rescue.total
        failed = len(found.rescue.failed) - len(found.removed)
    elif found.status is not None and found.metrics is not None:
        done, total = found.metrics.nodes_done, found.metrics.nodes_total
        failed = found.metrics.nodes_failed - len(found.removed)
    else:
        done = failed = total = 0
    return {"done": done, "failed": failed, "removed": len(found.removed), "total": total}


def _is_frozen(found: Sources) -> bool:
    """Whether the status file is of a time before the end: DAGMan could not write it any more (a full disk, a crash).

    Metrics and rescue file say together that more had ended; without a rescue file, nodes that still run are enough, and where
    the metrics have everything done, that a further update was announced.
    """
    metrics, status, rescue = found.metrics, found.status, found.rescue
    if metrics is None or status is None:
        return False
    ended_nodes = (metrics.nodes_done, metrics.nodes_failed)
    if ended_nodes == (len(status.done_nodes()), len(status.failed_nodes())):
        return False
    if rescue is not None:
        return ended_nodes == (len(rescue.done), len(rescue.failed))
    if metrics.nodes_done == metrics.nodes_total:
        return not status.final
    return any(node.state in _UNDER_WAY for node in status.nodes)


def history_outcome(ad: HistoryAd | None) -> DagOutcome | None:
    """How a DAGMan ended, by its ad; None also for that of a job that has not left the queue: it says nothing of its end."""
    if ad is None or ad.job_status not in (JobStatus.REMOVED, JobStatus.COMPLETED):
        return None
    if ad.job_status == JobStatus.REMOVED:
        return DagOutcome.REMOVED
    if ad.counters_outdated:  # else exit code 1 of a DAGMan that did not come up again would read as a drained one's
        return ended(ad.exit_code, None, failed=False, started=False)
    failed, total = ad.nodes_failed or 0, ad.nodes_total or 0
    return ended(ad.exit_code, ad.dag_status, failed=failed > 0, started=total > 0)
