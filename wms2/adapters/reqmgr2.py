"""ReqMgr2: reading requests, pushing statuses, cloning (docs/design/services.md, ReqMgr2). What documents mean is intake's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from wms2.adapters import wire
from wms2.adapters.http import Fault, HttpService, plain_fault
from wms2.errors import NotFoundInService, ServiceError, ServiceRejected, ServiceUnavailable
from wms2.retry import TRIES

SERVICE = "reqmgr2"
Document = dict[str, Any]
"""A raw request document, ReqMgr2's spelling."""

_ANSWER = TypeAdapter(wire.ReqMgr2Answer)
_CREATED = TypeAdapter(wire.ReqMgr2Created)
_STATISTICS = frozenset({"total_jobs", "input_lumis", "input_events", "input_num_files"})
_NOT_PUT = _STATISTICS | {"RequestStatus"}

# Steps the system that runs a request takes; people and other services take the rest.
_OUR_STEPS: dict[str, str] = {
    "staged": "acquired",
    "acquired": "running-open",
    "running-open": "running-closed",
    "running-closed": "completed",
    "force-complete": "completed",
    "aborted": "aborted-completed",
}
# Where a request may be once it has passed one of our statuses.
_LATER: dict[str, tuple[str, ...]] = {
    "staged": ("acquired", "aborted", "failed"),
    "acquired": ("running-open", "aborted", "failed"),
    "running-open": ("running-closed", "force-complete", "aborted"),
    "running-closed": ("completed", "force-complete", "aborted"),
    "force-complete": ("completed",),
    "completed": ("closed-out", "rejected"),
    "closed-out": ("announced", "rejected"),
    "announced": ("normal-archived", "rejected"),
    "normal-archived": ("rejected-archived",),
    "rejected": ("rejected-archived",),
    "aborted": ("aborted-completed",),
    "aborted-completed": ("aborted-archived",),
}


def reqmgr2_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """ReqMgr2 says what is wrong in ``X-Error-*`` headers; the body is HTML or empty."""
    words = [text for text in (headers.get("X-Error-Detail"), headers.get("X-Error-Info")) if text]
    if not words:
        return plain_fault(status, headers, body)
    return Fault(": ".join(words), headers.get("X-REST-Status"))


class ReqMgr2:
    """One ReqMgr2 instance; ``http`` has ``…/reqmgr2/data`` as its base and ``reqmgr2_fault`` as its parser."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def request(self, name: str) -> Document:
        """The raw document.

        Raises:
            NotFoundInService: ReqMgr2 has no such request.
        """
        answer = self._http.get_json("/request", operation="request", params={"name": name})
        for element in wire.parse(_ANSWER, answer, service=SERVICE, operation="request").result:
            if isinstance(element, dict) and isinstance(element.get(name), dict):
                document: Document = element[name]
                return document
        raise NotFoundInService(SERVICE, "request", f"no request {name!r}")

    def set_status(self, name: str, status: str) -> None:
        """Take one step of the status table; repeatable.

        ReqMgr2 refuses a step that was already taken, so whatever fails is settled by reading the status back.

        Raises:
            ServiceRejected: the status table has no such step.
        """
        try:
            self._put(name, {"RequestStatus": status}, "set_status", tries=1)
        except ServiceError:
            if self.request(name).get("RequestStatus") != status:
                raise

    def advance_status(self, name: str, status: str) -> str:
        """Take all steps that lead to ``status``; nothing if the request is there or has passed it. Returns the status it is in.

        Raises:
            NotFoundInService: no such request.
            ServiceRejected: no steps of ours lead from its present status to ``status``.
        """
        present = str(self.request(name).get("RequestStatus"))
        steps = _steps(present, status)
        if steps is None:
            if present in _passed(status):
                return present
            detail = f"{name} is {present}; no steps of the running system lead from there to {status}"
            raise ServiceRejected(SERVICE, "advance_status", detail)
        for step in steps:
            self.set_status(name, step)
        return status

    def put(self, name: str, changes: Mapping[str, object]) -> None:
        """Change keys of a document, e.g. ``RequestPriority``; repeatable. A status goes through ``set_status``.

        Raises:
            ServiceRejected: refused, or dropped without a word because the request's status does not allow the change.
        """
        unfit = sorted(_NOT_PUT & changes.keys())
        if unfit:
            raise ValueError(f"{', '.join(unfit)}: a status goes through set_status, statistics through add_statistics")
        self._put(name, changes, "put", tries=TRIES)
        document = self.request(name)
        dropped = [key for key, value in changes.items() if document.get(key) != value]
        if dropped:
            detail = f"{name} is {document.get('RequestStatus')}: {', '.join(dropped)} cannot be changed"
            raise ServiceRejected(SERVICE, "put", detail)

    def add_statistics(self, name: str, statistics: Mapping[str, int]) -> None:
        """Add to ``total_jobs``, ``input_lumis``, ``input_events``, ``input_num_files``. Not repeatable: ReqMgr2 adds them up.

        After ``ServiceUnavailable`` they may have been added.
        """
        if set(statistics) != _STATISTICS:
            raise ValueError(f"statistics are {sorted(_STATISTICS)}, all four")
        self._put(name, statistics, "add_statistics", tries=1)

    def clone(self, name: str) -> str:
        """Clone a request; returns the new name. Not repeated: after ``ServiceUnavailable`` a clone may exist."""
        answer = self._http.send_json("POST", f"/request/clone/{quote(name, safe='')}", operation="clone", body={})
        result = wire.parse(_ANSWER, answer, service=SERVICE, operation="clone").result
        if len(result) != 1:
            raise ServiceUnavailable(SERVICE, "clone", f"expected one clone, got {len(result)}; look for it before cloning again")
        return wire.parse(_CREATED, result[0], service=SERVICE, operation="clone").request

    def _put(self, name: str, changes: Mapping[str, object], operation: str, tries: int) -> None:
        self._http.send_json("PUT", f"/request/{quote(name, safe='')}", operation=operation, body=dict(changes), tries=tries)


def _steps(present: str, wanted: str) -> list[str] | None:
    """Our steps from one status to another; None if they do not lead there."""
    steps: list[str] = []
    while present != wanted:
        following = _OUR_STEPS.get(present)
        if following is None:
            return None
        steps.append(following)
        present = following
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
