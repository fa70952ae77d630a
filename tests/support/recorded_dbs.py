"""Calls that a real DBS answered (``dbs-answers`` of the real inputs), made again on a server, and their answers compared.

Ids, dates and the server's own request hashes differ from server to server and are left out; so is what the recording cut off.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import requests

from tests.support.places import REAL_INPUTS

FOLDER = REAL_INPUTS / "dbs-answers"
TIMEOUT_SECONDS = 30

_ID = re.compile(r"(^|_)(file|block|dataset|file_type|branch_hash|parent_file|parent_dataset|this_dataset)_id$")
_DATE = re.compile(r"_date$")
_HASH = re.compile(r"request [0-9a-f]{64}")
# Go prints a whole record into some messages; its ids and dates are numbers in there.
_NUMBER = re.compile(r"(?<![\w.#/-])\d+(?![\w.#/-])")
_CODE = re.compile(r"Code:\s*(\d+)")
_NO_JSON = "ndjson"
# The recording cut messages and reasons off.
_KEPT_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded call."""

    source: str
    number: int
    entry: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.source}-{self.number}-{self.entry['call']}"


def recorded(source: str) -> list[Recorded]:
    """The calls of ``<source>.json`` in their order; none when the recording is not here."""
    path = FOLDER / f"{source}.json"
    if not path.is_file():
        return []
    return [Recorded(source, number, entry) for number, entry in enumerate(json.loads(path.read_text()))]


def send(call: Recorded, writer_url: str) -> requests.Response:
    """Make the call once more. ``writer_url`` ends in ``DBSWriter``."""
    entry = call.entry
    base = writer_url.removesuffix("DBSWriter") + (entry.get("server") or "DBSWriter")
    headers = dict(entry.get("headers") or {})
    data: bytes | None = None
    if entry.get("body") is not None:
        body = entry["body"]
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        headers.setdefault("Content-Type", "application/json")
    return requests.request(entry["method"], f"{base}/{entry['path']}", data=data, headers=headers, timeout=TIMEOUT_SECONDS)


def expected(call: Recorded) -> dict[str, Any]:
    """What the real server answered, in the form of ``answered``."""
    answer = call.entry["answer"]
    if isinstance(answer, dict) and "error" in answer:
        error = answer["error"]
        body: Any = _error(error, error["nested_codes"])
    elif isinstance(answer, list) and answer[:1] == [_NO_JSON]:
        body = answer[1:]
    elif call.entry.get("content_type") == "application/ndjson":
        body = [answer]
    else:
        body = answer
    return {"status": call.entry["status"], "type": call.entry.get("content_type"), "body": plain(body)}


def answered(call: Recorded, response: requests.Response) -> dict[str, Any]:
    """An answer, less what differs from server to server."""
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    if kind == "application/ndjson":
        body: Any = [json.loads(line) for line in response.text.splitlines()]
    elif kind == "application/json":
        body = response.json()
        if response.status_code >= 400:
            error = body[0]["error"]
            body = _error(error, _CODE.findall(error["reason"]))
    else:
        body = response.text.strip() or []
    recorded_kind = call.entry.get("content_type")
    return {"status": response.status_code, "type": (recorded_kind and kind) or recorded_kind, "body": plain(body)}


def plain(value: Any) -> Any:
    """Without ids and dates, whole floats as integers (as JSON has them)."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: "date" if _DATE.search(key) else plain(item) for key, item in sorted(value.items()) if not _ID.search(key)}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _error(error: dict[str, Any], nested: list[str]) -> dict[str, Any]:
    message = _NUMBER.sub("n", _HASH.sub("request *", error["message"]))
    return {
        "code": error["code"],
        "function": error["function"],
        "message": message[:_KEPT_CHARACTERS],
        "nested": nested,
    }
