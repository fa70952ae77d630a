"""One way to speak HTTP: time limits, certificates, JSON, error mapping, retries, circuit breaker. No service's own rules.

Owns: a call's total time (requests limits only the silence between bytes), the size of answers, what a status code means by
default. Each adapter passes a ``FaultParser`` that reads its service's error body. Redirects are refused: following one turns a
PUT into a GET, and a front-end redirects to its login page when a certificate is wrong. Proxies and netrc of the environment are
ignored for the same reason: they would silently change where a call goes and as whom.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from http import HTTPStatus
from typing import TypeVar

import requests
from requests.structures import CaseInsensitiveDict
from urllib3.exceptions import ReadTimeoutError

from wms2.adapters.caller import TIMEOUT_CODE, TRIES, Caller, _stop_if_lost
from wms2.adapters.wire import parse
from wms2.errors import ConfigurationError, ServiceError, ServiceRejected, ServiceUnavailable
from wms2.runtime.credentials import Credential, CredentialUnusable

T = TypeVar("T")
JSON_TYPE = "application/json"
MAX_ANSWER_BYTES = 256 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_CONNECT_SECONDS = 10.0
_MAX_DETAIL = 500
_MAX_PAGE_BYTES = 16 * 1024
_WORDS, _TAG = re.compile(r"<(h[1-6]|p)\b[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL), re.compile(r"<[^>]*>")
# Answers that say "not now" although they are 4xx.
_TRY_LATER = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}

Params = Mapping[str, str | int | Sequence[str]] | None


@dataclass(frozen=True, slots=True)
class Fault:
    """What an error answer says. ``kind`` overrides the class chosen by the status code."""

    detail: str
    code: str | int | None = None
    kind: type[ServiceError] | None = None


FaultParser = Callable[[int, Mapping[str, str], bytes], Fault]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are, by client certificate, token or both, and the path of the CAs; empty means the system's."""

    certificate: Credential | None = None
    token: Credential | None = None
    ca_path: str = ""


def plain_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """The first line of the body as the detail, of a page its headings and paragraphs; for services without an error format."""
    text = body[:_MAX_PAGE_BYTES].decode("utf-8", "replace").strip()
    parts = (" ".join(unescape(_TAG.sub(" ", part)).split()) for _, part in _WORDS.findall(text))
    lines = [part for part in parts if part] if text.startswith("<") else text.splitlines()[:1]
    return Fault(": ".join(lines) or (text.splitlines() or ["no message"])[0])


