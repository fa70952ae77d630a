"""Client side of the simulators: plain HTTP calls, and ``submit``, which takes a request to ``staged`` as people and services do.

Speaks only what the real ReqMgr2 takes too.
"""

import json
from dataclasses import dataclass
from typing import Any

import requests

TIMEOUT_SECONDS = 120.0
PLACEHOLDER = "OVERRIDE-ME"


class CallFailed(Exception):
    """A service answered other than 2xx, or not at all; the text names the call and the service's words."""

    def __init__(self, text: str, status: int = 0, body: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls services below one base URL, as the user ``login`` (the header a front end would set)."""

    url: str
    login: str = "requester"

    def json(self, method: str, path: str, value: Any = None) -> Any:
        """Send ``value`` as JSON and return the JSON answer (None for an empty one).

        Raises:
            CallFailed: refused, or no answer.
        """
        data = None if value is None else json.dumps(value).encode()
        return self.raw(method, path, data, "application/json")

    def raw(self, method: str, path: str, data: bytes | None, content_type: str) -> Any:
        """Send bytes and return the JSON answer (None for an empty one).

        Raises:
            CallFailed: refused, or no answer.
        """
        headers = {"Accept": "application/json", "Content-Type": content_type, "Cms-Authn-Login": self.login}
        try:
            answer = requests.request(method, self.url.rstrip("/") + path, data=data, headers=headers, timeout=TIMEOUT_SECONDS)
        except (requests.ConnectionError, requests.Timeout) as error:
            raise CallFailed(f"{method} {path}: no answer from {self.url}: {error}") from error
        if not answer.ok:
            detail = answer.headers.get("X-Error-Detail") or answer.text
            raise CallFailed(f"{method} {path}: HTTP {answer.status_code}: {detail}", answer.status_code, answer.text)
        return answer.json() if answer.text.strip() else None


def submit(caller: Caller, pair: dict[str, Any], team: str | None = None) -> str:
    """Create, approve and assign a request, then stage it as the transfer service would; returns its name.

    ``pair`` is ``{"createRequest": {...}, "assignRequest": {...}}``; ``team`` replaces the Team of the assignment.

    Raises:
        ValueError: the pair is not complete or has placeholders left.
        CallFailed: ReqMgr2 refused a step.
    """
    created, assigned = pair.get("createRequest"), pair.get("assignRequest")
    if not isinstance(created, dict) or not isinstance(assigned, dict):
        raise ValueError("expected an object with createRequest and assignRequest")
    assignment = {**assigned, **({"Team": team} if team else {}), "RequestStatus": "assigned"}
    left = sorted(_placeholders("createRequest", created) + _placeholders("assignRequest", assignment))
    if left:
        raise ValueError(f"values still to be filled in: {', '.join(left)}")
    name = str(caller.json("POST", "/reqmgr2/data/request", created)["result"][0]["request"])
    path = f"/reqmgr2/data/request/{name}"
    for change in (
        {"RequestStatus": "assignment-approved"},
        assignment,
        {"RequestStatus": "staging"},
        {"RequestStatus": "staged"},
    ):
        caller.json("PUT", path, change)
    return name


def _placeholders(where: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in _placeholders(f"{where}.{key}", item)]
    if isinstance(value, list):
        return [found for item in value for found in _placeholders(where, item)]
    return [where] if isinstance(value, str) and PLACEHOLDER in value else []
