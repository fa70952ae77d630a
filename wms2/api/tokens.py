"""Tokens over REST: personal ones, and the keys of Django REST framework that they replace.

After many wrong ones an address has to wait; a right one never has. Who holds a right secret learns why it is refused, all others
only that it is.
"""

from __future__ import annotations

import math
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin
from rest_framework.authentication import BaseAuthentication, TokenAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from wms2.api.problems import Problem, ProblemError
from wms2.audit import audit, refusal_set_audited
from wms2.identities.service_accounts import ended_because
from wms2.identities.tokens import BEGINS, old_key_found, token_ended, token_found, token_use
from wms2.models import PersonalToken
from wms2.web.login_throttle import address_of, first_in_window, token_wrong

_OLD_KEY = "_wms2_old_key"
#: Since 2026-11-27, as RFC 9745 writes it.
_DEPRECATED = "@1795737600"
_RENEW = "Make a new one at /account/."


class PersonalTokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer wms2_...`` or ``Token wms2_...``; other bearer tokens and keys are left to the classes after it."""

    def authenticate(self, request: Request) -> tuple[Any, PersonalToken] | None:
        """User and token; None where the header has no personal token. Raises AuthenticationFailed: no row has this secret;
        ProblemError: 401 with the reason to who has it, 429 after many wrong ones."""
        scheme, _, text = get_authorization_header(request).decode("latin-1").strip().partition(" ")
        if scheme.lower() not in ("bearer", "token") or not text.strip().startswith(BEGINS):
            return None
        token = token_found(text.strip())
        if token is None:
            raise _wrong(request, AuthenticationFailed("Invalid token."))
        code, why = token_ended(token)
        if code:
            address = address_of(request._request)
            refusal_set_audited(request._request)
            if first_in_window(code, token.prefix):  # a program that goes on with it fills no audit
                audit(
                    actor=token.owner.get_username()[:100], action="token_refused", target=token, target_type="token",
                    reason=why, refused=True, address=address,
                )  # fmt: skip
            raise ProblemError(Problem(401, code, why, hint=_RENEW), {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        return token_use(token), token

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return "Token"


class ThrottledTokenAuthentication(TokenAuthentication):
    """DRF's keys, with the login throttle. They go on until their owners end them; none is made any more."""

    def authenticate(self, request: Request) -> Any:
        """User and key; None without the header. Raises AuthenticationFailed: no user has it; ProblemError: 429."""
        try:
            found = super().authenticate(request)
        except AuthenticationFailed as error:
            raise _wrong(request, error) from error
        if found is not None:
            setattr(request._request, _OLD_KEY, True)
        return found

    def authenticate_credentials(self, key: str) -> Any:
        """User and key, in one query; those of a service account end with its owner, too. Raises AuthenticationFailed."""
        row = old_key_found(key)
        if row is None:
            raise AuthenticationFailed("Invalid token.")
        if why := ended_because(row.user):
            raise AuthenticationFailed(why)
        return row.user, row


class OldKeyMiddleware(MiddlewareMixin):
    """Says in the answer that the key it was asked with is to be replaced."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Headers of RFC 9745."""
        if getattr(request, _OLD_KEY, False):
            response["Deprecation"] = _DEPRECATED
            response["Link"] = '</account/>; rel="deprecation"; title="make a personal token and end this key"'
        return response


def _wrong(request: Request, error: AuthenticationFailed) -> Exception:
    """What a wrong token is answered: that it is wrong, or after many of them how long to wait."""
    address = address_of(request._request)
    refusal_set_audited(request._request)  # below, or by the throttle
    seconds = math.ceil(token_wrong(address))
    if not seconds:
        if first_in_window("token_wrong", address):
            audit(
                actor="unknown", action="token_wrong", target_type="address", target=address[:300], refused=True,
                reason="a token that no user has; more of them from this address are counted, not written down",
            )  # fmt: skip
        return error
    return must_wait(seconds)


def must_wait(seconds: int) -> ProblemError:
    """The answer to a wrong token of an address that has sent too many."""
    detail = f"too many wrong tokens from this address; try again in {seconds} s"
    problem = Problem(429, "too_many_failures", detail, hint="Check the token; a right one is taken at once.")
    return ProblemError(problem, {"Retry-After": str(seconds)})
