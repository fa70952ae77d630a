"""CMS's own front end as a door: its word on who the user is holds for one request, and makes no session.

Two kinds, each taken only from the addresses (of the TCP peer) that the settings name for it. With HMAC: the ``cms-*`` headers of
cmsweb, judged as WMCore's ``REST/Auth.py`` does and dmwm/cmsauth makes them. Without: what an ordinary proxy says of the client's
certificate. From all others these headers are removed before any view sees the request. Who a refusal is about is audited.
Not here: what roles are (``wms2.identities.grants``), dangerous settings (``wms2.identities.front_end_checks``), REST's
part (``wms2.api.front_end``).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from cryptography.x509 import Name
from cryptography.x509.oid import NameOID
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin
from django.utils.encoding import escape_uri_path

from wms2.api.problems import MEDIA_TYPE, Problem
from wms2.audit import audit
from wms2.conf import Conf, conf
from wms2.errors import Wms2Error
from wms2.identities.grants import OWN_NAMES, Grant, grants_named, person_ensure, use_grants
from wms2.identities.service_accounts import ended_because
from wms2.web.login_throttle import first_in_window

#: The user that reads without a name, where ``front_end_anonymous`` allows it; for reading alone.
ANONYMOUS = "anonymous"
#: Set on requests whose user a front end has named.
FROM_FRONT_END = "_wms2_front_end_user"
#: Where one signs in with a name, the reader without one is not signed in already; admin and account have nothing for it.
_NAMED_ONLY = ("/login/", "/logout/", "/account/", "/accounts/", "/admin/", "/api/v1/account")
#: What is asked whether WMS2 lives has to answer without the database.
_OF_NO_USER = ("/livez", "/readyz", "/api/v1/health")
_SAFE = ("GET", "HEAD", "OPTIONS")
#: Headers of a front end that verifies certificates: whose, and whether it was verified.
_DN_HEADER, _VERIFY_HEADER = "X-SSL-Client-S-DN", "X-SSL-Client-Verify"
_STATUS, _HMAC, _ROLE = "cms-auth-status", "cms-authn-hmac", "cms-authz-"
#: By these WMCore finds what the HMAC covers: all of it, also headers that it does not know.
_SIGNED = ("cms-authn", "cms-authz")
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,99}")
_CANONICAL_SITE = re.compile(r"t\d-[a-z]{2}-[a-z0-9-]+")
#: What stands for "without" in a VOMS attribute.
_VOMS_WITHOUT = re.compile(r"/(?:Role|Capability)=NULL(?=/|$)")
_SLASH = re.compile(r"/(?=[A-Za-z][A-Za-z0-9.]*=)")
#: What OpenSSL and grids call attributes of names beside those of RFC 4514.
_ATTRIBUTES = {"emailAddress": NameOID.EMAIL_ADDRESS, "serialNumber": NameOID.SERIAL_NUMBER, "title": NameOID.TITLE}
_SPELLED = {"1.2.840.113549.1.9.1": "EMAILADDRESS", "EMAIL": "EMAILADDRESS", "E": "EMAILADDRESS", "USERID": "UID"}
#: The same from the same address is audited once within this: a front end with another key would write a row for each request.
_AUDITED_SECONDS = 60.0

log = structlog.get_logger(__name__)


class FrontEndRefused(Wms2Error):
    """What a front end says cannot be taken; says why. ``login``: as whom, if that is known."""

    def __init__(self, why: str, login: str = "") -> None:
        super().__init__(why)
        self.login = login


class Named(NamedTuple):
    """Who a front end says the client is. ``grants`` None: those that are stored for the user."""

    login: str
    grants: tuple[Grant, ...] | None


class FrontEndMiddleware(MiddlewareMixin):
    """Inside Django's authentication: a front end that names a user is believed before any session."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """None; 403 where it cannot be believed."""
        try:
            identify(request)
        except FrontEndRefused as error:
            _audit_once(request, "front_end_refused", str(error), error.login, of=str(error))
            return _refusal(request, str(error))
        return None


def identify(request: HttpRequest) -> None:
    """Have the user whom a front end names as the request's, and no header of a front end left. Raises FrontEndRefused."""
    settings = conf()
    # All cms-auth* headers by name; none of cms-* are left.
    taken = _taken(request, [key for key in request.META if key.startswith("HTTP_CMS_")])
    cms = {name: value for key, value in taken.items() if "cms-auth" in (name := _header_of(key))}
    keys = [_key(name) for name in _certificate_headers(settings) if name] if settings.x509_front_end_addresses else []
    certificate = _taken(request, keys)
    from_cms, from_x509 = (_is_of(request, each) for each in (settings.front_end_addresses, settings.x509_front_end_addresses))
    strange = [] if from_cms or not settings.front_end_addresses else [*cms]
    strange += [] if from_x509 or not settings.x509_front_end_addresses else [_header_of(key) for key in certificate]
    if request.path in _OF_NO_USER:
        return
    if strange:
        why = f"headers of a front end from an address that is not its own; they were ignored: {', '.join(sorted(strange))}"
        _audit_once(request, "front_end_ignored", why[:300], cms.get("cms-authn-login", ""), of="")
    if not ((from_cms and cms) or (from_x509 and certificate)):
        return
    named = named_by_cms(cms, settings) if from_cms else named_by_certificate(certificate, settings)
    may_be_anonymous = settings.front_end_anonymous and request.method in _SAFE and not request.path.startswith(_NAMED_ONLY)
    if named is None and may_be_anonymous and not request.user.is_authenticated:
        named = Named(ANONYMOUS, ())
    elif named is not None and named.login == ANONYMOUS:
        raise FrontEndRefused(f"{ANONYMOUS} is no login: who has a name comes by it")
    if named is not None:
        user = _user_of(named)
        request.user = request._cached_user = user  # type: ignore[attr-defined]
        setattr(request, FROM_FRONT_END, user)


