"""The HTTP face of the simulated ReqMgr2 (``/reqmgr2/data/...``)."""

import html
import json
import sys
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from deploy.simulators.httpd import BadRequestBody, Request, Response
from deploy.simulators.reqmgr2 import queries
from deploy.simulators.reqmgr2.checking import InvalidSpec
from deploy.simulators.reqmgr2.creation import Requestor, Surroundings, clone, create
from deploy.simulators.reqmgr2.others import Habits, WorkQueue
from deploy.simulators.reqmgr2.states import PROTECTED, REQUEST_TYPES, TRANSITIONS
from deploy.simulators.reqmgr2.store import Document, RequestStore, UnknownRequest
from deploy.simulators.reqmgr2.updates import store_changes, update

DEFAULT_LOGIN = "requester"
UNKNOWN_DN = "unknown"
AGENT_DN = "/DC=ch/DC=cern/OU=computers/CN=wmagent/vocms0000.cern.ch"
MAX_HEADER_CHARACTERS = 200
INVALID_SPEC = 1102
_METHODS = {
    "request": ("GET", "POST", "PUT"),
    "status": ("GET",),
    "type": ("GET",),
    "info": ("GET",),
    "about": ("GET",),
    "transferinfo": ("GET", "PUT"),
    "campaignconfig": ("GET", "PUT"),
}


@dataclass(eq=False)
class RestError(Exception):
    """A refusal with the four headers ReqMgr2 sends; ``app_code`` is its X-REST-Status, 0 where it sends a page alone."""

    status: int
    app_code: int
    detail: str
    info: str = ""
    allow: str = ""


class ReqMgr2Service:
    """State and HTTP handling of ReqMgr2."""

    def __init__(self, path: Path, around: Surroundings, queue: WorkQueue, habits: Habits) -> None:
        self.store = RequestStore(path)
        self.habits = habits
        self._surroundings, self._queue = around, queue
        self._auxiliary: dict[tuple[str, str], Any] = {}  # transfers and campaigns, as MSTransferor and people write them

    def move_on(self) -> None:
        """What others do by now."""
        for name, before, after in self.habits.due(self.store, self._queue):
            with self.store.changing(name) as document:
                if document["RequestStatus"] == before:
                    store_changes(document, {"RequestStatus": after}, Requestor("agent", AGENT_DN))

    def protected_lfns(self) -> list[str]:
        """Of WMStats: directories of all requests that are active; MSUnmerged deletes the others."""
        self.move_on()
        documents = self.store.in_statuses(PROTECTED).values()
        return sorted({base for document in documents for base in document.get("OutputModulesLFNBases") or []})

    def handle(self, request: Request, parts: list[str]) -> Response:
        """Answer ``/<api>[/...]`` (``parts`` without the mount point)."""
        error_id = uuid.uuid4().hex
        self.move_on()
        try:
            return self._route(request, parts, error_id)
        except InvalidSpec as refusal:
            detail = f"Invalid spec parameter value: {refusal.text}"
            return _error_response(RestError(400, INVALID_SPEC, detail), error_id)
        except RestError as error:
            return _error_response(error, error_id)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            # ReqMgr2 answers 400 with the exception's text to whatever its checks stumble over
            if not isinstance(error, ValueError):  # that is a value without the form it needs
                traceback.print_exception(error, file=sys.stderr)
            return _error_response(RestError(400, INVALID_SPEC, f"Invalid spec parameter value: {error}"), error_id)

    def _route(self, request: Request, parts: list[str], error_id: str) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        if method not in ("GET", "POST", "PUT"):
            raise RestError(405, 202, "Request method not supported", allow="GET HEAD POST PUT")
        if method != "GET" and request.query:
            raise RestError(405, 203, "Query arguments not supported for this request method", allow="GET HEAD")
        if not parts:
            raise RestError(400, 205, "API not specified")
        api, rest = parts[0], parts[1:]
        if api not in _METHODS:
            raise RestError(
                404, 207, "API not supported", info=f'Api "{api}" not found. This method supports these Apis: {list(_METHODS)}'
            )
        if method not in _METHODS[api]:
            raise RestError(405, 204, "API not supported for this request method", allow=" ".join(_METHODS[api]))
        pretty = _wants_pretty(request, api, method)
        if method == "GET":
            return _result(self._get(request, api, rest), pretty=pretty)
        if method == "PUT" and api != "request":
            self._auxiliary[api, "/".join(rest)] = _json_body(request)
            return _result([{"ok": True}], pretty=pretty)
        if method == "PUT":
            return _result(self._put(request, rest, error_id), pretty=pretty)
        return _result(self._post(request, rest), pretty=pretty)

    def _get(self, request: Request, api: str, rest: list[str]) -> list[Any]:
        if api == "request":
            return queries.find(self.store, request.query, rest[0] if len(rest) == 1 else None)
        if api == "status":
            table = {before: list(after) for before, after in TRANSITIONS.items()}
            return [table] if dict(request.query).get("transition") == "true" else list(TRANSITIONS)
        if api in ("transferinfo", "campaignconfig"):
            if (api, "/".join(rest)) not in self._auxiliary:
                raise RestError(404, 1, f"{api} has no {'/'.join(rest)}")
            return [self._auxiliary[api, "/".join(rest)]]
        if api == "type":
            return list(REQUEST_TYPES)
        return [{"wmcore_reqmgr_version": "2.4.5", "name": "reqmgr2", "simulator": True}]

    def _post(self, request: Request, rest: list[str]) -> list[Any]:
        body = _json_body(request)
        requestor, around = _requestor(request), self._around(request)
        if rest == ["bynames"]:
            found = self.store.by_names(body) if isinstance(body, list) else {}
            return [found] if found else []
        if len(rest) == 2 and rest[0] == "clone":
            original = self.store.by_names([rest[1]]).get(rest[1])
            if original is None:
                raise InvalidSpec("")
            return [self._insert(partial(clone, original, body, requestor, around))]
        if rest:
            raise RestError(400, 302, "Invalid input parameter", info=f"Excess path arguments: {rest}")
        wanted = body if isinstance(body, list) else [body]
        return [self._insert(partial(create, sent, requestor, around)) for sent in wanted]

    def _insert(self, make: Callable[[], Document]) -> dict[str, str]:
        while True:  # one of two in the same ten-thousandth of a second is made again, a little later
            document = make()
            document["_id"] = document["RequestName"]
            if self.store.insert(document):
                return {"request": document["RequestName"]}

    def _put(self, request: Request, rest: list[str], error_id: str) -> list[Any]:
        body = _json_body(request)
        if rest and not isinstance(body, list):
            body["RequestName"] = rest[0]
        answers = []
        for sent in body if isinstance(body, list) else [body]:
            arguments = dict(sent)
            if "RequestName" not in arguments:
                raise InvalidSpec("'RequestName'")
            if self.habits.forbids(_requestor(request).login, arguments.get("RequestStatus")):
                raise RestError(403, 0, "You are not allowed to access this resource.")
            answers.append(self._update(arguments.pop("RequestName"), arguments, request, error_id))
            if self.habits.lost_answers:
                self.habits = replace(self.habits, lost_answers=self.habits.lost_answers - 1)
                raise RestError(500, 0, "Failed to notify MSTransferor")
        return answers

    def _update(self, name: str, arguments: dict[str, Any], request: Request, error_id: str) -> dict[str, str]:
        around = self._around(request)
        try:
            with self.store.changing(name) as document:
                return {name: update(document, arguments, _requestor(request), around, error_id)}
        except UnknownRequest as error:
            raise InvalidSpec(
                f"url={around.couch_url}/reqmgr_workload_cache/{name}/spec, code=404, reason=Object Not Found, headers={{}},"
                ' result=b\'{"error":"not_found","reason":"missing"}\\n\''
            ) from error

    def _around(self, request: Request) -> Surroundings:
        return replace(self._surroundings, couch_url=f"http://{request.header('Host', '127.0.0.1')}/couchdb")


