"""What others do in ReqMgr2 to requests that are ours, done here as operations of the actor ``reqmgr2`` (spec 11; ADR 0023).

One question by names a poll. An end that people set there is an end here, whenever it is seen; ``failed``, which WMCore's work
queue sets, is a hold; what it cannot mean here any more is shown to operators. A priority and the site lists are taken when they
have changed there since they were last seen, so that what an operator changes here afterwards stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog
from django.db.models import Q

from requests_app.models import AFTER_WORK, DONE, TERMINAL, UNWANTED, HoldCode, Lease, ReqMgr2Request, Request, RequestStatus
from requests_app.reqmgr2.acquiring import ACTOR, team_take
from requests_app.selectors.reqmgr2 import POLL
from requests_app.services import request_abort, request_complete, request_hold, request_set_priority, request_set_sites
from requests_app.services.decisions import abort_refused, complete_refused, hold_refused, priority_refused
from requests_app.services.intake import fields_of
from wms2.actions import AlreadyDone
from wms2.adapters import factory
from wms2.adapters.reqmgr2 import Seen
from wms2.conf import conf
from wms2.errors import InvalidTransition, ServiceError, StaleState
from wms2.runtime import clock
from wms2.runtime.notify import POLL_REQMGR2
from wms2.runtime.passes import row_by_itself
from wms2.work.failing import task_failed

S = RequestStatus
_FAILED = "failed"
_DONE = ("completed", "closed-out", "announced")
_ENOUGH = ("force-complete", *_DONE, "normal-archived")
_UNWANTED = {*UNWANTED} - {_FAILED}
_OVER = {*UNWANTED, *_ENOUGH} - {"aborted", "force-complete"}  # ReqMgr2 moves these two on
_AHEAD = {*_ENOUGH, "aborted-completed", "aborted-archived"} - {"force-complete"}
_TWICE, _REFUSED = "the work queue of WMCore has it too: its work would be done twice", "not followed: "
#: Of those that are at an end here and there, and may be rejected there still, so many are compared with a poll, in turn.
_MOST_OVER = 40
log = structlog.get_logger(__name__)


def reqmgr2_poll(*, force: bool = False) -> bool:
    """Take what is staged for us and follow what others did, if that is wanted and due; whether it was done.

    Done twice at a time it is done once.
    """
    began, pause = clock.now(), timedelta(seconds=conf().reqmgr2_poll_seconds / 2)
    just_now = Lease.objects.filter(name=POLL, heartbeat_at__gt=began - pause, heartbeat_at__lt=began + pause)
    if not conf().reqmgr2_follow or (just_now.exists() and not force):
        return False
    try:
        problem = team_take()
        requests_follow()
    except ServiceError as error:
        log.warning("ReqMgr2 cannot be followed, again with the next poll", error=str(error))
        changed = {"data": {"error": str(error)}}
        Lease.objects.update_or_create(name=POLL, defaults=changed, create_defaults=changed | {"acquired_at": began})
        task_failed(POLL_REQMGR2, error)
        return False
    Lease.objects.update_or_create(name=POLL, defaults={"heartbeat_at": began, "data": {"error": problem} if problem else {}})
    return True


def requests_follow() -> None:
    """Compare all that are not at an end both here and there.

    Raises:
        ServiceError: ReqMgr2 did not answer; nothing was done.
    """
    live = ReqMgr2Request.objects.filter(over=False, request__isnull=False).exclude(name=None).values_list("name", flat=True)
    ended = ReqMgr2Request.objects.filter(over=True, status__in=_DONE, request__status__in=DONE).exclude(name=None)
    followed, asked_at = [str(name) for name in live], clock.now()
    names = [*followed, *map(str, ended.order_by("compared_at").values_list("name", flat=True)[:_MOST_OVER])]
    rows, seen = ReqMgr2Request.objects.filter(name__in=names), factory.reqmgr2().seen(names)
    elsewhere = factory.reqmgr2().queued_elsewhere(followed, conf().team)
    rows.filter(over=True).exclude(name__in=seen).update(compared_at=asked_at)  # gone there: the others have their turn
    for row in rows.filter(name__in=seen).select_related("request").defer("request__request_data"):
        if row.request is not None and row.name is not None:
            with row_by_itself("reqmgr2", row.name, partial(_broke, row)):
                _follow(row, row.request, Seen.of(seen[row.name]), row.name in elsewhere, asked_at)


def _broke(row: ReqMgr2Request, problem: str) -> None:
    """What of it changed there is still a change at the next poll."""
    ReqMgr2Request.objects.filter(pk=row.pk).update(problem=f"not yet: {problem}")


def _follow(row: ReqMgr2Request, request: Request, seen: Seen, elsewhere: bool, asked_at: datetime) -> None:
    changed, waits, hold = fields_of(seen), "", _reason_to_hold(row, request, seen, elsewhere)
    same = all(value == getattr(row, name) for name, value in changed.items() if name != "status")
    refused = same and row.problem.startswith(_REFUSED)  # and it has not changed there since
    problem = row.problem if refused or seen.status == "staged" else ""  # of a staged one: why it is not acquired
    if hold is not None:
        waits = hold_refused(request)
        if waits and request.status not in (*TERMINAL, *DONE, S.CLEANING):
            when = "again for that when it is released" if isinstance(waits, AlreadyDone) else f"for that once it can be: {waits}"
            problem = f"{hold.reason}; it is held {when}"
            changed["status"] = row.status if hold.code == HoldCode.FAILED_ELSEWHERE else seen.status
    older = ReqMgr2Request.objects.filter(Q(compared_at=None) | Q(compared_at__lt=asked_at), pk=row.pk)
    for action in _verbs(row, request, seen, hold if not waits else None):
        if not older.exists():
            return  # this process was stopped, and another has followed what came since
        try:
            action()
        except InvalidTransition as error:
            problem = f"{_REFUSED}{error}"
            log.warning("a change in ReqMgr2 was refused", request_name=request.request_name, error=str(error))
        except StaleState as error:  # it was not done: the next poll sees it as a change again
            problem, changed, waits = f"not yet: {error}", {"status": row.status}, str(error)
    request.refresh_from_db(fields=["status"])
    beyond = _beyond(request, seen)
    over = request.status in (*TERMINAL, *DONE) and seen.status in _OVER and not beyond
    elements = row.elements if hold is not None and hold.code != HoldCode.RUN_ELSEWHERE else elsewhere and not waits
    older.update(**changed, compared_at=asked_at, elements=elements, over=over, problem=problem or beyond)


class _Hold(NamedTuple):
    code: HoldCode
    reason: str


def _reason_to_hold(row: ReqMgr2Request, request: Request, seen: Seen, elsewhere: bool) -> _Hold | None:
    """Each is a reason once: a release after it is an operator's, who knows of it."""
    hold = None
    if seen.status == _FAILED and row.status != _FAILED:
        when = f" at {seen.since:%Y-%m-%d %H:%M} UTC" if seen.since else ""
        queue = "which has it too" if elsewhere else "which may have it in an old list"
        why = f"ReqMgr2 has it as failed, set by {seen.set_by or 'an unknown identity'}{when}"
        queue = f"WMCore's work queue, {queue}, does so with what it cannot split"
        hold = _Hold(HoldCode.FAILED_ELSEWHERE, f"{why}; {queue}")
    elif elsewhere and not row.elements:
        hold = _Hold(HoldCode.RUN_ELSEWHERE, _TWICE)
    done = hold is not None and (request.status, request.hold_code) == (S.HELD, hold.code)  # before a poll was killed
    return None if done else hold


