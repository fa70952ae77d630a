"""What a failed Rucio call means for the caller. Rucio's exception classes have no common base for "exists" or "later": they are
listed here.

The class name becomes ``ServiceError.code``; the text is for people and is never matched.
"""

from __future__ import annotations

import requests
from rucio.common.exception import RucioException

from wms2.adapters.caller import TIMEOUT_CODE
from wms2.errors import NotFoundInService, NotNow, ServiceError, ServiceRejected, ServiceUnavailable

SERVICE = "rucio"

_LATER = frozenset(
    {
        "DatabaseException",
        "ReplicationRuleCreationTemporaryFailed",
        "ResourceTemporaryUnavailable",
        "ServerConnectionException",
        "ServiceUnavailable",
    }
)
_NOT_FOUND = frozenset(
    {
        "AccountNotFound",
        "DataIdentifierNotFound",
        "ReplicaNotFound",
        "RSENotFound",
        "RuleNotFound",
        "ScopeNotFound",
    }
)
# A storage element is blocked for a while, as in an intervention; Rucio itself is well.
_NOT_NOW = frozenset({"RSEWriteBlocked"})
# Classes that say nothing by themselves: an unexpected fault of the server, a login that failed for whatever reason. The HTTP
# status tells.
_UNSPECIFIC = frozenset({"RucioException", "CannotAuthenticate"})
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_MAX_DETAIL = 500


def failure(operation: str, error: Exception, status: int | None) -> ServiceError:
    """The error to raise from ``error``.

    Args:
        operation: the adapter's method.
        error: what rucio-clients, requests or the JSON decoder raised.
        status: HTTP status of the last answer in this call, if any came.
    """
    if isinstance(error, requests.Timeout):
        return ServiceUnavailable(SERVICE, operation, _one_line(str(error)), TIMEOUT_CODE)
    code = type(error).__name__
    if not isinstance(error, RucioException):
        return ServiceUnavailable(SERVICE, operation, f"{code}: {_one_line(str(error))}", code)
    return _class_for(code, status)(SERVICE, operation, _detail(error), code)


def _class_for(code: str, status: int | None) -> type[ServiceError]:
    if code in _NOT_NOW:
        return NotNow
    if code in _LATER:
        return ServiceUnavailable
    if code in _UNSPECIFIC and status is not None and (status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS):
        return ServiceUnavailable
    return NotFoundInService if code in _NOT_FOUND else ServiceRejected


def _detail(error: RucioException) -> str:
    """The specific part: Rucio prints a general sentence, then a line ``Details: …``."""
    general, _, details = str(error).partition("\nDetails: ")
    return _one_line(details or general)


def _one_line(text: str) -> str:
    lines = text.strip().splitlines()
    line = lines[0] if lines else "no message"
    return line if len(line) <= _MAX_DETAIL else line[:_MAX_DETAIL] + "…"
