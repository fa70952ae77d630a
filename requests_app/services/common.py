"""What all operations share: the row locked, what may run judged, the audit written, the request woken. Owns no operation
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from django.db import transaction

from dags_app.models import DAG, LIVE_DAG
from dags_app.selectors import dag_live
from requests_app.feed import emit_event
from requests_app.models import Request, RequestStatus, StopIntent, Workflow
from requests_app.states import transition
from requests_app.work.rounds import RoundFiles, round_close, round_open
from wms2.actions import AlreadyDone
from wms2.audit import audit
from wms2.errors import InvalidTransition, RequestKnown, StaleState
from wms2.runtime.due import mark_due_now

S = RequestStatus


@contextmanager
def recorded_operation(request: Request, actor: str, action: str, reason: str, **evidence: Any) -> Iterator[None]:
    """Act on the request as it is now, its row locked; audit, refusals included; then its evaluation is due."""
    entry: dict[str, Any] = {"actor": actor, "action": action, "target": request.request_name, "reason": reason, **evidence}
    old = request.status
    try:
        with transaction.atomic():
            # a planner that is about to record its DAG waits or has done so: what may run cannot change under the operation
            Request.objects.select_for_update(no_key=True).get(pk=request.pk)
            request.refresh_from_db()
            old = request.status
            yield
            audit(**entry, old=old, new=request.status)
            mark_due_now(request.pk, action)
    except InvalidTransition as error:
        audit(**entry, refused=True, status=old, why=str(error))
        raise


def put(request: Request, **columns: Any) -> None:
    """Write these columns, and no others, in the row and here."""
    Request.objects.filter(pk=request.pk).update(**columns)
    for name, value in columns.items():
        setattr(request, name, value)


def free_name(stem: str, number: int) -> str:
    """The first from ``<stem><number>`` on that no request has."""
    names = (f"{stem}{each}" for each in count(number))
    return next(name for name in names if not Request.objects.filter(request_name=name).exists())


def request_known_refuse(*, request_name: str) -> None:
    """Refuse a name that is taken.

    Raises:
        RequestKnown: naming the request that has it.
    """
    status = Request.objects.filter(request_name=request_name).values_list("status", flat=True).first()
    if status is not None:
        raise RequestKnown(request_name, str(status))


def stopped_for(request: Request, intent: StopIntent) -> str:
    """Why a request that is being stopped cannot be stopped for this; empty if it can, for something weaker."""
    now = StopIntent(request.stop_intent)
    return AlreadyDone(f"It is being stopped already: {now.label.lower()}.") if now.strength >= intent.strength else ""


def may_run(request: Request) -> bool:
    """Whether a DAG runs, or may run unknown to WMS2."""
    return request.status == S.ACTIVE or (request.status == S.PLANNING and live_dag_of(request) is not None)


def live_dag_of(request: Request) -> DAG | None:
    """The DAG that runs or is on its way; as it was read with its workflow (``rows_read``), else as it is."""
    workflow = workflow_known(request)
    if workflow is None or "dags" not in workflow.rows_read:
        return dag_live(workflow.pk) if workflow else None
    return next((dag for dag in workflow.rows_read["dags"] if dag.status in LIVE_DAG), None)


def rows_read(request: Request) -> Mapping[str, Sequence[Any]]:
    """What a page has read with the request's workflow, by name; reads nothing."""
    workflow = getattr(request, "workflow", None) if Request.workflow.is_cached(request) else None
    return workflow.rows_read if workflow else {}


def workflow_known(request: Request) -> Workflow | None:
    """As it was read with the request, else as it is, without its PSets; ``recorded_operation`` forgets what was read before."""
    if Request.workflow.is_cached(request):
        return getattr(request, "workflow", None)
    return Workflow.objects.filter(request=request).defer("psets").first()


def stop_first(request: Request, intent: StopIntent, actor: str, reason: str, **changes: Any) -> bool:
    """Whether it has to stop before the intent can be done: then it is STOPPING, for this or for something stronger."""
    if request.status == S.STOPPING:
        _strengthen(request, intent, actor, reason, **changes)
    elif may_run(request):
        transition(request, S.STOPPING, actor=actor, reason=reason, stop_intent=intent, **changes)
    else:
        return False
    return True


def _strengthen(request: Request, intent: StopIntent, actor: str, reason: str, **changes: Any) -> None:
    """A later intent may only be stronger; a weaker one changes nothing."""
    if intent.strength <= StopIntent(request.stop_intent).strength:
        return
    changes = {"stop_intent": intent, **changes}
    if Request.objects.filter(pk=request.pk, status=S.STOPPING).update(**changes) != 1:
        raise StaleState(f"{request.request_name} is no longer stopping")
    emit_event("request.stop_intent", request, to=intent, actor=actor, reason=reason)
    for name, value in changes.items():
        setattr(request, name, value)


def give_up(request: Request, reason: str, files: RoundFiles) -> None:
    """Close the open round; in the caller's transaction, ``files`` read before it."""
    workflow = Workflow.objects.filter(request=request).first()
    round_ = round_open(workflow) if workflow else None
    if round_ is not None:
        round_close(round_=round_, reason=reason, bad_input=files.bad_input(round_), abandoned=files.abandoned)
