"""Verbs on a DAG (spec 7.1). Whatever changes what becomes of the request is the request's verb; a DAG alone is only paused.

``remove`` is a hold of the request, ``rescue`` its release: a DAG that went away behind its request would be found missing.
Each is audited on the DAG, refusals too; remove and rescue on the request as well.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from dags_app.models import DAG
from dags_app.services.watch import IN_QUEUE
from dags_app.states import history
from requests_app.models import Request, RequestStatus
from requests_app.selectors.requests import release_repeated
from requests_app.services.release import ReleaseMode, release_plan, request_release
from requests_app.services.verbs import request_hold
from sites_app.models import Schedd
from wms2.adapters import factory
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import JobStatus
from wms2.audit import audit, audited
from wms2.errors import InvalidTransition, ServiceError
from wms2.nudge import EVALUATE_REQUEST, nudge

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


def dag_remove(*, dag: DAG, actor: str, reason: str) -> None:
    """Remove the whole tree and hold the request; a release goes on from the rescue file. Done twice it is done once.

    Raises:
        InvalidTransition: it is not the request's live DAG.
    """
    request = _request_of(dag)
    with _told("dag_remove", dag, actor, reason):
        if not _put_aside(dag, request):
            _refuse(why_not_steered(dag))
        request_hold(request=request, actor=actor, reason=reason)


def dag_rescue(*, dag: DAG, actor: str, reason: str) -> None:
    """Release the held request so that this DAG, its last one, is rescued. Repeated by the same person it is done once.

    Raises:
        InvalidTransition: the request is not held, another DAG is its last, or there is no rescue file.
    """
    request = _request_of(dag)
    if release_repeated(request, actor=actor, reason=reason):
        return
    with _told("dag_rescue", dag, actor, reason):
        _refuse(why_not_rescued(dag))
        request_release(request=request, actor=actor, reason=reason, mode=ReleaseMode.RESCUE)


def why_not_steered(dag: DAG) -> str:
    """Why it can be neither paused nor removed; empty if it can."""
    if dag.status in IN_QUEUE and dag.schedd is not None:
        return ""
    return f"DAG {dag.pk} is {dag.get_status_display()}; it is not in the queue of a schedd"


def why_not_rescued(dag: DAG) -> str:
    """Why the release of its request could not rescue it; empty if it can."""
    request = _request_of(dag)
    if _last_of(dag) != dag:
        return f"DAG {dag.pk} is not the last one of {request.request_name}; only that can be rescued"
    if request.status != RequestStatus.HELD:
        return f"{request.request_name} is {request.get_status_display()}, only the DAG of a held request can be rescued"
    try:
        release_plan(request, ReleaseMode.RESCUE)
    except InvalidTransition as error:
        return str(error)
    return ""


def _steer(action: str, dag: DAG, actor: str, reason: str, steer: _Steer, becomes: JobStatus) -> int:
    told = partial(audit, actor=actor, action=action, target=dag.pk, target_type="dag", reason=reason)
    try:
        condor = _condor(dag)
        count = steer(condor)(int(dag.dagman_cluster_id), str(dag.directory_id), f"{actor}: {reason}")
    except (InvalidTransition, ServiceError) as error:
        told(refused=True, why=str(error))
        raise
    _observe(dag, becomes, f"{actor}: {reason}")
    history(dag, action, detail={"actor": actor, "reason": reason, "jobs": count})
    told(jobs=count, request=dag.workflow.request_id)
    nudge(EVALUATE_REQUEST, str(dag.workflow.request.pk))
    return count


def _observe(dag: DAG, becomes: JobStatus, reason: str) -> None:
    """What the schedd has just said, so that the request tells of it at once; the next look at the queue knows more."""
    held = becomes is JobStatus.HELD
    dag.observed = {**dag.observed, "job_status": int(becomes), "hold_reason": reason if held else ""}
    DAG.objects.filter(pk=dag.pk).update(observed=dag.observed)


def _condor(dag: DAG) -> HtcondorAdapter:
    _refuse(why_not_steered(dag))
    if dag.missing_since is not None:  # by now its number may be another job's, in another queue
        _refuse(f"DAG {dag.pk} is missing from the queue of {dag.schedd_name} since {dag.missing_since:%Y-%m-%d %H:%M:%S} UTC")
    schedd: Schedd = dag.schedd  # type: ignore[assignment]  # looked at above
    return factory.htcondor(schedd.name, schedd.collector)


def _put_aside(dag: DAG, request: Request) -> bool:
    """Whether the DAG was stopped and its request is on hold, or on the way there."""
    aside = request.status in (RequestStatus.HELD, RequestStatus.STOPPING)
    return aside and dag.stop_requested_at is not None and _last_of(dag) == dag


def _last_of(dag: DAG) -> DAG | None:
    return DAG.objects.filter(workflow_id=dag.workflow_id, submitted_at__isnull=False).order_by("-fence").first()


def _request_of(dag: DAG) -> Request:
    """Read anew: the caller's DAG may have been read a while ago."""
    return Request.objects.get(workflow__pk=dag.workflow_id)


def _told(action: str, dag: DAG, actor: str, reason: str) -> AbstractContextManager[None]:
    evidence = {"request": dag.workflow.request_id}
    return audited(actor=actor, action=action, target=dag.pk, target_type="dag", reason=reason, **evidence)


def _refuse(why: str) -> None:
    if why:
        raise InvalidTransition(why)
