"""Key sets of token issuers (JWKS, RFC 7517), over HTTP or from a file. Which keys are used is not decided here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wms2.adapters import wire
from wms2.adapters.http import HttpService
from wms2.errors import ServiceUnavailable

SERVICE = "token_issuer"
_OPERATION = "keys"


def keys_at_url(http: HttpService, path: str) -> list[dict[str, Any]]:
    """The keys as they are published; asked for once, since a caller waits. ``http`` has the host as its base; ``path`` is all
    that follows it. Raises ServiceUnavailable, ServiceRejected."""
    answer = http.send_json("GET", path, operation=_OPERATION)
    return wire.parse(wire.KeySet, answer, service=SERVICE, operation=_OPERATION).keys


def keys_in_file(path: Path) -> list[dict[str, Any]]:
    """The keys as they are now, for hosts that may not ask the issuer. Raises ServiceUnavailable: the file cannot be read, or is
    no key set."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ServiceUnavailable(SERVICE, _OPERATION, f"{path}: {error.strerror}") from error
    return wire.parse_json(wire.KeySet, text, service=SERVICE, operation=_OPERATION).keys
