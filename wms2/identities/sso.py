"""Single sign-on by OpenID Connect: WMS2 as django-allauth's relying party of one issuer (the settings ``sso_*``).

Owns: the way to the issuer and back, and who a subject of the issuer is here. allauth has state and PKCE; two addresses of it are
exposed, no sign-up, no mails.
Not here: calls to the issuer (``wms2.identities.sso_issuer``), roles and how long they hold (``wms2.identities.sso_sessions``),
passwords (Django, ``wms2.web.login_throttle``).

A subject is bound to the user that its first sign-in made, for good. It is never bound to one who is there already: a local
account, a service account, another subject's. ``manage.py sso_connect`` does that, by an administrator who knows both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests
import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.base.constants import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django.contrib.auth import get_user_model
from django.contrib.auth.forms import AuthenticationForm
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from wms2.audit import audit, refusal_set_audited
from wms2.conf import conf
from wms2.identities.front_end import ANONYMOUS
from wms2.identities.grants import OWN_NAMES
from wms2.identities.sso_issuer import PROVIDER, Exchange, Provider
from wms2.web.login_throttle import address_of

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")

log = structlog.get_logger(__name__)


class LocalAccounts(DefaultAccountAdapter):
    """allauth's part of local accounts: none are made, nothing is mailed or said by it."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """No."""
        return False

    def login(self, request: HttpRequest, user: Any) -> None:
        """A session of Django's, with a new key; allauth would name the throttle as the backend."""
        user.backend = "django.contrib.auth.backends.ModelBackend"
        super().login(request, user)

    def get_client_ip(self, request: HttpRequest) -> str:
        """As for all of WMS2."""
        return address_of(request)

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Whom the page is for stands at its head."""


class SsoAccounts(DefaultSocialAccountAdapter):
    """Who subjects of the issuer are here."""

    def list_apps(self, request: HttpRequest, provider: str | None = None, client_id: str | None = None) -> list[Any]:
        """The one of the settings; none where they name no issuer. Rows of allauth's table count for nothing."""
        settings = conf()
        if not settings.sso_issuer:
            return []
        secret = Path(settings.sso_client_secret_file).read_text(encoding="utf-8").strip()
        options = {"server_url": settings.sso_issuer.rstrip("/"), "oauth_pkce_enabled": True}
        return [
            SocialApp(
                provider="openid_connect", provider_id=PROVIDER, name=settings.sso_label, client_id=settings.sso_client_id,
                secret=secret, settings=options,
            )
        ]  # fmt: skip

    def get_provider(self, request: HttpRequest, provider: str, client_id: str | None = None) -> Provider:
        """Ours, whatever is asked for."""
        return Provider(request, app=self.get_app(request, PROVIDER))

    def get_requests_session(self) -> requests.Session:
        """With the installation's authorities; no redirect of a token's call is followed."""
        session: requests.Session = super().get_requests_session()
        session.verify = conf().ca_path or True
        session.max_redirects = 0
        session.trust_env = False
        return session

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Whom the issuer knows reads here; more is a matter of roles."""
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Refuse those who may not come in, before anything is written."""
        if sociallogin.user.pk is not None:
            if not sociallogin.user.is_active:
                raise _refusal(request, f"The user {sociallogin.user.get_username()} is not active in WMS2.")
            return
        name = name_of(sociallogin.claims)
        if not _NAME.fullmatch(name) or name == ANONYMOUS or name in OWN_NAMES:
            raise _refusal(request, f"{conf().sso_label} calls you {name[:100]!r}, which is no user name of WMS2.")
        if get_user_model().objects.filter(username__iexact=name).exists():
            raise _name_taken(request, name, str(sociallogin.claims["sub"]))

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        """A new user without a password, under exactly the issuer's name."""
        user, name = sociallogin.user, name_of(sociallogin.claims)
        user.username = name
        user.set_unusable_password()
        try:
            with transaction.atomic():
                sociallogin.save(request)
        except IntegrityError:  # made by another door since it was looked for
            raise _name_taken(request, name, str(sociallogin.claims["sub"])) from None
        return user

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Our page instead of allauth's."""
        label = conf().sso_label
        if isinstance(exception, requests.RequestException):
            raise _refusal(request, _unreachable(), HTTPStatus.SERVICE_UNAVAILABLE, str(exception))
        if exception is not None:
            problem = f"The answer of {label} was refused. Sign in again; the log says why."
            raise _refusal(request, problem, why=str(exception))
        said = str(request.GET.get("error", ""))[:100]
        if said and (extra_context or {}).get("state"):
            raise _refusal(request, f"{label} did not sign you in: {said}.", why=said)
        why = "This sign-in did not begin in this browser, was used already, or took longer than ten minutes."
        raise _refusal(request, f"{why} Sign in again.", HTTPStatus.BAD_REQUEST, why)


@require_POST
@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """Send the browser to the issuer."""
    accounts, wanted = get_adapter(request), request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    try:
        answer: HttpResponse = accounts.get_provider(request, PROVIDER).redirect(
            request, AuthProcess.LOGIN, wanted if safe else None
        )
    except SocialApp.DoesNotExist:
        raise Http404 from None
    except (requests.RequestException, OAuth2Error, OSError) as error:
        return _refused(request, _unreachable(), HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return answer


@require_GET
@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    """The browser comes back from the issuer."""
    if not conf().sso_issuer:
        raise Http404
    try:
        answer: HttpResponse = OAuth2CallbackView.adapter_view(Exchange(request, PROVIDER))(request)
    except OSError as error:  # RequestException is one; so is a secret that cannot be read
        return _refused(request, _unreachable(), HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return answer


def name_of(claims: Mapping[str, Any]) -> str:
    """The user name that the issuer gives, in lower case: ``preferred_username``, without one ``sub``."""
    return str(claims.get("preferred_username") or claims["sub"]).lower()


def _unreachable() -> str:
    return f"{conf().sso_label} cannot be reached. Try again later; local accounts work below."


def _name_taken(request: HttpRequest, name: str, subject: str) -> ImmediateHttpResponse:
    problem = (
        f"WMS2 has a user {name} who is not bound to your account at {conf().sso_label}."
        f" An administrator binds them, if they are the same person: manage.py sso_connect {name} {subject}"
    )
    return _refusal(request, problem)


def _refusal(
    request: HttpRequest, problem: str, status: HTTPStatus = HTTPStatus.FORBIDDEN, why: str = ""
) -> ImmediateHttpResponse:
    return ImmediateHttpResponse(_refused(request, problem, status, why))


def _refused(request: HttpRequest, problem: str, status: HTTPStatus, why: str = "") -> HttpResponse:
    """The sign-in page with the problem; logged, and audited unless the issuer is away."""
    log.warning("single sign-on failed", problem=problem, why=why, status=int(status))
    if status != HTTPStatus.SERVICE_UNAVAILABLE:
        audit(
            actor="unknown", action="sso_sign_in", target_type="address", target=address_of(request)[:300],
            reason=problem[:1000], refused=True, why=why[:1000],
        )  # fmt: skip
        refusal_set_audited(request)
    context = {"form": AuthenticationForm(request), "problem": problem, "next": "/"}
    return render(request, "login.html", context, status=status)
