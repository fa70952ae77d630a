"""Certificates, proxies and tokens: files that the settings name and that others renew, so they are read at each use (spec 8).

Owns when they end and what is wrong with them. What they hold is never kept: rows, logs and messages have paths and dates only.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from wms2.errors import Wms2Error

#: A credential that ends sooner needs an operator: "Needs you", /readyz and manage.py check; Prometheus has a rule of its own.
CREDENTIAL_ALERT_SECONDS = 48 * 3600

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_TIME = rb"(?:\x17\x0d|\x18\x0f\d\d)\d{12}Z"  # UTCTime, GeneralizedTime
#: X.509's ``Validity``, also the one of VOMS attributes, which a proxy carries as an extension: two times in DER, begin and end.
_VALIDITY = re.compile(_TIME + rb"(" + _TIME + rb")")


class CredentialUnusable(Wms2Error):
    """A file is not there, cannot be read, is not what it should be, or has ended; says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Where a credential lies. ``setting`` names it to people; ``key``: of a certificate whose key is in a file of its own."""

    name: str
    setting: str
    path: str
    key: str = ""
    is_token: bool = False

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Another one when a file was written, replaced, or may be read by others. Raises CredentialUnusable: a file is not
        there."""
        try:
            found = [Path(path).stat() for path in (self.path, self.key) if path]
        except OSError as error:
            raise self._unusable(error) from error
        return tuple((each.st_ino, each.st_ctime_ns, each.st_size) for each in found)

    def token(self) -> str:
        """The first one in a token's file. Raises CredentialUnusable: it cannot be read, or is empty."""
        if words := self._text().split():
            return words[0]
        raise self._unusable("it is empty")

    def ends_at(self) -> datetime | None:
        """When the first of its parts ends: certificates of the chain, VOMS attributes; of a token ``exp``. None: never. Raises
        CredentialUnusable: it cannot be read, or is no certificate with its key, or no token."""
        try:
            return _ends_at(self, self.stamp())
        except (ValueError, OverflowError, OSError) as error:  # also of base64, JSON and a moment far away
            raise self._unusable(error) from error

    def ends_within(self, seconds: float) -> str:
        """When, if it ends so soon or has ended; else empty. Errors as ``ends_at``."""
        ends_at = self.ends_at()
        if ends_at is None or ends_at > datetime.now(UTC) + timedelta(seconds=seconds):
            return ""
        return f"it ends at {ends_at:%Y-%m-%d %H:%M:%S} UTC"

    def require(self, margin_seconds: float = 0) -> None:
        """Be there, and good for longer than the margin. Raises CredentialUnusable: it is not."""
        if ends := self.ends_within(margin_seconds):
            raise self._unusable(ends + (f", within the margin of {margin_seconds:.0f} s" if margin_seconds else ""))

    def certificate_ends_at(self) -> datetime:
        """Errors as ``ends_at``, but ValueError where that judges what the file holds."""
        try:  # OpenSSL judges whether the file is whole, and whether the key belongs to it
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(self.path, self.key or None, password=_no_password)
        except ssl.SSLError as error:
            raise ValueError(f"it is no certificate with its key in PEM ({error.reason or error})") from error
        except OSError as error:
            raise self._unusable(error) from error
        found = [ends for pem in _CERTIFICATE.findall(self._text()) for ends in _VALIDITY.findall(ssl.PEM_cert_to_DER_cert(pem))]
        return min(map(_moment, found))

    def _text(self) -> str:
        try:
            return Path(self.path).read_text("ascii")
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, why: object) -> CredentialUnusable:
        what = f"{self.path}: {why}"
        if isinstance(why, OSError):  # OpenSSL says not of which file
            what = f"{why.strerror}: {why.filename or self.path + (f' or {self.key}' if self.key else '')}"
        return CredentialUnusable(
            f"{self.setting}: {what}. Renew the file, readable for WMS2; it is read at each use, nothing has to be restarted"
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a process that works with a credential has found. ``ends_at`` None: it never ends, unless there is a ``problem``."""

    name: str
    path: str
    ends_at: datetime | None
    problem: str = ""

    @classmethod
    def from_dict(cls, stored: dict[str, str]) -> Seen:
        """As ``as_dict`` wrote it."""
        ends, problem = stored["ends_at"], stored["problem"]
        try:
            return cls(stored["name"], stored["path"], datetime.fromisoformat(ends) if ends else None, problem)
        except ValueError:
            return cls(stored["name"], stored["path"], None, problem or f"when it ends is not known: {ends}")

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self) | {"ends_at": self.ends_at.isoformat() if self.ends_at else ""}

    def left_seconds(self, now: datetime) -> float:
        """0 for one that cannot be used."""
        if self.problem:
            return 0.0
        return float("inf") if self.ends_at is None else (self.ends_at - now).total_seconds()


def see(credentials: Iterable[Credential]) -> list[Seen]:
    """Read each."""
    found = []
    for each in credentials:
        try:
            found.append(Seen(each.name, each.path, each.ends_at()))
        except CredentialUnusable as error:
            found.append(Seen(each.name, each.path, None, str(error)))
    return found


@lru_cache(maxsize=64)
def _ends_at(credential: Credential, stamp: tuple[tuple[int, int, int], ...]) -> datetime | None:
    """Of files as they were at that stamp: OpenSSL takes a millisecond for a certificate."""
    return _token_ends_at(credential.token()) if credential.is_token else credential.certificate_ends_at()


def _token_ends_at(token: str) -> datetime | None:
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("it is no JSON web token")
    claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    ends = claims.get("exp") if isinstance(claims, dict) else None
    if ends is not None and not isinstance(ends, int | float):
        raise ValueError("its exp is no number")
    return None if ends is None else datetime.fromtimestamp(ends, UTC)


def _moment(der: bytes) -> datetime:
    digits = der[2:-1].decode()
    century = "" if len(digits) == 14 else "20" if digits < "5" else "19"
    return datetime.strptime(century + digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _no_password() -> str:
    raise ValueError("its key asks for a password")