class HttpService:
    """A service under one base URL.

    Args:
        service: name in errors and metrics.
        base_url: without trailing slash; paths are appended to it.
        timeout_seconds: limit of one try, first byte sent to last byte read; when streaming, of the silence between bytes.
        credentials: files that are read at each use: a renewed one counts from the next call on.
        fault_parser: reads the service's error answers.
    """

    def __init__(
        self,
        service: str,
        base_url: str,
        *,
        timeout_seconds: float,
        credentials: Credentials | None = None,
        fault_parser: FaultParser = plain_fault,
    ) -> None:
        self.service, self.base_url = service, base_url.rstrip("/")
        self._timeout_seconds, self._credentials = timeout_seconds, credentials or Credentials()
        self._fault_parser = fault_parser
        self.caller = Caller(service, self.base_url.partition("://")[2])
        self._local = threading.local()

    def get_json(self, shape: type[T], path: str, *, operation: str, params: Params = None) -> T:
        """GET JSON of that shape; retried. Raises ServiceUnavailable: no usable answer (also JSON that does not parse, or has
        another shape); ServiceRejected: refused."""
        answer = self.send_json("GET", path, operation=operation, params=params, tries=TRIES)
        return parse(shape, answer, service=self.service, operation=operation)

    def get_bytes(self, path: str, *, operation: str) -> bytes:
        """GET the body as it is; retried. Errors as ``get_json``."""
        return self.caller.call(operation, lambda: self._call("GET", path, operation, None, None))

    def send_json(
        self, method: str, path: str, *, operation: str, params: Params = None, body: object = None, tries: int = 1
    ) -> object:
        """Send JSON, decode the JSON answer (None for an empty one).

        Args:
            tries: more than 1 only for calls that may be made twice.

        Raises:
            ServiceUnavailable: as ``get_json``; a write may or may not have happened.
            ServiceRejected: refused, nothing was changed.
        """

        def call() -> object:
            answer = self._call(method, path, operation, params, body)
            if not answer.strip() and method != "GET":
                return None
            try:
                return json.loads(answer)
            except ValueError as error:
                shown = clip(answer[: _MAX_DETAIL + 1].decode("utf-8", "replace"))
                raise ServiceUnavailable(self.service, operation, f"answer is not JSON: {shown}") from error

        return self.caller.call(operation, call, tries)

    def stream_lines(self, path: str, *, operation: str, params: Params, accept: str) -> Iterator[list[bytes]]:
        """GET and yield the body's lines as they come, those of one chunk at a time. Opening is retried, reading on is not.
        Raises ServiceUnavailable: also while iterating, when the stream breaks off: what came before is not the whole."""
        response = self.caller.call(operation, lambda: self._open("GET", path, operation, params, None, {"Accept": accept}))
        with response, self._mapped(operation):
            # Without a length or chunks, a dropped connection looks like the end.
            if "Content-Length" not in response.headers and response.headers.get("Transfer-Encoding", "") != "chunked":
                raise ServiceUnavailable(
                    self.service, operation, "streamed answer has neither a length nor chunks: its end cannot be known"
                )
            rest = b""
            for chunk in response.iter_content(_CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                if whole := [line for line in lines if line.strip()]:
                    yield whole
            if rest.strip():
                yield [rest]

    def _call(self, method: str, path: str, operation: str, params: Params, body: object) -> bytes:
        """One try: the whole body of a good answer."""
        deadline = time.monotonic() + self._timeout_seconds
        with self._open(method, path, operation, params, body, {"Accept": JSON_TYPE}) as response, self._mapped(operation):
            return self._read(response, operation, deadline)

    def _read(self, response: requests.Response, operation: str, deadline: float) -> bytes:
        chunks, size = [], 0
        for chunk in response.iter_content(_CHUNK_BYTES):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise ServiceRejected(self.service, operation, f"answer is larger than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    self.service, operation, f"answer not complete after {self._timeout_seconds:g} s", TIMEOUT_CODE
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _open(
        self, method: str, path: str, operation: str, params: Params, body: object, headers: Mapping[str, str]
    ) -> requests.Response:
        """Send, and return a good answer with its body unread; an error answer is read and raised."""
        all_headers, data = dict(headers), None
        if body is not None:
            # DBS compares the header as text: "application/json; charset=..." is refused (code 117).
            all_headers["Content-Type"], data = JSON_TYPE, json.dumps(body, allow_nan=False).encode()
        with self._mapped(operation):
            token = self._credentials.token
            if token and self.base_url.startswith("https://"):  # never in the clear
                token.require()
                all_headers["Authorization"] = f"Bearer {token.token()}"
            session = self._session()
            _stop_if_lost()
            response = session.request(
                method,
                self.base_url + path,
                params=None if params is None else dict(params),
                data=data,
                headers=all_headers,
                timeout=(min(_CONNECT_SECONDS, self._timeout_seconds), self._timeout_seconds),
                allow_redirects=False,
                stream=True,
            )
            if 200 <= response.status_code < 300:
                return response
            with response:
                raise self._error(response, operation)

    def _error(self, response: requests.Response, operation: str) -> ServiceError:
        status = response.status_code
        if 300 <= status < 400:
            target = response.headers.get("Location", "?").split("://", 1)
            # the rest is the server's
            origin = f"{target[0]}://{target[1].split('/')[0]}/" if len(target) == 2 else "another path"
            detail = f"redirected to {clip(origin)} (HTTP {status}): check the URL and the certificate"
            return ServiceRejected(self.service, operation, detail, status)
        body = self._read(response, operation, time.monotonic() + self._timeout_seconds)
        fault = self._fault_parser(status, CaseInsensitiveDict(response.headers), body)
        later = status >= 500 or status in _TRY_LATER
        kind = fault.kind or (ServiceUnavailable if later else ServiceRejected)
        detail = f"{clip(fault.detail)} (HTTP {status}, {response.request.method} {response.url.split('?')[0]})"
        return kind(self.service, operation, detail, status if fault.code is None else fault.code)

    @contextmanager
    def _mapped(self, operation: str) -> Iterator[None]:
        """Turn the transport's errors into ours, cause kept."""
        try:
            yield
        except CredentialUnusable as error:
            raise ServiceUnavailable(self.service, operation, str(error), "credential") from error
        except (requests.exceptions.InvalidURL, requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema) as error:
            raise ConfigurationError(f"URL of {self.service} is wrong: {self.base_url!r}: {error}") from error
        except requests.RequestException as error:
            # requests hands a time-out while reading the body on as a ConnectionError around urllib3's.
            timed_out = isinstance(error, requests.Timeout) or any(isinstance(a, ReadTimeoutError) for a in error.args)
            if timed_out:
                detail, code = f"no answer within {self._timeout_seconds:g} s from {self.base_url}", TIMEOUT_CODE
            else:
                detail, code = f"{self.base_url}: {clip(str(error))}", "connection"
            raise ServiceUnavailable(self.service, operation, detail, code) from error
        except OSError as error:
            # requests.RequestException is an OSError too, but comes first: what is left are the files of CAs.
            raise ConfigurationError(f"WMS2_CA_PATH: what it names cannot be used for {self.service}: {error}") from error

    def _session(self) -> requests.Session:
        """This thread's session. A forked process makes its own, since two processes must not share a connection; so does who
        has a renewed certificate, since an open connection keeps the former one."""
        session: requests.Session | None = getattr(self._local, "session", None)
        certificate = self._credentials.certificate
        made_with = (os.getpid(), certificate and certificate.stamp())
        if certificate:
            certificate.require()
        if session is None or self._local.made_with != made_with:
            session = requests.Session()
            session.trust_env = False
            if certificate:
                session.cert = (certificate.path, certificate.key) if certificate.key else certificate.path
            session.verify = self._credentials.ca_path or True
            self._local.session, self._local.made_with = session, made_with
        return session


def clip(text: str) -> str:
    """As much of a foreign text as an error shows."""
    return text if len(text) <= _MAX_DETAIL else text[:_MAX_DETAIL] + "…"