def _beyond(request: Request, seen: Seen) -> str:
    """What others have done there that can have no consequence here, and that an operator must know."""
    if request.status in DONE and seen.status in UNWANTED:
        return f"it is {seen.status} in ReqMgr2 since it completed here: clean it, or keep what it made"
    if request.status in AFTER_WORK and seen.status in _UNWANTED:
        here = f"it is {seen.status} in ReqMgr2, and here it is {request.get_status_display()}"
        return f"{here}: hold it, and it is aborted; else it completes, and is then to be cleaned or kept"
    if request.status in (*TERMINAL, *DONE, S.CLEANING) or request.is_recovering or seen.status not in _AHEAD:
        return ""
    hours = f"{(clock.now() - seen.since) // timedelta(hours=1)} hours" if seen.since else "an unknown time"
    ahead = f"ReqMgr2 is ahead by {hours}: it has it as {seen.status}, and here it is {request.get_status_display()}"
    return f"{ahead}; what is done meanwhile with its outputs is done with a part of them"


def _verbs(row: ReqMgr2Request, request: Request, seen: Seen, hold: _Hold | None) -> Iterator[Callable[[], None]]:
    """What is to be done here, if it can be."""
    why = f"ReqMgr2 has it as {seen.status}"
    if seen.status in _UNWANTED:
        if not abort_refused(request):
            yield lambda: request_abort(request=request, actor=ACTOR, reason=why)
        return
    if seen.status in _ENOUGH:
        if request.is_recovering:  # it says what was so before: files were lost since
            return
        if not complete_refused(request):
            yield lambda: request_complete(request=request, actor=ACTOR, reason=why)
        elif not hasattr(request, "workflow") and not abort_refused(request):  # nothing of it is done
            yield lambda: request_abort(request=request, actor=ACTOR, reason=why)
        return
    if hold is not None:
        yield lambda: request_hold(request=request, actor=ACTOR, reason=hold.reason, code=hold.code)
    if priority_refused(request):
        return
    priority = seen.priority
    if priority is not None and priority not in (row.priority, request.priority):
        yield lambda: request_set_priority(request=request, priority=priority, actor=ACTOR, reason="changed in ReqMgr2")
    lists = {"site_whitelist": seen.site_whitelist, "site_blacklist": seen.site_blacklist}
    if seen.site_whitelist and any(list(value) != getattr(row, name) for name, value in lists.items()):
        yield lambda: request_set_sites(request=request, actor=ACTOR, reason="changed in ReqMgr2", **lists)
