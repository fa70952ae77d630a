"""Who completes with whom, and who depends on whom: groups and dependencies of requests (ADR 0024).

A group's row is locked for every change. No transaction waits for it while it holds a request: it is refused, to be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from requests_app.models import Request, RequestGroup, RequestStatus, Workflow
from requests_app.services.common import put, recorded_operation
from requests_app.states import mark_related_due
from requests_app.work.groups import ENDED, GONE_ON, group_completes, group_locked, input_among
from wms2.actions import applies
from wms2.audit import audited
from wms2.errors import DocumentRefused, InvalidTransition, Problem
from wms2.runtime.locks import LockKey, transaction_lock

S = RequestStatus


def request_group(*, request: Request, actor: str, reason: str, in_group: str = "") -> None:
    """Have it complete together with the others of a group, which is made if it does not exist; without one, by itself.

    Raises:
        InvalidTransition: it completes already, or has ended and is to be put into a group.
        DocumentRefused: the requests of the group complete already.
    """
    with recorded_operation(request, actor, "request_group", reason, in_group=in_group, was_in=str(request.in_group or "")):
        applies(request, group_refused(request))
        if in_group and request.status in ENDED:
            raise InvalidTransition(f"{request}: it can only be taken out of its group")
        if request.in_group is not None:
            _locked(request.in_group.name, actor)
            mark_related_due(request)
        group_join(request, in_group, actor, reason)


def group_refused(request: Request) -> str:
    """Why nothing can be changed about its group; empty if it can."""
    over = request.status in GONE_ON or (request.status in ENDED and request.in_group_id is None)
    return f"It is {request.get_status_display()}; it completes with no other any more." if over else ""


def group_join(request: Request, name: str, actor: str, note: str = "") -> None:
    """Into the group of that name, or into none; in the caller's transaction.

    Raises:
        DocumentRefused: its requests complete already.
    """
    group = _locked(name, actor, note) if name else None
    if group is not None and group_completes(group):
        raise DocumentRefused([Problem("in_group", f"the requests of group {group} complete already")])
    put(request, in_group=group)


def _locked(name: str, actor: str, note: str = "") -> RequestGroup:
    group, _ = RequestGroup.objects.get_or_create(name=name, defaults={"created_by": actor, "note": note})
    return group_locked(group)


def group_dissolve(*, group: RequestGroup, actor: str, reason: str) -> None:
    """Have each of its requests complete by itself; the empty group stays."""
    with audited(actor=actor, action="group_dissolve", target=group.name, target_type="group", reason=reason):
        for request in Request.objects.filter(in_group=group).order_by("pk"):
            request_group(request=request, actor=actor, reason=reason)


def request_depend(*, request: Request, actor: str, reason: str, depends_on: Sequence[str] = ()) -> None:
    """Replace the requests that it waits for; with none it begins by itself.

    Raises:
        InvalidTransition: it has begun.
        DocumentRefused: there is no such request, it would wait for itself, or its input is nothing that they write.
    """
    with recorded_operation(request, actor, "request_depend", reason, depends_on=list(depends_on)):
        applies(request, depend_refused(request))
        parents_set(request, depends_on)


def depend_refused(request: Request) -> str:
    """Why its parents cannot be changed; empty if they can."""
    begun = request.status not in (S.NEW, S.SUBMITTED, S.HELD) or Workflow.objects.filter(request=request).exists()
    return f"It is {request.get_status_display()} and has begun." if begun else ""


def parents_set(request: Request, names: Sequence[str]) -> None:
    """In the caller's transaction.

    Raises:
        DocumentRefused: there is no such request, it would wait for itself, or its input is nothing that they write.
    """
    parents = list(Request.objects.filter(request_name__in=names).order_by("request_name"))
    if missing := set(names) - {row.request_name for row in parents}:
        raise DocumentRefused([Problem("depends_on", f"there is no request {min(missing)}")])
    with transaction_lock(LockKey.DEPENDENCIES):
        if circle := _circle(request, parents):
            raise DocumentRefused([Problem("depends_on", f"it would wait for itself: {' -> '.join(map(str, circle))}")])
        if input_among(request.input_dataset, parents) is None:
            raise DocumentRefused([Problem("depends_on", f"these requests do not write its input {request.input_dataset}")])
        request.depends_on.set(parents)


def _circle(request: Request, parents: Sequence[Request]) -> list[Request]:
    """The way from the request over these parents back to itself; empty if there is no such way."""
    ways, seen = [[request, row] for row in parents], set(parents)
    while ways:
        way = ways.pop()
        if way[-1] == request:
            return way
        further = set(way[-1].depends_on.only("request_name")) - seen
        seen |= further
        ways += [[*way, row] for row in further]
    return []
