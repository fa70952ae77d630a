"""Verbs on a DAG (spec 7.1). Whatever changes what becomes of the request is the request's verb; a DAG alone is only paused.

``remove`` is a hold of the request, ``rescue`` its release: a DAG that went away behind its request would be found missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dags_app.models import DAG
from dags_app.services.watch import IN_QUEUE
from dags_app.states import history
from requests_app.audit import audit
from requests_app.services.release import ReleaseMode, request_release
from requests_app.services.verbs import request_hold
from sites_app.models import Schedd
from wms2.adapters import factory
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.errors import InvalidTransition


def dag_hold(*, dag: DAG, actor: str, reason: str) -> int:
    """Pause a DAG: its DAGMan jobs of both levels and the jobs that wait for a slot are held; returns how many are held anew.

    Jobs that run go on; what comes after them waits for the release. Done twice it is done once.

    Raises:
        InvalidTransition: it is not in a queue.
        ServiceUnavailable, ServiceRejected: the schedd did not do it.
    """
    return _act("dag_hold", dag, actor, reason, lambda condor: condor.hold_tree)


def dag_release(*, dag: DAG, actor: str, reason: str) -> int:
    """Let a paused DAG go on, each DAGMan in recovery mode; returns how many jobs are released.

    Raises:
        InvalidTransition: it is not in a queue.
        ServiceUnavailable, ServiceRejected: the schedd did not do it.
    """
    return _act("dag_release", dag, actor, reason, lambda condor: condor.release_tree)


def dag_remove(*, dag: DAG, actor: str, reason: str) -> None:
    """Remove the whole tree and hold the request; a release goes on from the rescue file.

    Raises:
        InvalidTransition: it is not the request's live DAG.
    """
    _refuse_ended(dag)
    request_hold(request=dag.workflow.request, actor=actor, reason=reason)


def dag_rescue(*, dag: DAG, actor: str, reason: str) -> None:
    """Release the held request so that this DAG, its last one, is rescued.

    Raises:
        InvalidTransition: the request is not held, another DAG is its last, or there is no rescue file.
    """
    last = DAG.objects.filter(workflow_id=dag.workflow_id, submitted_at__isnull=False).order_by("-fence").first()
    if last is None or last.pk != dag.pk:
        raise InvalidTransition(f"DAG {dag.pk} is not the last one of {dag.workflow.request_id}; only that can be rescued")
    request_release(request=dag.workflow.request, actor=actor, reason=reason, mode=ReleaseMode.RESCUE)


def _act(
    action: str, dag: DAG, actor: str, reason: str, verb: Callable[[HtcondorAdapter], Callable[[int, str, str], int]]
) -> int:
    told = partial(audit, actor=actor, action=action, target=dag.pk, target_type="dag", reason=reason)
    try:
        schedd = _refuse_ended(dag)
    except InvalidTransition as error:
        told(refused=True, why=str(error))
        raise
    count = verb(factory.htcondor(schedd.name, schedd.collector))(
        int(dag.dagman_cluster_id), str(dag.directory_id), f"{actor}: {reason}"
    )
    history(dag, action, detail={"actor": actor, "reason": reason, "jobs": count})
    told(jobs=count, request=dag.workflow.request_id)
    return count


def _refuse_ended(dag: DAG) -> Schedd:
    if dag.status not in IN_QUEUE or dag.schedd is None:
        raise InvalidTransition(f"DAG {dag.pk} is {dag.get_status_display()}; it is not in the queue of a schedd")
    return dag.schedd
