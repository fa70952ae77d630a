"""Public keys of the issuers of bearer tokens, as long as they are good for, in this process.

Owns: which keys of a set are used, when a set is read again, and what is said while it cannot be read. Not here: how it is read
(``wms2.adapters.issuers``), what a token must be (``wms2.identities.bearer``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from time import monotonic
from typing import Any

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK

from wms2.adapters import factory
from wms2.conf import conf
from wms2.errors import ConfigurationError, ServiceError

#: Algorithm by type of key: asymmetric ones alone, so that no public key is ever taken for a secret.
ALGORITHM_OF = {"RSA": "RS256", "EC": "ES256"}
#: A set is read again after so long, a key that is not in it makes it be read once within the second, and after it could not be
#: read for the third, none of its keys is good any more.
REFRESH_SECONDS, AGAIN_SECONDS, GOOD_SECONDS = 900.0, 60.0, 86_400.0
_LEAST_RSA_BITS = 2048
_PUBLIC = ("kty", "kid", "n", "e", "crv", "x", "y")
_NEVER = -math.inf

log = structlog.get_logger(__name__)


class KeysUnread(Exception):
    """Whether a token is right cannot be said: the issuer's keys could not be read."""


class IssuerKeys:
    """Thread-safe. One thread at a time reads the set; the others go on with what is there."""

    def __init__(self, issuer: str, place: str) -> None:
        self.issuer, self.problem, self._source = issuer, "", factory.issuer_keys(place)
        self._keys: Mapping[str, PyJWK] = {}
        self._read_at = self._tried_at = _NEVER
        self._lock, self._reading = threading.Lock(), False

    def find(self, kid: str) -> PyJWK | None:
        """The key; None: the issuer has no such key. Raises KeysUnread."""
        if kid not in self._keys or monotonic() - self._read_at > REFRESH_SECONDS:
            self._renew()
        key = self._keys.get(kid)
        if monotonic() - self._read_at > GOOD_SECONDS or (key is None and (self.problem or self._reading)):
            raise KeysUnread(f"the keys of {self.issuer} cannot be read")
        return key

    def _renew(self) -> None:
        """At most once within ``AGAIN_SECONDS``, whatever is asked for meanwhile."""
        lately = monotonic() - self._tried_at < AGAIN_SECONDS
        if (self._keys and lately) or not self._lock.acquire(blocking=not self._keys):
            return
        try:
            if monotonic() - self._tried_at >= AGAIN_SECONDS:  # no other thread has done it meanwhile
                self._tried_at, self._reading = monotonic(), True
                self._read()
        finally:
            self._reading = False
            self._lock.release()

    def _read(self) -> None:
        try:
            keys = usable_keys(self.issuer, self._source())
        except (ServiceError, ConfigurationError) as error:
            self.problem = str(error)
        else:
            self.problem = "" if keys else "its key set has no key for RS256 or ES256"
        if self.problem:
            log.warning("keys of a token issuer not read; the last ones are used", issuer=self.issuer, why=self.problem)
            return
        if self._keys.keys() != keys.keys():
            log.info("keys of a token issuer", issuer=self.issuer, kids=sorted(keys))
        self._keys, self._read_at = keys, monotonic()

    def words(self) -> str:
        """What readiness says; empty: all is well."""
        if not self.problem:
            return ""
        left = GOOD_SECONDS - (monotonic() - self._read_at)
        then = f"the last ones are good for {left / 3600:.1f} h more" if left > 0 else "its tokens are answered 503"
        return f"its keys cannot be read: {self.problem}; {then}"


_issuers = dict[tuple[str, str], IssuerKeys]()
_issuers_lock = threading.Lock()


def keys_of(issuer: str) -> IssuerKeys:
    """Of an issuer in the setting ``token_issuers``."""
    known = (issuer, conf().token_issuers[issuer])
    with _issuers_lock:
        if known not in _issuers:
            _issuers[known] = IssuerKeys(*known)
        return _issuers[known]


def unread_issuers() -> dict[str, str]:
    """Issuer -> why this process could not read its keys when it last tried, and until when the last ones are good."""
    known = [_issuers[each] for each in conf().token_issuers.items() if each in _issuers]
    return {each.issuer: words for each in known if (words := each.words())}


def usable_keys(issuer: str, published: list[dict[str, Any]]) -> dict[str, PyJWK]:
    """By ``kid``: public keys for signatures by an algorithm that is allowed. Others are logged and left out."""
    found = {}
    for raw in published:
        try:
            found[str(raw["kid"])] = _usable(raw)
        except (KeyError, TypeError, ValueError, jwt.PyJWTError) as error:
            log.info("key of a token issuer not used", issuer=issuer, kid=str(raw.get("kid"))[:100], why=str(error))
    return found


def _usable(raw: dict[str, Any]) -> PyJWK:
    algorithm = ALGORITHM_OF.get(raw["kty"])
    if algorithm is None or raw.get("alg", algorithm) != algorithm or raw.get("use", "sig") != "sig":
        raise ValueError("it is not for signatures by RS256 or ES256")
    key = PyJWK({name: raw[name] for name in _PUBLIC if name in raw}, algorithm)  # never a private part, nor x5c
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < _LEAST_RSA_BITS:
        raise ValueError(f"it has less than {_LEAST_RSA_BITS} bits")
    if algorithm == "ES256" and raw.get("crv") != "P-256":
        raise ValueError("its curve is not P-256")
    return key
