"""ReqMgr2: reading requests, pushing statuses, cloning (docs/design/services.md, ReqMgr2). What documents mean is intake's."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from math import inf
from typing import Any, TypeVar
from urllib.parse import quote

import structlog

from wms2.adapters import wire
from wms2.adapters.caller import TRIES
from wms2.adapters.http import Fault, HttpService, plain_fault
from wms2.errors import NotFoundInService, ServiceError, ServiceRejected, ServiceUnavailable

SERVICE = "reqmgr2"
log = structlog.get_logger(__name__)
Document = dict[str, Any]
"""A raw request document, ReqMgr2's spelling."""

T = TypeVar("T")
#: In a document of the work queue, what the element is.
_ELEMENT = "WMCore.WorkQueue.DataStructs.WorkQueueElement.WorkQueueElement"
#: Names in one address, which front ends cut at 8 KB.
_NAMES = 40
_NAME = re.compile(r"[!-~]{1,255}")
#: Between two questions to a view whose first answer may be from before the last change (``stale=update_after``).
VIEW_SECONDS = 5.0
_FOLLOWED = ("RequestName", "Team", "RequestStatus", "RequestTransition", "RequestPriority", "SiteWhitelist", "SiteBlacklist")
#: As they are sent, and as the document has their sums.
STATISTICS = {
    "total_jobs": "TotalEstimatedJobs",
    "input_lumis": "TotalInputLumis",
    "input_events": "TotalInputEvents",
    "input_num_files": "TotalInputFiles",
}

_ROLE = (
    "the certificate of WMS2 lacks a role in CRIC: acquired, running-open, running-closed, completed, failed and"
    " aborted-completed need web-service of facops, everything else that is written needs ops"
)

#: A front end refuses with 403 as well, for other reasons.
_NO_ROLE = b"You are not allowed to access this resource"

# Steps the system that runs a request takes; people and other services take the rest.
_OUR_STEPS: dict[str, str] = {
    "staged": "acquired",
    "acquired": "running-open",
    "running-open": "running-closed",
    "running-closed": "completed",
    "force-complete": "completed",
    "aborted": "aborted-completed",
}
# Steps that people and the transfer service take otherwise: with a clone of ours, whose data is where it was.
_ASSIGNING = {"new": "assignment-approved", "assignment-approved": "assigned", "assigned": "staging", "staging": "staged"}
# Where a request may be once it has passed one of these statuses.
_LATER: dict[str, tuple[str, ...]] = {
    "new": ("assignment-approved", "rejected"),
    "assignment-approved": ("assigned", "rejected"),
    "assigned": ("staging", "aborted"),
    "staging": ("staged", "aborted"),
    "staged": ("acquired", "aborted", "failed"),
    "acquired": ("running-open", "aborted", "failed"),
    "running-open": ("running-closed", "force-complete", "aborted"),
    "running-closed": ("completed", "force-complete", "aborted"),
    "force-complete": ("completed",),
    "completed": ("closed-out", "rejected"),
    "closed-out": ("announced", "rejected"),
    "announced": ("normal-archived", "rejected"),
    "failed": ("rejected",),
    "normal-archived": ("rejected-archived",),
    "rejected": ("rejected-archived",),
    "aborted": ("aborted-completed",),
    "aborted-completed": ("aborted-archived",),
}
_GONE = frozenset({"aborted", "aborted-completed", "aborted-archived", "rejected", "rejected-archived"})
_ENDED = frozenset({"completed", "closed-out", "announced", "failed"})


def reqmgr2_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """ReqMgr2 says what is wrong in ``X-Error-*`` headers; the body is HTML or empty. A missing role and what MSTransferor did
    not take have no such headers."""
    words = [text for text in (headers.get("X-Error-Detail"), headers.get("X-Error-Info")) if text]
    fault = Fault(": ".join(words), headers.get("X-REST-Status")) if words else plain_fault(status, headers, body)
    is_role = status == HTTPStatus.FORBIDDEN and _NO_ROLE in body
    return replace(fault, detail=f"{_ROLE}: {fault.detail}") if is_role else fault


