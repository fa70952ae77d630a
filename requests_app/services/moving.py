"""Moving a request's DAG to another schedd: stop, rescue, elsewhere (docs/design/control.md, Moving; ADR 0026).

A move is recorded on the request, where placement reads it, with a stop if a DAG runs. The stop is then the life cycle's.
"""

from __future__ import annotations

from dags_app.services.stop import StopMode, dag_request_stop
from requests_app.admission.moves import Move, move_of
from requests_app.admission.placement import dag_to_rescue, nowhere_else
from requests_app.models import Request, RequestStatus, StopIntent
from requests_app.services.common import live_dag_of, put, recorded_operation, rows_read, stop_first, stopped_for
from requests_app.work.overrides import overrides_of
from sites_app.models import Schedd
from wms2.actions import AlreadyDone, applies
from wms2.errors import FieldRefused

S = RequestStatus
#: While there may be a DAG to stop, or one to go on from.
_MOVABLE = (S.QUEUED, S.PLANNING, S.ACTIVE, S.PARTIAL, S.STOPPING, S.RESUBMITTING, S.HELD)


def request_move(
    *, request: Request, actor: str, reason: str, to: Schedd | None = None, mode: StopMode = StopMode.NOW, drain: bool = False
) -> None:
    """Have its work go on at another schedd. A running DAG is stopped first; what is queued, planned or held goes there next.

    Where the other one sees the DAG's directory its rescue goes on there; otherwise what is done counts, and the rest is planned
    anew. A later move takes the place of one that has not arrived.

    Args:
        to: the schedd; without it, admission chooses another.
        drain: for a drain of its schedd: forgotten when that is taken back.
    """
    with recorded_operation(request, actor, "request_move", reason, to=to.name if to else "", mode=mode.value):
        here = schedd_of(request)
        if not applies(request, move_refused(request, to)) or here is None:
            return
        move = Move(here.pk, to.pk if to is not None else None, actor, reason, drain, to.name if to is not None else "")
        put(request, moving=move.kept)
        if stop_first(request, StopIntent.MOVE, actor, reason) and (dag := live_dag_of(request)) is not None:
            dag_request_stop(dag=dag, reason=f"{actor}: {reason}", mode=mode)


def move_refused(request: Request, to: Schedd | None = None) -> str:
    """Why it cannot be moved, or not there; empty if it can."""
    if request.status not in _MOVABLE:
        return f"It is {request.get_status_display()}; nothing of it runs or waits to run."
    if request.status == S.STOPPING and not StopIntent(request.stop_intent).goes_on:
        return str(stopped_for(request, StopIntent.MOVE))
    here = schedd_of(request)
    if here is None:
        return "Nothing of it is at a schedd; admission will choose one."
    if to == here:
        return f"It is at {here.name}."
    before = move_of(request)
    if before is not None and not before.drain and (before.away, before.to) == (here.pk, to.pk if to else None):
        return AlreadyDone(f"It is being moved already, by {before.actor}: {before.reason}")
    return nowhere_else(here, to, overrides_of(request).pools or (), rows_read(request).get("schedds"))


def schedd_of(request: Request) -> Schedd | None:
    """Where its DAG is, or would go on: the live one's, its rescue's, or where it was admitted to."""
    dag = live_dag_of(request) or dag_to_rescue(request)
    if dag is not None and dag.schedd is not None:
        return dag.schedd
    return request.reserved_schedd if request.status == S.PLANNING else None


def schedd_named(name: str) -> Schedd:
    """The schedd that an operator means, ``name`` or ``name in pool``.

    Raises:
        FieldRefused: it is not known, or several pools have one.
    """
    named, _, pool = name.partition(" in ")
    found = list(Schedd.objects.filter(name=named, **({"pool": pool} if pool else {})))
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{each.name} in {each.pool_id}" for each in found or Schedd.objects.all())
    raise FieldRefused("to", f"{'several are called' if found else 'no schedd is called'} {name}; there are {known}")
