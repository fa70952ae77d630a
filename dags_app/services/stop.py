"""Pausing a DAG that is in a queue, and stopping it: holding and releasing (spec 7.1), draining and removing.

Held or released, a DAG is only paused; what decides on the request is an operation of the request. Both are audited on the DAG,
refusals too. A stop is an intent in the rows: the removal is asked for again each cycle until the DAG is proved gone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path

import structlog

from dags_app.models import DAG, IN_QUEUE
from dags_app.planning import writer
from dags_app.states import history
from sites_app.schedds import adapter
from wms2.actions import must_apply
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import JobStatus, Submission
from wms2.audit import audit, refusals_audited
from wms2.errors import InvalidTransition, ServiceError
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.due import mark_due_now

log = structlog.get_logger(__name__)
#: A DAGMan that was released and does not run after so long is removed without. HTCondor 25 lets it cool down for 300 s.
RESUME_SECONDS = 900.0
#: What a DAGMan that has run before needs to read its log again; removed earlier it might not know what is done.
RECOVERY_SECONDS = 5.0

_Steer = Callable[[HtcondorAdapter], Callable[[Submission, str], int]]


class StopMode(StrEnum):
    """How a DAG is stopped."""

    NOW = "now"  # removed; jobs that run are lost
    DRAIN = "drain"  # halted: work units that run finish, no other starts; then DAGMan ends by itself


def dag_request_stop(*, dag: DAG, reason: str, mode: StopMode = StopMode.NOW) -> None:
    """Note on the row that we want it gone; idempotent. A drain may become a removal, never the other way round."""
    ends_drain = mode is StopMode.NOW and dag.stop_mode == StopMode.DRAIN
    if dag.stop_requested_at is not None and not ends_drain:
        return
    # of a drained one the removal is asked for only now: ``dag_run_again`` counts from here, however long it was drained
    dag.stop_requested_at, dag.stop_reason, dag.stop_mode = clock.now(), reason, mode.value
    dag.save(update_fields=["stop_requested_at", "stop_reason", "stop_mode"])
    history(dag, "stop_requested", detail={"reason": reason, "mode": dag.stop_mode})


def dag_drain(*, dag: DAG) -> None:
    """Halt the outer DAGMan: no new work unit starts, those that run finish, then it writes its rescue file and ends.

    The inner DAGMans are not halted, so nothing that runs is lost (docs/design/htcondor.md, Removal, rescue, drain).

    Raises:
        StaleState: its directory is a later submission's, which must not be halted.
        ServiceUnavailable: another process has been writing the directory's fence for long.
    """
    with writer.held_by(Path(dag.submit_dir), dag.fence):
        halt_file(dag).touch()


def dag_run_again(*, dag: DAG) -> bool:
    """Let a DAGMan run before it is removed; True while it has to be waited for.

    Only one that runs writes a rescue file when it is removed: one on hold has no process, and all that its units have begun
    would be lost (measured on 23.9). One that has never run has nothing to lose. What does not run for long is removed as it is.

    Raises:
        ServiceUnavailable: no answer; the next cycle asks again.
    """
    asked_at = dag.stop_requested_at or clock.now()
    status, starts = dag.observed.get("job_status"), int(dag.observed.get("job_starts") or 0)
    if not starts or clock.now() - asked_at > timedelta(seconds=RESUME_SECONDS):
        return False
    if status == JobStatus.HELD and dag.schedd is not None:
        condor = adapter(dag.schedd)
        condor.release_tree(_submission(dag), "released to be removed with a rescue file")
        log.info("released to be removed", dag_id=str(dag.pk), cluster=dag.dagman_cluster_id)
        return True
    running_seconds = clock.now().timestamp() - float(dag.observed.get("status_since_seconds") or 0)
    return status == JobStatus.IDLE or (starts > 1 and running_seconds < RECOVERY_SECONDS)


def _submission(dag: DAG) -> Submission:
    return Submission(int(dag.dagman_cluster_id), str(dag.pk), str(dag.directory_id), dag.fence)


def halt_file(dag: DAG) -> Path:
    """DAGMan looks for it; it must be gone before the directory is submitted again."""
    return Path(f"{dag.dag_file_path}.halt")


def dag_remove(*, dag: DAG) -> None:
    """Ask the schedd to remove the DAGMan job (inner DAGMans and jobs go with it). Repeatable.

    Raises:
        ServiceUnavailable: no answer; the next cycle asks again.
    """
    if dag.status not in IN_QUEUE or dag.schedd is None:
        return
    crash_point("stop.claimed")
    adapter(dag.schedd).remove(int(dag.dagman_cluster_id), dag.stop_reason or "stopped by WMS2", str(dag.pk))
    crash_point("stop.called")
    log.info("removal asked for", dag_id=str(dag.pk), cluster=dag.dagman_cluster_id)


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
    record = partial(audit, actor=actor, action=action, target=dag.pk, target_type="dag", reason=reason)
    with refusals_audited(record, InvalidTransition, ServiceError):
        count = steer(condor_of(dag))(_submission(dag), f"{actor}: {reason}")
    _observe(dag, becomes, f"{actor}: {reason}")
    mark_due_now(dag.workflow.request.pk, action)
    history(dag, action, detail={"actor": actor, "reason": reason, "jobs": count})
    record(jobs=count, request=dag.workflow.request_id)
    return count


def _observe(dag: DAG, becomes: JobStatus, reason: str) -> None:
    """What the schedd has just said, so that the request shows it at once; the next look at the queue knows more."""
    held = becomes is JobStatus.HELD
    dag.observed = {**dag.observed, "job_status": int(becomes), "hold_reason": reason if held else ""}
    DAG.objects.filter(pk=dag.pk).update(observed=dag.observed)


def condor_of(dag: DAG) -> HtcondorAdapter:
    """The schedd that has it in its queue. Raises InvalidTransition: none, as far as is known."""
    must_apply(f"DAG {dag.pk}", steer_refused(dag))
    if dag.missing_since is not None:  # by now its number may be another job's, in another queue
        raise InvalidTransition(
            f"DAG {dag.pk} is missing from the queue of {dag.schedd_name} since {dag.missing_since:%Y-%m-%d %H:%M:%S} UTC"
        )
    return adapter(dag.schedd)  # type: ignore[arg-type]  # looked at above