@dataclass(frozen=True, slots=True)
class Seen:
    """What others may change of a request that is being run; ``priority`` is None where the document has none. ``since`` and
    ``set_by``: when and by whom the status was set, as far as its history says."""

    status: str
    priority: int | None
    site_whitelist: tuple[str, ...]
    site_blacklist: tuple[str, ...]
    since: datetime | None = None
    set_by: str = ""

    @classmethod
    def of(cls, document: Document) -> Seen:
        """As a document says it. Raises ServiceUnavailable: it has no status, so the rest says nothing either."""
        priority, lists = document.get("RequestPriority"), (document.get("SiteWhitelist"), document.get("SiteBlacklist"))
        white, black = (tuple(sorted([each] if isinstance(each, str) else each or ())) for each in lists)
        status, history = _status(document), document.get("RequestTransition") or [{}]
        step: Document = next((each for each in reversed(history) if each.get("Status") == status), {})
        since = datetime.fromtimestamp(step["UpdateTime"], UTC) if step.get("UpdateTime") else None
        return cls(status, _whole(priority), white, black, since, str(step.get("DN") or ""))


class ReqMgr2:
    """One ReqMgr2 instance; ``http`` has ``…/reqmgr2/data`` as its base and ``reqmgr2_fault`` as its parser, ``couch`` has the
    base ``…/couchdb`` of the same host, where WMCore's work queue is."""

    def __init__(self, http: HttpService, couch: HttpService) -> None:
        self._http, self._couch = http, couch

    def request(self, name: str) -> Document:
        """The raw document. Raises NotFoundInService: ReqMgr2 has no such request; ServiceUnavailable: it has no status."""
        found = self._documents("request", name=name)
        if name not in found:
            raise NotFoundInService(SERVICE, "request", f"no request {name!r}")
        _status(found[name])
        return found[name]

    def requests(self, names: Sequence[str]) -> dict[str, Document]:
        """The raw documents; names that ReqMgr2 does not know are left out."""
        return self._in_portions("requests", names)

    def names_of_team(self, team: str, status: str) -> wire.Rows[str]:
        """The requests of a team that are in a status, or were: the list may be from before the last change, ``seen`` is not."""
        params = {"status": status, "team": team, "detail": "false"}
        answer = self._http.get_json(wire.ReqMgr2Answer, "/request", operation="names_of_team", params=params)
        return wire.readable(answer.result, _name, service=SERVICE, operation="names_of_team")

    def seen(self, names: Sequence[str]) -> dict[str, Document]:
        """What ``Seen`` is made of, each by itself; names that ReqMgr2 does not know are left out."""
        return self._in_portions("seen", names, mask=_FOLLOWED)

    def queued(self, names: Sequence[str], team: str = "") -> dict[str, bool]:
        """Those that WMCore's work queue has taken in: the document of its inbox has the request's name, and is there before the
        request becomes acquired. True: it may run them. False: it has only elements for ``team`` that no agent has pulled; these
        are inert where no agent pulls the team's work, and the answer is another one once one does."""
        inbox = [row for row in self._queue("workqueue_inbox/_all_docs", names) if row.get("error") != "not_found"]
        teams = {row["key"]: _element(row).get("TeamName") for row in inbox if not _part(row.get("value")).get("deleted")}
        inert = {name for name, of in teams.items() if of == team != ""}
        for row in self._queue("workqueue/_design/WorkQueue/_view/elementsByWorkflow", sorted(inert), reduce="false"):
            element = _element(row)
            if element.get("ChildQueueUrl") or element.get("TeamName") != team:
                inert.discard(row["key"])
        if inert:
            log.info("in WMCore's work queue, and pulled by no agent", requests=sorted(inert))
        return {name: name not in inert for name in teams}

    def queued_elsewhere(self, names: Sequence[str], team: str = "") -> set[str]:
        """Those that WMCore may run."""
        return {name for name, runs in self.queued(names, team).items() if runs}

    def _queue(self, view: str, names: Sequence[str], **params: str) -> list[dict[str, Any]]:
        if not names:
            return []
        params = {"include_docs": "true", **params}
        body = {"keys": list(names)}
        answer = self._couch.send_json("POST", f"/{view}", operation="queued_elsewhere", body=body, params=params, tries=TRIES)
        rows = wire.parse(wire.CouchRows, answer, service=SERVICE, operation="queued_elsewhere").rows
        return [_keyed(row, names) for row in rows]

    def is_placed(self, name: str) -> bool:
        """Whether the input of a request that is ``staging`` is where it is wanted, by MSMonitor's rule: it has a transfer
        document, without transfers or with each one complete to the ``PartialCopy`` of its campaign."""
        documents = self._auxiliary(list[wire.TransferDocument], "transferinfo", name)
        return bool(documents) and all(
            (each.completion or [0.0])[-1] >= 100 * self._partial_copy(each.campaign) for each in documents[0].transfers
        )

    def _partial_copy(self, campaign: str) -> float:
        """Of a campaign that is not known no transfer is complete."""
        return next((each.partial_copy for each in self._auxiliary(list[wire.Campaign], "campaignconfig", campaign)), inf)

    def _auxiliary(self, shape: type[list[T]], kind: str, name: str) -> list[T]:
        try:
            answer = self._http.get_json(wire.ReqMgr2Answer, f"/{kind}/{quote(name, safe='')}", operation=kind)
        except NotFoundInService:
            return []
        return wire.parse(shape, answer.result, service=SERVICE, operation=kind)

    def stage(self, name: str) -> None:
        """As MSMonitor does, which may be first: then this is refused, and it does not matter."""
        with suppress(ServiceRejected):
            self._put(name, {"RequestStatus": "staged"}, "stage")

    def acquire(self, name: str) -> tuple[Document, bool]:
        """Take a staged request, so that no other system does. Returns it as it is then, and whether the step was refused,
        because it was not staged any more.

        Raises:
            ServiceRejected, ServiceUnavailable: it is still staged, or its status is unknown.
        """
        refusal: ServiceError | None = None
        try:
            self._put(name, {"RequestStatus": "acquired"}, "acquire")
        except ServiceError as error:
            refusal = error
        document = self.request(name)
        if (still := document.get("RequestStatus")) in ("staging", "staged"):
            raise refusal or ServiceUnavailable(SERVICE, "acquire", f"{name} is {still} still, although it was acquired")
        return document, isinstance(refusal, ServiceRejected)

    def set_status(self, name: str, status: str, **more: object) -> str:
        """Take one step of the status table; repeatable. Returns the status it is in, which may be a later one.

        ReqMgr2 refuses a step that was already taken, so whatever fails is settled by reading the status back.

        Raises:
            ServiceRejected: the status table has no such step.
        """
        try:
            self._put(name, {"RequestStatus": status, **more}, "set_status")
        except ServiceError:
            present = str(self.request(name).get("RequestStatus"))
            if present != status and present not in _passed(status):
                raise
            return present
        return status

    def advance_status(self, name: str, status: str, assignment: Mapping[str, object] | None = None) -> str:
        """Take all steps that lead to ``status``; nothing if the request is there or has passed it. Returns the status it is in.

        Args:
            assignment: of a clone of ours: it is approved and assigned with this, too.

        Raises:
            NotFoundInService: no such request.
            ServiceRejected: no steps of ours lead from its present status to ``status``.
        """
        present = str(self.request(name).get("RequestStatus"))
        steps = _steps(present, status, _OUR_STEPS if assignment is None else _ASSIGNING | _OUR_STEPS)
        if steps is None:
            if present in _passed(status) or present in _GONE:
                return present
            detail = f"{name} is {present}; no steps of the running system lead from there to {status}"
            raise ServiceRejected(SERVICE, "advance_status", detail)
        for step in steps:
            present = self.set_status(name, step, **(assignment or {}) if step == "assigned" else {})
            if present != step:  # it was moved further meanwhile
                break
        return present

    def give_up(self, name: str, status: str) -> str:
        """Have it ``failed`` or ``aborted``, or rejected while it is not assigned, as its present status allows; one that is at
        an end stays, unless ``rejected`` is what is asked for. Returns the status it is in.

        Raises:
            NotFoundInService: no such request.
        """
        present = str(self.request(name).get("RequestStatus"))
        for wanted in (status, "aborted", "rejected"):
            if (present not in _ENDED or status == "rejected") and wanted in _LATER.get(present, ()):
                return self.set_status(name, wanted)
        return present

    def add_statistics(self, name: str, statistics: Mapping[str, int]) -> None:
        """Add to ``total_jobs``, ``input_lumis``, ``input_events``, ``input_num_files``. Not repeatable: ReqMgr2 adds them up.

        After ``ServiceUnavailable`` they may have been added.
        """
        if statistics.keys() != STATISTICS.keys():
            raise ValueError(f"statistics are {sorted(STATISTICS)}, all four")
        self._put(name, statistics, "add_statistics")

    def clone(self, name: str, mark: str) -> str:
        """Clone a request; returns the new name. Repeatable: a clone with this ``mark`` among its comments is found again. Raises
        NotFoundInService: no such request."""
        original = self.request(name)
        field, key = ("PrepID", "prep_id") if original.get("PrepID") else ("Campaign", "campaign")
        for pause_seconds in (0.0, VIEW_SECONDS):  # the first question brings the view up to date
            time.sleep(pause_seconds)
            like = self._documents("clone", **{key: str(original.get(field)), "mask": ("RequestName", "Comments")})
            for known, document in like.items():
                if mark in str(document.get("Comments")):
                    return known
        path, body = f"/request/clone/{quote(name, safe='')}", {"Comments": mark}
        answer = self._http.send_json("POST", path, operation="clone", body=body)
        result = wire.parse(wire.ReqMgr2Answer, answer, service=SERVICE, operation="clone").result
        if len(result) != 1:
            raise ServiceUnavailable(SERVICE, "clone", f"expected one clone, got {len(result)}")
        return wire.parse(wire.ReqMgr2Created, result[0], service=SERVICE, operation="clone").request

    def _in_portions(self, operation: str, names: Sequence[str], **params: Sequence[str]) -> dict[str, Document]:
        found: dict[str, Document] = {}
        for first in range(0, len(names), _NAMES):
            found |= self._documents(operation, name=names[first : first + _NAMES], **params)
        return found

    def _documents(self, operation: str, **params: str | Sequence[str]) -> dict[str, Document]:
        answer = self._http.get_json(wire.ReqMgr2Answer, "/request", operation=operation, params=params)
        found = (each for rows in answer.result if isinstance(rows, dict) for each in rows.items())
        return {name: document if isinstance(document, dict) else {} for name, document in found}  # it is there, whatever it says

    def _put(self, name: str, changes: Mapping[str, object], operation: str) -> None:
        self._http.send_json("PUT", f"/request/{quote(name, safe='')}", operation=operation, body=dict(changes))


