"""Bearer tokens by the WLCG profile over REST: ``Authorization: Bearer <JWT>``, judged by the issuer's published keys alone.

Owns: what a token must be, which user and grants it means, and the answers to wrong ones. No call to the issuer is made for a
token; its keys are read now and then (``wms2.identities.issuer_keys``). Other credentials are left to the other classes: DRF's
tokens, personal tokens. Sources: WLCG Common JWT Profiles 1.0; RFC 6750, 7519, 8725; docs/identities.md, Bearer tokens.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jwt
import structlog
from django.contrib.auth.models import AbstractBaseUser
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.request import Request

from wms2.actions import Role
from wms2.api.problems import Problem, ProblemError
from wms2.api.tokens import must_wait
from wms2.audit import audit, refusal_set_audited
from wms2.conf import conf
from wms2.identities.grants import Grant, grants_named, person_ensure, use_grants
from wms2.identities.issuer_keys import AGAIN_SECONDS, ALGORITHM_OF, KeysUnread, keys_of
from wms2.identities.service_accounts import ended_because
from wms2.web.login_throttle import address_of, token_wrong

#: Longer ones are not read at all.
MOST_BYTES = 8192
#: So far may the issuer's clock be from ours.
LEEWAY_SECONDS = 60.0
#: Tokens that are issued for longer are refused: the WLCG profile allows six hours.
MAX_SECONDS = 6 * 3600
PROFILE_VERSION = "1.0"
#: Scopes with these names are capabilities in the profile: a token that has one is judged by scopes alone, not by groups.
_CAPABILITIES = ("storage.", "compute.")
#: Of a subject or an id of a token.
_PLAIN = re.compile(r"[!-~]{1,255}")
#: Of a CMS group or a site at the end of a group or scope.
_LIMIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: Of a user's name: more does not fit into the audit's actor.
_MOST_NAME = 100
#: Of a time: no number above fits any calendar, and not all of them a float.
_MOST_SECONDS = 1e12
_UNCHECKED: Any = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}  # by us

log = structlog.get_logger(__name__)


class TokenRefused(Exception):
    """Why a token is not taken; nothing of its own text. ``name``: the user, where the signature is right."""

    status = 401
    code = "invalid_token"
    hint = "Get a new token of a trusted issuer for this audience; docs/identities.md says what it has to be."

    def __init__(self, reason: str, name: str = "unknown") -> None:
        super().__init__(reason)
        self.name = name


class NoRole(TokenRefused):
    """A right token that gives no role here."""

    status = 403
    code = "insufficient_scope"
    hint = "Ask for a token with a scope or group that the setting role_names maps to a role."


class BearerToken(NamedTuple):
    """A token that was judged right; ``request.auth`` of calls that came with it."""

    name: str
    jti: str
    grants: tuple[Grant, ...]


class BearerAuthentication(BaseAuthentication):
    """First of the classes, so that a wrong token is answered and not tried as something else."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, BearerToken] | None:
        """User and token; None where there is no JWT. Raises ProblemError: 401 and 403 for the token, 429 after many wrong ones
        from this address, 503 while the issuer's keys cannot be read."""
        # A JWT is three parts separated by dots, the last of which may be empty; other credentials are for the other classes.
        scheme, _, rest = get_authorization_header(request).decode("latin-1").partition(" ")
        credential = rest.strip()
        if scheme.lower() != "bearer" or credential.count(".") != 2 or re.search(r"\s", credential):
            return None
        try:
            token = judged(credential, time.time())
            return _user_of(token), token
        except TokenRefused as refused:
            raise _answer(request, credential, refused) from refused
        except KeysUnread as error:
            seconds = str(int(AGAIN_SECONDS))
            problem = Problem(
                503, "issuer_unavailable", str(error), hint="Nothing was done. Repeat it after Retry-After seconds."
            )
            raise ProblemError(problem, {"Retry-After": seconds}) from error

    def authenticate_header(self, request: Request) -> str:
        """What an answer 401 to a call without a credential names."""
        return 'Bearer realm="WMS2", Token realm="WMS2"' if conf().token_issuers else "Token"


