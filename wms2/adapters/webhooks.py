"""JSON to addresses that operators name: webhooks, Mattermost, Alertmanager. Signed as Standard Webhooks has it where wanted.

Owns which addresses are allowed: https, at hosts of the allow-list; outside of production also http at this machine. No
credential of WMS2, no redirect, no proxy of the environment. Does not own what is said, or when it is said again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import requests

from wms2.adapters.caller import TIMEOUT_CODE, Caller
from wms2.adapters.time_limit import TimeLimit, limited_session
from wms2.errors import ConfigurationError, ServiceRejected, ServiceUnavailable

_SECONDS, _MAX_ANSWER, _CHUNK = 10.0, 64 * 1024, 8 * 1024
_TRY_LATER = {408, 425, 429}
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def signed(webhook_id: str, sent_at: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """The three headers; ``sent_at``: Unix seconds. One signature for each key."""
    what = f"{webhook_id}.{sent_at}.".encode() + body
    marks = (base64.b64encode(hmac.new(key, what, hashlib.sha256).digest()).decode() for key in keys)
    signature = " ".join(f"v1,{mark}" for mark in marks)
    return {"webhook-id": webhook_id, "webhook-timestamp": str(sent_at), "webhook-signature": signature}


def address_problem(url: str, *, hosts: Sequence[str], plain: bool) -> str:
    """Why an address is not allowed; empty when it is.

    Args:
        hosts: ``host``, at https's own port, or ``host:port``.
        plain: whether http at this machine is allowed as well.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no address"
    host = (parts.hostname or "").lower()
    if not host or "@" in parts.netloc or parts.fragment or not url.isprintable() or " " in url:
        return "is an address with a host, and without user, password, fragment or blanks"
    if plain and parts.scheme == "http" and host in _LOOPBACK:
        return ""
    if parts.scheme != "https":
        return "begins with https://"
    allowed = {each.lower() for each in hosts if each}
    if f"{host}:{port or 443}" in allowed or (port in (None, 443) and host in allowed):
        return ""
    return f"is at {host}{f':{port}' if port else ''}, which is not in WMS2_ALERT_HOSTS"


class Webhooks:
    """What is at one address. Raises ConfigurationError: the address is not allowed."""

    def __init__(self, service: str, address: str, *, hosts: Sequence[str], plain: bool) -> None:
        if why := address_problem(address, hosts=hosts, plain=plain):
            raise ConfigurationError(f"the address {why}")
        self.service, self._address = service, address.rstrip("/")
        self._caller = Caller(service, urlsplit(address).netloc)

    @staticmethod
    def encoded(body: object) -> bytes:
        """JSON as it is sent and signed."""
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()

    def post(self, path: str, body: bytes, headers: Mapping[str, str], *, operation: str) -> None:
        """Send it once. ``path`` is appended to the address, and never repeated in errors: it may be a key.

        Raises:
            ServiceUnavailable: it did not arrive, or may not have.
            ServiceRejected: it was refused; a redirect counts as that.
        """
        self._caller.call(operation, lambda: self._post(path, body, headers, operation), 1)

    def _post(self, path: str, body: bytes, headers: Mapping[str, str], operation: str) -> None:
        sent = {"Content-Type": "application/json", "User-Agent": "WMS2", **headers}
        with TimeLimit(_SECONDS) as limit, limited_session() as session:
            try:
                answer = session.post(
                    self._address + path, data=body, headers=sent, timeout=_SECONDS, allow_redirects=False, stream=True
                )
                with answer:
                    said = self._read(answer)
                if limit.over:  # headers and bodies that were cut off look whole
                    raise requests.Timeout
            except requests.RequestException as error:
                if limit.over or isinstance(error, requests.Timeout):
                    late = f"no whole answer within {_SECONDS:g} s from {self._host}"
                    raise ServiceUnavailable(self.service, operation, late, TIMEOUT_CODE) from None if path else error
                # its words have the whole address
                what = f"{self._host}: {type(error).__name__}"
                raise ServiceUnavailable(self.service, operation, what, "connection") from None if path else error
        status = answer.status_code
        if 200 <= status < 300:
            return
        kind = ServiceUnavailable if status >= 500 or status in _TRY_LATER else ServiceRejected
        raise kind(self.service, operation, f"{self._host}: HTTP {status}: {said}", status)

    @staticmethod
    def _read(answer: requests.Response) -> str:
        """The beginning of what it says, in one line."""
        found = b""
        for chunk in answer.iter_content(_CHUNK):
            found += chunk
            if len(found) > _MAX_ANSWER:
                break
        return " ".join(found[:500].decode("utf-8", "replace").split())

    @property
    def _host(self) -> str:
        return urlsplit(self._address).netloc