def _name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{str(name)[:300]!r} is no name of a request")
    return name


def _status(document: Document) -> str:
    if not (status := document.get("RequestStatus")):
        raise ServiceUnavailable(SERVICE, "request", f"a document without RequestStatus: {str(document)[:200]}")
    return str(status)


def _whole(priority: object) -> int | None:
    """Nothing is rounded: a request with another priority than people meant looks as if it were in order."""
    try:
        return None if priority is None else int(str(priority).removesuffix(".0"))
    except ValueError:
        raise ValueError(f"RequestPriority {str(priority)[:100]} is no whole number") from None


def _keyed(row: object, names: Sequence[str]) -> dict[str, Any]:
    """A row of CouchDB, with the name it was asked by as its ``key``; in the inbox that is its ``id`` too. Raises
    ServiceUnavailable: it may be of any of them, and what it is of would be run twice."""
    found = dict(_part(row))
    name = next((each for each in (found.get("key"), found.get("id")) if each in names), None)
    if name is None:
        detail = f"the work queue has a row that is of none of the requests asked for: {str(row)[:300]}"
        raise ServiceUnavailable(SERVICE, "queued_elsewhere", detail)
    return found | {"key": name}


def _element(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of one that cannot be read it is not known that no agent pulls it."""
    return _part(_part(row.get("doc")).get(_ELEMENT))


def _part(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _steps(present: str, wanted: str, table: Mapping[str, str]) -> list[str] | None:
    """Our steps from one status to another; None if they do not lead there."""
    steps: list[str] = []
    while present != wanted:
        if present not in table:
            return None
        present = table[present]
        steps.append(present)
    return steps


def _passed(status: str) -> set[str]:
    """Statuses a request may be in after ``status``."""
    found: set[str] = set()
    todo = [status]
    while todo:
        for later in _LATER.get(todo.pop(), ()):
            if later not in found:
                found.add(later)
                todo.append(later)
    return found
