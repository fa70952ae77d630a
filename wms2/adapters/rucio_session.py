"""How Rucio is reached: the client configuration, one rucio-clients client per thread, time limits, what a failure means.

rucio-clients is driven with explicit values from ``<home>/etc/rucio.cfg``; the process environment (RUCIO_HOME, RUCIO_ACCOUNT, …)
is neither read nor changed, so adapters of two accounts may live in one process. No operation is known here.
"""

from __future__ import annotations

import configparser
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

import requests
from rucio.client import Client
from rucio.common.exception import RucioException

from wms2.adapters.caller import TIMEOUT_CODE, Caller, _stop_if_lost
from wms2.adapters.http import clip
from wms2.adapters.wire import parse
from wms2.errors import ConfigurationError, NotFoundInService, NotNow, ServiceError, ServiceRejected, ServiceUnavailable
from wms2.runtime.credentials import Credential, CredentialUnusable

T = TypeVar("T")

SERVICE = "rucio"

# Rucio's exception classes have no common base for "later" or "not there", so they are listed.
_LATER = frozenset(
    {"DatabaseException", "ReplicationRuleCreationTemporaryFailed", "ResourceTemporaryUnavailable", "ServerConnectionException"}
    | {"ServiceUnavailable"}
)
_NOT_FOUND = frozenset(
    {"AccountNotFound", "DataIdentifierNotFound", "ReplicaNotFound", "RSENotFound", "RuleNotFound", "ScopeNotFound"}
)
# A storage element is blocked for a while, as in an intervention; Rucio itself is well.
_NOT_NOW = frozenset({"RSEWriteBlocked"})
# Classes that say nothing by themselves: an unexpected fault of the server, a login that failed for whatever reason. The HTTP
# status decides.
_UNSPECIFIC = frozenset({"RucioException", "CannotAuthenticate"})
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_CONNECT_SECONDS = 5.0
_DEFAULT_ORGANISATION = "def"
# What each way to log in needs from the configuration.
_CREDENTIALS = {
    "userpass": ("username", "password"),
    "x509": ("client_cert", "client_key"),
    "x509_proxy": ("client_x509_proxy",),
}
_CLIENT_NAMES = {"client_x509_proxy": "client_proxy"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What ``[client]`` of a rucio.cfg says. Never shown: ``credentials`` may hold a password."""

    rucio_host: str
    auth_host: str
    auth_type: str
    credentials: dict[str, str] = field(repr=False)
    ca_cert: str | None
    organisation: str
    token_file: str | None

    @property
    def certificate(self) -> Credential | None:
        """The files that log in, unless a password does."""
        values = self.credentials
        path = values.get("client_cert") or values.get("client_proxy")
        return Credential("rucio", f"{self.auth_type} of rucio.cfg", path, values.get("client_key", "")) if path else None


def read_config(home: Path, account: str) -> ClientConfig:
    """The client configuration for ``account``. Raises ConfigurationError: no file, or an option is missing; says which."""
    path = home / "etc/rucio.cfg"
    parser = configparser.ConfigParser()
    try:
        if not parser.read(path):
            raise ConfigurationError(f"WMS2_RUCIO_HOME: there is no readable {path}")
        section = dict(parser["client"])
        auth_type = section["auth_type"]
        if auth_type not in _CREDENTIALS:
            raise ConfigurationError(f"{path}: auth_type {auth_type!r} is not supported; use one of {', '.join(_CREDENTIALS)}")
        return ClientConfig(
            rucio_host=section["rucio_host"],
            auth_host=section["auth_host"],
            auth_type=auth_type,
            credentials={_CLIENT_NAMES.get(name, name): section[name] for name in _CREDENTIALS[auth_type]},
            ca_cert=section.get("ca_cert"),
            organisation=section.get("vo", _DEFAULT_ORGANISATION),
            token_file=_token_file(section, account),
        )
    except KeyError as error:
        raise ConfigurationError(f"{path}: [client] lacks {error}") from error
    except configparser.Error as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _token_file(section: dict[str, str], account: str) -> str | None:
    """One file per account: a client takes any token it finds, and would act as another account without noticing."""
    path = section.get("auth_token_file_path")
    if path is None or section.get("account") == account:
        return path
    return f"{path}-{account}"


def check_token_file(path: str | None) -> None:
    """Remove an empty token file and refuse an unreadable one: rucio-clients would go on without a token and fail at every call.
    Raises ConfigurationError: the file belongs to another user."""
    if path is None:
        return
    file = Path(path)
    try:
        if not file.read_text().strip():
            file.unlink(missing_ok=True)  # the library writes by rename, so it is never half written
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise ConfigurationError(f"Rucio's token file {path} is another user's: remove it, or give each user one") from error


class _Client(Client):  # type: ignore[misc]  # rucio-clients has no types
    """rucio-clients with our token file, no repetition of its own beyond a renewed login, and the status kept."""

    AUTH_RETRIES = 1  # two tries: the second one with a new token. Failures are repeated by ``Caller``, which also waits.

    def __init__(self, config: ClientConfig, account: str, timeout_seconds: float, local: threading.local) -> None:
        self._own_token_file, self._local = config.token_file, local
        super().__init__(
            rucio_host=config.rucio_host,
            auth_host=config.auth_host,
            account=account,
            ca_cert=config.ca_cert,
            auth_type=config.auth_type,
            creds=dict(config.credentials),
            timeout=(min(_CONNECT_SECONDS, timeout_seconds), timeout_seconds),
            user_agent="wms2",
            vo=config.organisation,
            logger=log,
        )

    def _get_auth_tokens(self) -> tuple[str | None, str, str, str]:
        path = self._own_token_file
        if path is None:
            return super()._get_auth_tokens()  # type: ignore[no-any-return]  # below the temporary directory, named by user and account
        return path, f"{path}.expires", path, str(Path(path).parent)

    def _send_request(self, *args: Any, **kwargs: Any) -> Any:
        _stop_if_lost()
        result = super()._send_request(*args, **kwargs)
        self._local.status = result.status_code  # the library drops it, and some of its errors mean nothing without it
        return result


class RucioSession:
    """Calls to one Rucio as one account. Thread-safe, and usable on both sides of a fork.

    Args:
        home: RUCIO_HOME, the directory with ``etc/rucio.cfg``; ConfigurationError if that is missing or incomplete.
        timeout_seconds: limit of the silence between bytes; connecting may take 5 s of it.
    """

    def __init__(self, home: Path, account: str, timeout_seconds: float) -> None:
        self.account = account
        self._config = read_config(home, account)
        self._caller = Caller(SERVICE, self._config.rucio_host.partition("://")[2])
        self._timeout_seconds = timeout_seconds
        self._local = threading.local()

    def call(self, operation: str, fn: Callable[[Any], T]) -> T:
        """Run ``fn`` with a client, up to three times while Rucio does not answer properly.

        It must be repeatable, and must read what it returns to the end: rucio-clients' iterators raise when read.

        Raises:
            ServiceUnavailable: no usable answer; whether anything was changed is unknown.
            ServiceRejected: refused; ``code`` is Rucio's exception class.
        """
        return self._caller.call(operation, lambda: self._try(operation, fn))

    def rows(self, shape: type[list[T]], operation: str, fn: Callable[[Any], Iterable[Any]]) -> list[T]:
        """As ``call``, of rows of that shape."""
        return parse(shape, self.call(operation, lambda client: list(fn(client))), service=SERVICE, operation=operation)

    def call_unless(self, refusal: type[RucioException], operation: str, fn: Callable[[Any], object]) -> bool:
        """As ``call``, but this refusal is an answer like another: False when Rucio gave it, True when it obeyed."""

        def obeyed(client: Any) -> bool:
            try:
                fn(client)
            except refusal:
                return False
            return True

        return self.call(operation, obeyed)

    def _try(self, operation: str, fn: Callable[[Any], T]) -> T:
        self._local.status = None
        try:
            return fn(self._client())
        except CredentialUnusable as error:
            raise ServiceUnavailable(SERVICE, operation, str(error), "credential") from error
        # OSError holds requests' errors, a certificate that cannot be read and a dropped connection.
        except (RucioException, OSError, JSONDecodeError) as error:
            raise failure(operation, error, self._local.status) from error

    def _client(self) -> _Client:
        """This thread's client, logged in. A child process makes its own: a connection must not be shared over a fork; so does
        who has a renewed certificate, as for other services."""
        client: _Client | None = getattr(self._local, "client", None)
        certificate = self._config.certificate
        made_with = (os.getpid(), certificate and certificate.stamp())
        if certificate:
            certificate.require()
        if client is None or self._local.made_with != made_with:
            check_token_file(self._config.token_file)
            program = sys.argv[0]
            try:
                client = _Client(self._config, self.account, self._timeout_seconds, self._local)
            finally:
                sys.argv[0] = program  # the library cuts the directory off
            self._local.client, self._local.made_with = client, made_with
        return client


def failure(operation: str, error: Exception, status: int | None) -> ServiceError:
    """The error to raise from what rucio-clients, requests or the JSON decoder raised.

    Its class name becomes ``ServiceError.code``; the text is for people and is never matched. ``status``: HTTP status of the
    last answer in this call, if any came.
    """
    if isinstance(error, requests.Timeout):
        return ServiceUnavailable(SERVICE, operation, _one_line(str(error)), TIMEOUT_CODE)
    code = type(error).__name__
    if not isinstance(error, RucioException):
        return ServiceUnavailable(SERVICE, operation, f"{code}: {_one_line(str(error))}", code)
    general, _, details = str(error).partition("\nDetails: ")  # a general sentence, then the specific part
    return _class_for(code, status)(SERVICE, operation, _one_line(details or general), code)


def _class_for(code: str, status: int | None) -> type[ServiceError]:
    if code in _NOT_NOW:
        return NotNow
    if code in _LATER:
        return ServiceUnavailable
    if code in _UNSPECIFIC and status is not None and (status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS):
        return ServiceUnavailable
    return NotFoundInService if code in _NOT_FOUND else ServiceRejected


def _one_line(text: str) -> str:
    return clip((text.strip().splitlines() or ["no message"])[0])
