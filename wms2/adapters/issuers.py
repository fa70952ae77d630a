"""Key sets of token issuers (JWKS, RFC 7517), over HTTP or from a file. Which keys are used is not decided here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from wms2.adapters import wire
from wms2.adapters.http import HttpService
from wms2.errors import ServiceUnavailable

SERVICE = "token_issuer"
_KEYS, _OPERATION = TypeAdapter(wire.KeySet), "keys"


class KeySetAtUrl:
    """``http`` has the host as its base; ``path`` is all that follows it."""

    def __init__(self, http: HttpService, path: str) -> None:
        self._http, self._path = http, path

    def keys(self) -> list[dict[str, Any]]:
        """The keys as they are published; asked for once, since a caller waits. Raises ServiceUnavailable, ServiceRejected."""
        answer = self._http.send_json("GET", self._path, operation=_OPERATION)
        return wire.parse(_KEYS, answer, service=SERVICE, operation=_OPERATION).keys


class KeySetInFile:
    """For hosts that may not ask the issuer."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keys(self) -> list[dict[str, Any]]:
        """As it is now. Raises ServiceUnavailable: it cannot be read, or is no key set."""
        try:
            text = self._path.read_bytes()
        except OSError as error:
            raise ServiceUnavailable(SERVICE, _OPERATION, f"{self._path}: {error.strerror}") from error
        return wire.parse_json(_KEYS, text, service=SERVICE, operation=_OPERATION).keys
