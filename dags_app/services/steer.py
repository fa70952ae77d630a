"""Holding and releasing a DAG (spec 7.1): a DAG alone is only paused; whatever changes what becomes of the request is its verb.

Each is audited on the DAG, refusals too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dags_app.models import DAG, IN_QUEUE
from dags_app.states import history
from sites_app.models import Schedd
from sites_app.schedds import adapter
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import JobStatus
from wms2.audit import audit
from wms2.errors import InvalidTransition, ServiceError
from wms2.wakes import wake_now

_Steer = Callable[[HtcondorAdapter], Callable[[int, str, str], int]]


def dag_hold(*, dag: DAG, actor: str, reason: str) -> int:
    """Pause a DAG: its DAGMan jobs of both levels and the jobs that wait for a slot are held; returns how many are held anew.

    Jobs that run go on; what comes after them waits for the release. Done twice it is done once.

    Raises:
        InvalidTransition: it is not in a queue.
        ServiceUnavailable, ServiceRejected: the schedd did not do it.
    """
    return _steer("dag_hold", dag, actor, reason, lambda condor: condor.hold_tree, JobStatus.HELD)


def dag_release(*, dag: DAG, actor: str, reason: str) -> int:
    """Let a paused DAG go on, each DAGMan in recovery mode; returns how many jobs are released.

    Raises:
        InvalidTransition: it is not in a queue.
        ServiceUnavailable, ServiceRejected: the schedd did not do it.
    """
    return _steer("dag_release", dag, actor, reason, lambda condor: condor.release_tree, JobStatus.IDLE)


def steer_refused(dag: DAG) -> str:
    """Why it can be neither paused nor removed; empty if it can."""
    if dag.status in IN_QUEUE and dag.schedd is not None:
        return ""
    return f"It is {dag.get_status_display()}; it is not in the queue of a schedd."


def _steer(action: str, dag: DAG, actor: str, reason: str, steer: _Steer, becomes: JobStatus) -> int:
    told = partial(audit, actor=actor, action=action, target=dag.pk, target_type="dag", reason=reason)
    try:
        condor = _condor(dag)
        count = steer(condor)(int(dag.dagman_cluster_id), str(dag.directory_id), f"{actor}: {reason}")
    except (InvalidTransition, ServiceError) as error:
        told(refused=True, why=str(error))
        raise
    _observe(dag, becomes, f"{actor}: {reason}")
    wake_now(dag.workflow.request.pk, action)
    history(dag, action, detail={"actor": actor, "reason": reason, "jobs": count})
    told(jobs=count, request=dag.workflow.request_id)
    return count


def _observe(dag: DAG, becomes: JobStatus, reason: str) -> None:
    """What the schedd has just said, so that the request tells of it at once; the next look at the queue knows more."""
    held = becomes is JobStatus.HELD
    dag.observed = {**dag.observed, "job_status": int(becomes), "hold_reason": reason if held else ""}
    DAG.objects.filter(pk=dag.pk).update(observed=dag.observed)


def _condor(dag: DAG) -> HtcondorAdapter:
    if why := steer_refused(dag):
        raise InvalidTransition(f"DAG {dag.pk}: {why}")
    if dag.missing_since is not None:  # by now its number may be another job's, in another queue
        raise InvalidTransition(
            f"DAG {dag.pk} is missing from the queue of {dag.schedd_name} since {dag.missing_since:%Y-%m-%d %H:%M:%S} UTC"
        )
    schedd: Schedd = dag.schedd  # type: ignore[assignment]  # looked at above
    return adapter(schedd)