def named_by_cms(headers: Mapping[str, str], settings: Conf) -> Named | None:
    """Whom the headers of CMS's front end (lower case) name; None: its status is NONE. Raises FrontEndRefused."""
    status = headers.get(_STATUS, "")
    if status.upper() == "NONE":
        return None
    if status.upper() != "OK":
        raise FrontEndRefused(f"{_STATUS} is {status[:50]!r}, not OK" if status else f"there is no header {_STATUS}")
    if not hmac.compare_digest(signature(headers, _key_of(settings)).encode(), headers.get(_HMAC, "").encode("latin-1")):
        raise FrontEndRefused(f"{_HMAC} is not that of the other headers with the key of WMS2_FRONT_END_KEY")
    return Named(headers.get("cms-authn-login", ""), grants_signed(headers, settings))


def signature(headers: Mapping[str, str], key: bytes) -> str:
    """The HMAC of cmsweb over all authentication and authorisation headers: sorted by name, the lengths of each name and value
    before them, so that none can be added, left out, or end elsewhere. Values are as WSGI has them, one character a byte."""
    signed = sorted((name, value) for name, value in headers.items() if name.startswith(_SIGNED) and name != _HMAC)
    lengths = "".join(f"h{len(name):x}v{len(value):x}" for name, value in signed)
    text = "".join(name + value for name, value in signed)
    return hmac.digest(key, f"{lengths}#{text}".encode("latin-1"), "sha1").hex()


def grants_signed(headers: Mapping[str, str], settings: Conf) -> tuple[Grant, ...]:
    """The grants of ``cms-authz-<role>: group:<name> site:<name> …``.

    ``role_names`` may have the role alone, for whatever group or site; or the role with one of them, ``admin group:reqmgr``,
    as CMS's services ask for it.
    """
    names: dict[str, tuple[Iterable[str], Iterable[str]]] = {}
    for header, value in headers.items():
        if not header.startswith(_ROLE):
            continue
        role = header.removeprefix(_ROLE)
        groups = {word: _ours(word, settings) for word in value.split() if word.startswith("group:")}
        sites = {word: _ours(word, settings) for word in value.split() if word.startswith("site:")}
        names[role] = (groups.values(), sites.values())
        names |= {f"{role} {word}": ((name,), ()) for word, name in groups.items()}
        names |= {f"{role} {word}": ((), (name,)) for word, name in sites.items()}
    return grants_named(names, settings.role_names)


def named_by_certificate(headers: Mapping[str, str], settings: Conf) -> Named | None:
    """Whom a front end without HMAC names; None: its client has shown no certificate. Keys are those of WSGI. Raises
    FrontEndRefused."""
    dn_key, verify_key, voms_key = (_key(name) for name in _certificate_headers(settings))
    dn, verdict = headers.get(dn_key, ""), headers.get(verify_key, "")
    if not dn and verdict in ("", "NONE"):
        return None
    if verdict != "SUCCESS":
        raise FrontEndRefused(f"{_VERIFY_HEADER} is {verdict[:50]!r}, not SUCCESS: the certificate was not verified")
    parts = parts_of(dn)
    login = next((login for known, login in settings.x509_logins.items() if slashed(known) == parts), "")
    login = login or _login_below(slashed(settings.x509_login_base), parts)
    if not login:
        raise FrontEndRefused(f"WMS2_X509_LOGINS and WMS2_X509_LOGIN_BASE know no login of {dn[:200]!r}")
    if not settings.x509_voms_header:
        return Named(login, None)
    attributes = (_VOMS_WITHOUT.sub("", each.strip()) for each in headers.get(voms_key, "").split(","))
    return Named(login, grants_named({each: ((), ()) for each in attributes if each}, settings.role_names))


def parts_of(dn: str) -> tuple[tuple[str, str], ...]:
    """A name as RFC 4514 (and 2253) has it, what nginx calls ``$ssl_client_s_dn``; from the country on. Raises FrontEndRefused:
    it is not one. The form with slashes is refused: a common name with a slash in it could be that of another person there."""
    try:
        found = Name.from_rfc4514_string(dn.encode("latin-1").decode(), _ATTRIBUTES).rdns
    except ValueError as error:
        raise FrontEndRefused(f"the client's name is not as RFC 4514 has it ($ssl_client_s_dn of nginx): {dn[:200]!r}") from error
    if any(len([*each]) > 1 for each in found):
        raise FrontEndRefused(f"the client's name has several attributes in one part: {dn[:200]!r}")
    return tuple((_spelled(each.rfc4514_attribute_name), str(each.value)) for part in found for each in part)


