"""Operations on a DAG that decide on its request (spec 7.1); a DAG alone is only paused, by ``dags_app.services.stop``.

``remove`` is a hold of the request, ``rescue`` its release, ``move`` its move: a DAG that went away behind its request would be
found missing. Each is audited on the DAG, refusals too, and on the request as well.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from dags_app.models import DAG
from dags_app.services.stop import StopMode, steer_refused
from requests_app.models import Request, RequestStatus
from requests_app.selectors.requests import release_repeated
from requests_app.services.decisions import request_hold
from requests_app.services.moving import request_move
from requests_app.services.release import ReleaseMode, release_plan, request_release
from sites_app.models import Schedd
from wms2.actions import must_apply
from wms2.audit import audited
from wms2.errors import InvalidTransition


def dag_remove(*, dag: DAG, actor: str, reason: str) -> None:
    """Remove the whole tree and hold the request; a release goes on from the rescue file. Done twice it is done once."""
    request = _request_of(dag)
    stopped = request.status in (RequestStatus.HELD, RequestStatus.STOPPING) and dag.stop_requested_at is not None
    with _audited("dag_remove", dag, actor, reason):
        if not stopped or _last_of(dag) != dag:
            must_apply(f"DAG {dag.pk}", steer_refused(dag))
        request_hold(request=request, actor=actor, reason=reason)


def dag_rescue(*, dag: DAG, actor: str, reason: str) -> None:
    """Release the held request so that this DAG, its last one, is rescued. Repeated by the same person it is done once."""
    request = _request_of(dag)
    if release_repeated(request, actor=actor, reason=reason):
        return
    with _audited("dag_rescue", dag, actor, reason):
        must_apply(f"DAG {dag.pk}", rescue_refused(dag))
        request_release(request=request, actor=actor, reason=reason, mode=ReleaseMode.RESCUE)


def dag_move(*, dag: DAG, actor: str, reason: str, to: Schedd | None = None, mode: StopMode = StopMode.NOW) -> None:
    """Have the request go on at another schedd. Done twice it is done once."""
    with _audited("dag_move", dag, actor, reason):
        must_apply(f"DAG {dag.pk}", steer_refused(dag))
        request_move(request=_request_of(dag), actor=actor, reason=reason, to=to, mode=mode)


def rescue_refused(dag: DAG) -> str:
    """Why the release of its request could not rescue it; empty if it can."""
    request = _request_of(dag)
    if _last_of(dag) != dag:
        return f"It is not the last one of {request.request_name}; only that can be rescued."
    if request.status != RequestStatus.HELD:
        return f"{request.request_name} is {request.get_status_display()}, only the DAG of a held request can be rescued."
    try:
        release_plan(request, ReleaseMode.RESCUE)
    except InvalidTransition as error:
        return f"{str(error)[0].upper()}{str(error)[1:]}."
    return ""


def _last_of(dag: DAG) -> DAG | None:
    return DAG.objects.filter(workflow_id=dag.workflow_id, submitted_at__isnull=False).order_by("-fence").first()


def _request_of(dag: DAG) -> Request:
    """Read anew: the caller's DAG may have been read a while ago."""
    return Request.objects.get(workflow__pk=dag.workflow_id)


def _audited(action: str, dag: DAG, actor: str, reason: str) -> AbstractContextManager[None]:
    evidence = {"request": dag.workflow.request_id}
    return audited(actor=actor, action=action, target=dag.pk, target_type="dag", reason=reason, **evidence)