def judged(credential: str, now: float) -> BearerToken:
    """A token that is right at this moment, in seconds since 1970. Raises TokenRefused, KeysUnread."""
    claims = _signed(credential)
    _timely(claims, now)
    audiences = claims.get("aud")
    named = audiences if isinstance(audiences, list) else [audiences]
    if not any(each in conf().token_audiences for each in named):
        raise TokenRefused(f"its aud names none of {', '.join(conf().token_audiences)}")
    if claims.get("wlcg.ver") != PROFILE_VERSION:
        raise TokenRefused(f"its wlcg.ver is not {PROFILE_VERSION}")
    for claim in ("sub", "jti"):
        if not isinstance(claims.get(claim), str) or not _PLAIN.fullmatch(claims[claim]):
            raise TokenRefused(f"its {claim} is missing, too long or not printable")
    name, jti = name_of(claims["iss"], claims["sub"]), claims["jti"]
    if {name, jti} & set(conf().tokens_refused):
        raise TokenRefused("it, or its subject, is revoked here", name)
    grants = tuple(_grants(claims))
    if not grants:
        raise NoRole("no scope or group of it gives a role here", name)
    return BearerToken(name, jti, grants)


def name_of(issuer: str, subject: str) -> str:
    """The user that a subject is: ``<sub>#<issuer without https://>``.

    No other door makes names with ``#``, and no issuer has one, so that no subject can be taken for a local user or for one of
    another issuer. One that would be too long is ``#`` and its digest.
    """
    name = f"{subject}#{issuer.removeprefix('https://')}"
    return name if len(name) <= _MOST_NAME else f"#{hashlib.sha256(f'{issuer} {subject}'.encode()).hexdigest()}"


def _signed(credential: str) -> Mapping[str, Any]:
    """The claims, after the signature was found right."""
    header, issuer = _unproven(credential)
    if not isinstance(issuer, str) or issuer not in conf().token_issuers:
        raise TokenRefused("its iss is not a trusted issuer; it is compared exactly, a slash at the end too")
    kid, algorithm = header.get("kid"), header["alg"]
    if not isinstance(kid, str) or not kid:
        raise TokenRefused("its header names no key (kid)")
    key = keys_of(issuer).find(kid)
    if key is None:
        raise TokenRefused("its kid is not among the keys of its issuer")
    if key.algorithm_name != algorithm:
        raise TokenRefused("its alg is not that of its key")
    try:
        return jwt.decode(credential, key, algorithms=[algorithm], options=_UNCHECKED)
    except jwt.PyJWTError as error:
        raise TokenRefused("its signature is wrong") from error