@lru_cache(maxsize=4096)
def slashed(dn: str) -> tuple[tuple[str, str], ...]:
    """The parts of a name as grids write it, ``/DC=ch/DC=cern/OU=…/CN=…``; only of settings."""
    pairs = (part.partition("=") for part in _SLASH.split(dn)[1:])
    return tuple((_spelled(name), value) for name, _, value in pairs)


def _login_below(base: tuple[tuple[str, str], ...], parts: tuple[tuple[str, str], ...]) -> str:
    """The common name just below the base: CERN's authority has the login there, and further common names behind it."""
    rest = parts[len(base) :]
    if not base or parts[: len(base)] != base or not rest or any(name != "CN" for name, _ in rest):
        return ""
    return rest[0][1]


def _spelled(attribute: str) -> str:
    return _SPELLED.get(attribute.upper(), attribute.upper())


def _ours(word: str, settings: Conf) -> str:
    """What WMS2 calls the ``group:…`` or ``site:…`` of a front end. Its canonical form has lost the case of sites."""
    name = word.partition(":")[2]
    if word.startswith("site:") and _CANONICAL_SITE.fullmatch(name):
        name = name.upper().replace("-", "_")
    return settings.front_end_names.get(word, name)


def _key_of(settings: Conf) -> bytes:
    """All bytes of the file, as WMCore takes them; read at each use."""
    try:
        key = Path(settings.front_end_key).read_bytes() if settings.front_end_key else b""
    except OSError as error:
        raise FrontEndRefused(f"the key of WMS2_FRONT_END_KEY cannot be read: {error.strerror}") from error
    if not key:
        raise FrontEndRefused("there is no key to check the front end's HMAC with: WMS2_FRONT_END_KEY")
    return key


def _user_of(named: Named) -> Any:
    """The user, with the grants of this request. Raises FrontEndRefused."""
    if not _LOGIN.fullmatch(named.login) or named.login.lower() in OWN_NAMES:
        raise FrontEndRefused(f"{named.login[:100]!r} is no login that a front end may name")
    user: Any = person_ensure(named.login)
    if not user.is_active:
        raise FrontEndRefused(f"the account {named.login} is not active: an administrator has closed it", named.login)
    if why := ended_because(user):  # a service account, whose owner is gone
        raise FrontEndRefused(why, named.login)
    if user.is_superuser:  # its rights would go beyond those that the front end says
        why = "is one with all rights, which signs in by itself and through no front end: use another account, or take its rights"
        raise FrontEndRefused(f"the account {named.login} {why}", named.login)
    if named.grants is not None:
        use_grants(user, named.grants)
    return user


def _is_of(request: HttpRequest, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    """Whether the TCP peer is of these; what it says of others (``X-Forwarded-For``) does not count."""
    try:
        peer = ip_address(request.META.get("REMOTE_ADDR") or "")
    except ValueError:  # a socket of the file system has none
        return False
    peer = getattr(peer, "ipv4_mapped", None) or peer
    return any(peer in network for network in networks)


def _taken(request: HttpRequest, keys: Iterable[str]) -> dict[str, str]:
    request.__dict__.pop("headers", None)  # Django makes these once, of what was there
    return {key: request.META.pop(key) for key in keys if key in request.META}


def _certificate_headers(settings: Conf) -> tuple[str, str, str]:
    return _DN_HEADER, _VERIFY_HEADER, settings.x509_voms_header


def _key(header: str) -> str:
    return f"HTTP_{header.upper().replace('-', '_')}"


def _header_of(key: str) -> str:
    return key.removeprefix("HTTP_").replace("_", "-").lower()


def _audit_once(request: HttpRequest, action: str, why: str, login: str, *, of: str) -> None:
    """``of``: what beside action and address makes it another one; nothing that outsiders choose."""
    peer = str(request.META.get("REMOTE_ADDR") or "a local socket")
    if not first_in_window(action, peer, of, seconds=_AUDITED_SECONDS):
        return
    asked = {"login": login[:100], "method": str(request.method), "path": escape_uri_path(request.path)[:300]}
    log.warning(action.replace("_", " "), address=peer, why=why, **asked)
    audit(actor="unknown", action=action, target_type="address", target=peer, reason=why, refused=True, **asked)


def _refusal(request: HttpRequest, why: str) -> HttpResponse:
    detail = f"the front end's word on who you are was not taken: {why}"
    if request.path.startswith("/api/"):
        hint = "Nothing was done. Ask the administrators of WMS2 and of the front end; the audit has an entry."
        body = Problem(403, "front_end_refused", detail, hint=hint).body()
        return JsonResponse(body, status=403, content_type=MEDIA_TYPE)
    return render(request, "front_end_refused.html", {"why": detail[:1].upper() + detail[1:]}, status=403)
