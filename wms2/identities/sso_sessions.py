"""Sessions by single sign-on: the roles that the issuer named, asked for again before they are an hour old.

Owns: the row of such a session, its refresh token (encrypted by the installation's key), and for how long an answer holds. From
half an hour on each request may ask again, at most once a minute; an answer older than an hour gives no role. Where the issuer
refuses, or gave nothing to ask with, the session ends. Roles by single sign-on replace what is stored for the user here.
Not here: how the issuer is asked (``wms2.identities.sso``), what roles allow.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import structlog
from allauth.account.signals import user_logged_in as signed_in
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject

from wms2.actions import Role
from wms2.audit import audit
from wms2.conf import conf
from wms2.identities.front_end import FROM_FRONT_END
from wms2.identities.grants import LIMITED, Grant, grants_named, use_grants
from wms2.identities.sso_issuer import PROVIDER, Exchange, IssuerAnswer, SsoRefused, names_of
from wms2.models import SsoSession

#: An answer is asked for again when it is older than this,
RECHECK_AFTER = timedelta(minutes=30)
#: with this between two tries,
RETRY_AFTER = timedelta(minutes=1)
#: and gives no role any more after this. Who loses a group at the issuer has lost the role by then.
HOLDS_FOR = timedelta(hours=1)
#: On the request: what the page says about it.
SSO_NOTICE = "wms2_sso_notice"
_ROW = "wms2_sso_session"

log = structlog.get_logger(__name__)


class SsoSessionMiddleware(MiddlewareMixin):
    """After Django's: the user of a session by single sign-on has the roles that the issuer named, for all that ask for it."""

    def process_request(self, request: HttpRequest) -> None:
        """Nothing is read before the user is asked for: liveness answers without the database. Beside a front end, which was
        believed before any session, the session that came along is neither read nor ended."""
        if hasattr(request, FROM_FRONT_END):
            return
        user = request.user
        request.user = SimpleLazyObject(lambda: _with_roles(request, user, timezone.now()))  # type: ignore[assignment]


@receiver([user_logged_in, user_logged_out], dispatch_uid="wms2.sso_sessions")
def _session_ends(sender: Any, request: HttpRequest | None, **_: Any) -> None:
    """Also by a sign-in: Django goes on with the session of the same user, whichever door they come by now. Single sign-on sends
    this before ``_session_begins``."""
    if pk := getattr(request, "session", {}).pop(_ROW, None):
        SsoSession.objects.filter(pk=pk).delete()


@receiver(signed_in, dispatch_uid="wms2.sso")
def _session_begins(sender: Any, request: HttpRequest, user: Any, sociallogin: Any = None, **_: Any) -> None:
    """The session that has just been signed in is one by single sign-on; rows of sessions long expired go."""
    if sociallogin is None:
        return
    claims, now = sociallogin.claims, timezone.now()
    said = IssuerAnswer(str(claims["sub"]), names_of(claims), sociallogin.token.token_secret)
    SsoSession.objects.filter(read_at__lt=now - timedelta(seconds=settings.SESSION_COOKIE_AGE)).delete()
    row = SsoSession.objects.create(user=user, subject=said.subject, tried_at=now, **_columns(said, now))
    request.session[_ROW] = row.pk


def grants_by(names: Iterable[str], role_names: Mapping[str, str]) -> tuple[Grant, ...]:
    """Roles of the issuer's names. ``name:value`` is the role of ``name`` for one site (site admin) or CMS group (requester);
    of a role that holds for all rows it is nothing: a limit must not give all."""
    wanted: dict[str, tuple[set[str], set[str]]] = {}
    for full in names:
        name, value = (full, "") if full in role_names else full.partition(":")[::2]
        if value and role_names.get(name) not in LIMITED:
            continue
        groups, sites = wanted.setdefault(name, (set(), set()))
        if value:
            (sites if role_names.get(name) == Role.SITE_ADMIN else groups).add(value)
    return grants_named(wanted, role_names)


def _with_roles(request: HttpRequest, user: Any, now: datetime) -> Any:
    """The same user with the roles that hold now; an anonymous one where the session has ended."""
    pk = request.session.get(_ROW) if user.is_authenticated else None
    if pk is None:
        return user
    row = SsoSession.objects.filter(pk=pk, user_id=user.pk).first()
    label = conf().sso_label
    if row is None or not conf().sso_issuer:
        return _ended(request, user, "the session was ended by an administrator")
    if now - row.read_at >= RECHECK_AFTER:
        if not row.refresh_token and now - row.read_at >= HOLDS_FOR:
            return _ended(request, user, f"{label} gave nothing by which it can be asked again")
        # One request of the session asks; refresh tokens are good for one use.
        if row.refresh_token and SsoSession.objects.filter(pk=pk, tried_at=row.tried_at, tried_at__lte=now - RETRY_AFTER).update(
            tried_at=now
        ):
            problem = _asked_again(request, row, now)
            if problem:
                return _ended(request, user, problem)
    if now - row.read_at >= HOLDS_FOR:
        use_grants(user, ())
        setattr(request, SSO_NOTICE, f"{label} has not confirmed your roles within the hour: until it does, you only read.")
        return user
    use_grants(user, grants_by(row.names, conf().role_names))
    return user


def _asked_again(request: HttpRequest, row: SsoSession, now: datetime) -> str:
    """Ask the issuer and write down its answer; why the session ends, empty: it goes on."""
    try:
        token = _cipher().decrypt(row.refresh_token.encode()).decode()
    except InvalidToken:
        return "the key of this installation has changed"
    rows = SsoSession.objects.filter(pk=row.pk)
    try:
        said = Exchange(request, PROVIDER).refreshed(token, row.subject)
    except SsoRefused as error:
        return f"{conf().sso_label} does not go on with it ({error})"
    except (OAuth2Error, OSError) as error:  # an error of requests is an OSError
        log.warning("single sign-on was not asked again", user=row.user_id, problem=str(error), answer_of=row.read_at.isoformat())
        rows.update(problem=str(error)[:1000])
        return ""
    if list(said.names) != row.names:
        log.info("roles by single sign-on changed", user=row.user_id, before=row.names, now=list(said.names))
    row.names, row.read_at = list(said.names), now
    rows.update(**_columns(said, now))
    return ""


def _ended(request: HttpRequest, user: Any, why: str) -> AnonymousUser:
    name = user.get_username()
    audit(actor=name, action="sso_session_ended", target_type="user", target=name, reason=why, refused=True)
    request.user = user  # signing out asks for it
    logout(request)
    messages.error(request, f"Your session has ended: {why}. Sign in again.", fail_silently=True)
    return AnonymousUser()


def _columns(said: IssuerAnswer, now: datetime) -> dict[str, Any]:
    token = _cipher().encrypt(said.refresh_token.encode()).decode() if said.refresh_token else ""
    return {"names": list(said.names), "refresh_token": token, "read_at": now, "problem": ""}


def _cipher() -> Fernet:
    """By the installation's key: a copy of the database alone is not enough to ask the issuer."""
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(f"sso refresh {settings.SECRET_KEY}".encode()).digest()))