def _unproven(credential: str) -> tuple[Mapping[str, Any], object]:
    """Header and issuer as the token has them. What the header says about where its key is (jku, x5u, jwk, x5c) is not read."""
    if len(credential) > MOST_BYTES:
        raise TokenRefused(f"it is longer than {MOST_BYTES} bytes")
    try:
        header = jwt.get_unverified_header(credential)
        issuer = jwt.decode(credential, options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise TokenRefused("it cannot be read as a JWT") from error
    if header.get("alg") not in ALGORITHM_OF.values():
        raise TokenRefused(f"its alg is not {' or '.join(ALGORITHM_OF.values())}")
    if "crit" in header:
        raise TokenRefused("its header has extensions (crit) that are not understood here")
    return header, issuer


def _timely(claims: Mapping[str, Any], now: float) -> None:
    """Issued in the past, begun, not over, and not for too long."""
    issued, ends = _moment(claims, "iat"), _moment(claims, "exp")
    begins = _moment(claims, "nbf") if "nbf" in claims else issued
    if ends <= now - LEEWAY_SECONDS:
        raise TokenRefused("it has expired")
    if begins > now + LEEWAY_SECONDS:
        raise TokenRefused("it is not valid yet (nbf)")
    if issued > now + LEEWAY_SECONDS:
        raise TokenRefused("it is issued in the future (iat): one of the clocks is wrong")
    if ends - issued > MAX_SECONDS:
        raise TokenRefused(f"it is issued for more than {MAX_SECONDS} s")


def _moment(claims: Mapping[str, Any], claim: str) -> float:
    value = claims.get(claim)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST_SECONDS:
        raise TokenRefused(f"its {claim} is missing or not a number of seconds")
    return float(value)


def _grants(claims: Mapping[str, Any]) -> Iterator[Grant]:
    """By scopes alone where there is one that we know, or any capability of the profile; else by groups."""
    scope, groups, known = claims.get("scope", ""), claims.get("wlcg.groups", []), conf().role_names
    if not isinstance(scope, str) or not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
        raise TokenRefused("its scope is not a text, or its wlcg.groups is not a list of texts")
    scopes = [each.partition(":")[::2] for each in scope.split() if each[0] != "/"]
    if any(name in known or name.startswith(_CAPABILITIES) for name, _ in scopes):
        for name, path in scopes:
            yield from _granted(name, {path[1:]} if path not in ("", "/") else set())
        return
    for group in groups:
        if group.startswith("/"):
            # the group itself has to be in the token: its parts alone give nothing
            parts = {each.removeprefix(f"{group}/") for each in groups if each.startswith(f"{group}/")}
            yield from _granted(group, {part for part in parts if "/" not in part}, narrows=False)


def _granted(name: str, limits: set[str], *, narrows: bool = True) -> tuple[Grant, ...]:
    """``narrows``: a role that holds for all rows cannot be limited, so that a limit takes it away."""
    known = conf().role_names
    role = Role(known[name]) if name in known else None
    of = {each for each in limits if _LIMIT.fullmatch(each)}
    if narrows and limits and (not of or role not in (Role.REQUESTER, Role.SITE_ADMIN)):
        return ()
    return grants_named({name: (of if role is Role.REQUESTER else (), of if role is Role.SITE_ADMIN else ())}, known)


def _user_of(token: BearerToken) -> AbstractBaseUser:
    """With the token's grants and no other, for this call. Raises TokenRefused: they may not come in."""
    user = person_ensure(conf().token_users.get(token.name, token.name))
    if why := ended_because(user):  # also a service account that a setting names, whose owner is gone
        raise TokenRefused(why, token.name)
    use_grants(user, token.grants)
    return user


def _answer(request: Request, credential: str, refused: TokenRefused) -> ProblemError:
    """The refusal, counted by address. Each is logged and audited, until the address has to wait: that is audited once."""
    address = address_of(request._request) or "unknown"
    seconds = math.ceil(token_wrong(address))
    refusal_set_audited(request._request)  # below, or by the throttle
    if seconds:
        return must_wait(seconds)
    reason, claimed = f"bearer token: {refused}", _claimed(credential)
    log.warning("bearer token refused", reason=str(refused), user=refused.name, address=address[:100], **claimed)
    audit(
        actor=refused.name, action="token_refused", target_type="address", target=address[:300], reason=reason, refused=True,
        **claimed,
    )  # fmt: skip
    words = re.sub(r"[^ -~]|[\"\\]", "?", str(refused))
    challenge = f'Bearer realm="WMS2", error="{refused.code}", error_description="{words}"'
    problem = Problem(refused.status, refused.code, reason, hint=refused.hint)
    return ProblemError(problem, {"WWW-Authenticate": challenge})


def _claimed(credential: str) -> dict[str, str]:
    """Who a refused token says that it is of, which may be anything; what is not printable is replaced."""
    if len(credential) > MOST_BYTES:
        return {}
    try:
        claims = jwt.decode(credential, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}  # the reason says that it cannot be read
    return {f"claimed_{name}": re.sub(r"[^ -~]", "?", str(claims.get(name, ""))[:200]) for name in ("iss", "sub", "jti")}
