"""DQM servers as far as WMS2 speaks to them: the receiving of files, ``POST /dqm/<server>/data/put``.

Names, form and headers are judged as the DQM GUI does it, which takes a file before it compares its checksum: one that differs is
kept aside, without a notice. The same name again is another version. While ``down`` all of them answer 503.
"""

import hashlib
import re
from email import message_from_bytes, policy
from pathlib import Path
from threading import Lock
from typing import Any

from deploy.simulators.httpd import Request, Response, json_response, text_response

_OK, _BAD_REQUEST, _BAD_PARAMETER, _FAILED = 100, 200, 300, 400
_FORMS = {"size": r"\d+", "checksum": r"md5:[A-Za-z0-9]+|crc32:\d+", "filename": r"[-A-Za-z0-9_]+\.root"}
_DATASET = r"^(/[-A-Za-z0-9_]+){3}$"
_NAME = re.compile(r"DQM_V\d+(_[A-Za-z]+)?_R(\d+)(__.*)?\.root")


class Refused(Exception):
    """Code, message and detail of an answer other than success."""


class DqmService:
    """The files below ``place``: ``<server>/<version>/<name>``."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.down = False
        self._lock = Lock()

    def handle(self, request: Request, server: str, rest: list[str]) -> Response:
        """``data/put`` by POST, and ``data/browse[/<version>/<name>]`` by GET."""
        if self.down:
            return text_response("Service Unavailable\n", status=503)
        match request.method, rest:
            case "POST", ["data", "put"]:
                return self._put(request, server)
            case "GET", ["data", "browse"]:
                found = sorted(self.place.glob(f"{server}/*/*.root"))
                return json_response([str(path.relative_to(self.place / server)) for path in found])
            case "GET", ["data", "browse", version, name] if (path := self.place / server / version / name).is_file():
                return Response(body=path.read_bytes(), headers={"Content-Type": "application/octet-stream"})
            case _:
                return text_response("Not found\n", status=404)

    def _put(self, request: Request, server: str) -> Response:
        try:
            fields = _fields(request)
            kept = self._keep(self.place / server, fields)
        except Refused as error:
            code, message, detail = error.args
            return Response(500, f"{message}\n".encode(), _headers(code, message, detail))
        return Response(200, b"Thanks.\n", _headers(_OK, "File saved", f"Wrote {kept} bytes"))

    def _keep(self, place: Path, fields: dict[str, Any]) -> int:
        name, body = str(fields["filename"]), bytes(fields["file"])
        if not body.startswith(b"root\0"):
            raise Refused(_BAD_PARAMETER, "Not a ROOT file", "File data contents do not represent a ROOT file")
        if len(body) != int(fields["size"]):
            raise Refused(_FAILED, "Failed to save file data", f"Wrote {len(body)} bytes, expected to write {fields['size']}")
        right = fields["checksum"] == f"md5:{hashlib.md5(body, usedforsecurity=False).hexdigest()}"
        with self._lock:
            version = 1
            while any((place / f"{version:04d}" / each).exists() for each in (name, f"{name}.bad")):
                version += 1
            target = place / f"{version:04d}" / (name if right else f"{name}.bad")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(body)
        return len(body)


def _fields(request: Request) -> dict[str, Any]:
    """The form, as far as it is one that is taken."""
    head = f"Content-Type: {request.header('Content-Type')}\r\n\r\n".encode()
    fields: dict[str, Any] = {}
    for part in message_from_bytes(head + request.body, policy=policy.HTTP).iter_parts():
        name, filename = part.get_param("name", header="content-disposition"), part.get_filename()
        body = part.get_payload(decode=True)
        fields[str(name)] = body if filename else bytes(body or b"").decode()
        if filename:
            fields["filename"] = filename
    if "filename" not in fields or "file" not in fields:
        raise Refused(_BAD_REQUEST, "Incorrect or missing file argument", "Must provide a single file-type argument")
    for name, pattern in _FORMS.items():
        if not re.fullmatch(pattern, fields.get(name, "")):
            raise Refused(_BAD_REQUEST, f"Malformed {name} argument", f"Argument must match regular expression '{pattern}'")
    found = _NAME.fullmatch(fields["filename"])
    if found is None:
        raise Refused(_BAD_PARAMETER, "File name does not match the expected convention", "None")
    if found[3] and not re.fullmatch(_DATASET, found[3].replace("__", "/")):
        raise Refused(_BAD_REQUEST, "Malformed workflow argument", f"Argument must match regular expression '{_DATASET}'")
    return fields


def _headers(code: int, message: str, detail: str) -> dict[str, str]:
    return {"Dqm-Status-Code": str(code), "Dqm-Status-Message": message, "Dqm-Status-Detail": detail}