def _requestor(request: Request) -> Requestor:
    login = request.header("Cms-Authn-Login") or DEFAULT_LOGIN
    return Requestor(login=login, dn=request.header("Cms-Authn-Dn") or UNKNOWN_DN)


def _json_body(request: Request) -> Any:
    try:
        raw = request.plain_body()
        body = json.loads(raw) if raw else {}
    except (ValueError, BadRequestBody) as error:
        raise InvalidSpec(str(error)) from error
    if not isinstance(body, dict | list):
        raise InvalidSpec(f"'{type(body).__name__}' object is not iterable")
    return body


def _wants_pretty(request: Request, api: str, method: str) -> bool:
    """Which of the two formats the client takes; GET /request has plain text first, everything else JSON only.

    Raises:
        RestError: 406, neither, or no Accept header.
    """
    accept = request.header("Accept")
    if not accept:
        raise RestError(406, 201, "Not acceptable", info="Accept header required")
    types = {part.partition(";")[0].strip() for part in accept.split(",")}
    pretty_first = api == "request" and method == "GET"
    if "*/*" in types:
        return pretty_first
    if types & {"application/json", "application/*"}:
        return False
    if pretty_first and types & {"text/plain", "text/*"}:
        return True
    raise RestError(406, 201, "Not acceptable", info="Available types: text/plain, application/json")


def _result(rows: list[Any], *, pretty: bool) -> Response:
    """``{"result": [...]}``, one row per line."""
    lines = [json.dumps(row, indent=2) if pretty else json.dumps(row) + "\n" for row in rows]
    body = '{"result": [\n' + "".join((" " if number == 0 else ",") + line for number, line in enumerate(lines)) + "]}\n"
    headers = {
        "Content-Type": "text/plain" if pretty else "application/json",
        "X-REST-Status": "100",
        "Vary": "Accept",
        "Cache-Control": "no-store, no-cache, must-revalidate, post-check=0, pre-check=0",
    }
    return Response(body=body.encode(), headers=headers)


def _header_text(text: str) -> str:
    """As ReqMgr2 puts text into a header: newlines become "; ", more than 200 characters are cut."""
    flat = text.replace("\n", "; ")
    cut = flat if len(flat) <= MAX_HEADER_CHARACTERS else flat[: MAX_HEADER_CHARACTERS - 3] + "..."
    return cut.encode("latin-1", "replace").decode("latin-1")


def _error_response(error: RestError, error_id: str) -> Response:
    title = f"{error.status} {HTTPStatus(error.status).phrase}"
    body = f"<h2>{title}</h2><p>{html.escape(error.detail)}</p>"
    page = f"<!DOCTYPE html>\n<html><head><title>{title}</title></head><body>{body}</body></html>\n"
    if not error.app_code:
        return Response(status=error.status, body=page.encode(), headers={"Content-Type": "text/html;charset=utf-8"})
    headers = {
        "Content-Type": "text/html;charset=utf-8",
        "X-REST-Status": str(error.app_code),
        "X-Error-HTTP": str(error.status),
        "X-Error-ID": error_id,
    }
    for name, text in (("X-Error-Detail", error.detail), ("X-Error-Info", error.info)):
        if text:
            headers[name] = _header_text(text)
    if error.allow:
        headers["Allow"] = error.allow
    return Response(status=error.status, body=page.encode(), headers=headers)
