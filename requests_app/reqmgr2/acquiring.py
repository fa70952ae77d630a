"""How staged requests of our team become ours (spec 11; ADR 0023): read, acquired, read back, checked, imported.

Any agent that finds a staged request may run it, WMCore's too; so all that are staged are acquired before the first is imported,
and what is read back afterwards proves it. A document that cannot be taken is left as it is and shown with its problems. Killed
anywhere, the next poll goes on: the claim is committed before the call, and acquired requests of our team that were not imported
are found again. Where it is not certain that no other system runs it, it is imported HELD. ReqMgr2's lists may be from before the
last change: they give names, the documents say what is so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog
from structlog.contextvars import bound_contextvars

from requests_app.models import TERMINAL, UNWANTED, ReqMgr2Request, Request, RequestStatus
from requests_app.service_level import no_new_work
from requests_app.services.intake import Received, reqmgr2_seen, request_read, request_receive
from wms2.adapters import factory
from wms2.adapters.reqmgr2 import Document, Seen
from wms2.conf import conf
from wms2.errors import DocumentRefused, Problem, RequestKnown, ServiceRejected, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.passes import row_by_itself

S = RequestStatus
ACTOR = "reqmgr2"
#: A document that was refused is looked at again after this.
REFUSED_AGAIN = timedelta(minutes=10)
_LATE = "another agent acquired it at the same moment"
_FOREIGN = "it is acquired, but not by this installation"
log = structlog.get_logger(__name__)


def team_take() -> str:
    """One look at what is staged for our team, and at what was acquired and never imported. The whole batch is acquired first:
    what takes longer follows when no other can take it any more. Returns what is wrong with names and documents that
    cannot be read.

    Raises:
        ServiceError: ReqMgr2 did not say which requests there are; nothing was done.
    """
    reqmgr2, team, began = factory.reqmgr2(), conf().team, clock.now()
    wanted = ("staged", "acquired", *(("staging",) if conf().reqmgr2_take_staging else ()))
    listed = {status: reqmgr2.names_of_team(team, status) for status in wanted}
    rows = ReqMgr2Request.objects.exclude(name=None).values_list("name", flat=True)
    here = set(rows.filter(name__in=listed["acquired"].read, request__isnull=False))
    waiting = [str(name) for name in rows.filter(request=None)]
    listed_names = [name for found in listed.values() for name in found.read]
    names = dict.fromkeys(name for name in (*listed_names, *waiting) if name not in here)
    there = reqmgr2.seen(list(names))
    ours = {name: document.get("RequestStatus") for name, document in there.items() if document.get("Team") == team}
    unread = [name for name, document in there.items() if not document.get("RequestStatus")]  # nothing is known of these
    staged, acquired, staging = ([name for name in ours if ours[name] == status] for status in ("staged", "acquired", "staging"))
    batch = {} if no_new_work() else _acquire(staged)
    # what is acquired already must be stored here, or it would never run
    _take_all([*batch, *acquired], batch)
    to_place = staging if "staging" in wanted else []
    placed = {} if no_new_work() else _acquire(list(_placed(to_place)))  # which takes a call and more for each of them
    _take_all(placed, placed)
    # neither ours nor to be had any more; of what another has begun to acquire since, nothing was read here
    gone = set(waiting) - {*staged, *staging, *acquired, *unread}
    ReqMgr2Request.objects.filter(request=None, name__in=gone).exclude(claimed_at__gte=began).delete()
    problems = [f"{status}: {found.problem}" for status, found in listed.items() if found.problem]
    return "; ".join([*problems, *(f"{name}: ReqMgr2 has no status of it" for name in unread)])


def _take_all(names: Iterable[str], acquired: Mapping[str, _Acquired]) -> None:
    for name in names:
        with bound_contextvars(request_name=name), row_by_itself("reqmgr2", name, partial(_broke, name)):
            _take(name, acquired.get(name))


def _broke(name: str, problem: str) -> None:
    """Said as of one that is refused, and tried again as soon as that is."""
    ReqMgr2Request.objects.filter(name=name).update(problem=f"not taken: {problem}", compared_at=clock.now())


def _placed(staging: Sequence[str]) -> Iterator[str]:
    for name in staging:
        with row_by_itself("reqmgr2", name, partial(_broke, name)):
            if factory.reqmgr2().is_placed(name):
                yield name


class _Acquired(NamedTuple):
    """As it was read back; ``doubt``: why it may not be ours."""

    document: Document
    doubt: str


def _acquire(staged: Sequence[str]) -> dict[str, _Acquired]:
    """Of what is staged, that whose document itself can be run. What only ConfigCache or DBS can refuse is refused afterwards."""
    rows = {name: _row(name, "staged") for name in staged}
    names = [name for name, row in rows.items() if not _waits(row)]
    if not names:
        return {}
    documents, taken = factory.reqmgr2().requests(names), dict[str, _Acquired]()
    factory.reqmgr2().queued_elsewhere(names, conf().team)  # what cannot be asked afterwards must not be acquired
    for name in names:
        with (
            bound_contextvars(request_name=name),
            row_by_itself("reqmgr2", name, partial(_broke, name)),
            _problems_of(rows[name]),
        ):
            request = rows[name].request or Request.objects.filter(request_name=name).first()
            if request is not None:
                _take_known(name, request)
            elif documents.get(name, {}).get("RequestStatus") in ("staged", "staging"):
                found = _acquire_one(rows[name], name, documents[name])
                if found.document["RequestStatus"] not in UNWANTED:  # ended there at the same moment
                    taken[name] = found
    return taken


def _acquire_one(row: ReqMgr2Request, name: str, document: Document) -> _Acquired:
    first = row.claimed_at is None
    if first:
        request_read(document=document, request_name=name)
        ReqMgr2Request.objects.filter(pk=row.pk, claimed_at=None).update(claimed_at=clock.now())
        crash_point("reqmgr2_take.claimed")
    if document.get("RequestStatus") == "staging":
        factory.reqmgr2().stage(name)
    document, refused = factory.reqmgr2().acquire(name)
    crash_point("reqmgr2_take.called")
    return _Acquired(document, _LATE if refused and first else "")


def _row(name: str, status: str) -> ReqMgr2Request:
    return ReqMgr2Request.objects.get_or_create(name=name, defaults={"status": status})[0]


def _waits(row: ReqMgr2Request) -> bool:
    """Whether it was refused a short time ago."""
    return bool(row.request is None and row.problem and row.compared_at and row.compared_at > clock.now() - REFUSED_AGAIN)


@contextmanager
def _problems_of(row: ReqMgr2Request) -> Iterator[None]:
    """What refuses it stands in its row."""
    try:
        yield
    except (DocumentRefused, RequestKnown, ServiceRejected) as error:
        _report(row, str(error), clock.now())
    except ServiceUnavailable as error:  # again with the next poll
        _report(row, f"not yet: {error}", None)


def _take(name: str, taken: _Acquired | None) -> None:
    """One that is acquired: just now, or before and never imported."""
    row = _row(name, "acquired")
    if _waits(row):
        return
    with _problems_of(row):
        request = row.request or Request.objects.filter(request_name=name).first()
        if request is not None:
            _take_known(name, request)
        elif taken is not None:
            _import(name, taken.document, taken.doubt)
        else:
            _import(name, None, _FOREIGN if row.claimed_at is None else "")


def _take_known(name: str, request: Request) -> None:
    """It was imported by its name, or is the clone of one of ours. A refused step says nothing: our own report may be first."""
    if request.status in (*TERMINAL, S.COMPLETED):
        detail = f"WMS2 has a request of this name that is {request.get_status_display()}; clone it in ReqMgr2 instead"
        raise DocumentRefused([Problem("RequestName", detail)])
    document, _ = factory.reqmgr2().acquire(name)
    reqmgr2_seen(name=name, request=request, seen=Seen.of(document))


def _import(name: str, document: Document | None, doubt: str) -> None:
    if doubt and factory.reqmgr2().queued([name], conf().team).get(name) is False:
        doubt = ""  # the work queue acquired it, and no agent pulls it from there
    request = request_receive(received=Received(request_name=name), actor=ACTOR, fetched=document, doubt=doubt)
    crash_point("reqmgr2_take.recorded")
    log.info("taken from ReqMgr2", held=request.hold_reason)


def _report(row: ReqMgr2Request, problem: str, looked_at: datetime | None) -> None:
    if row.problem != problem:
        log.error("a request of our team cannot be taken", problem=problem)
    ReqMgr2Request.objects.filter(pk=row.pk).update(problem=problem, compared_at=looked_at)
