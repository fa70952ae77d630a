"""The issuer of single sign-on, as WMS2 speaks with it: OpenID Connect by django-allauth, with the checks that it leaves out.

Owns: calls to the issuer, and what is checked of its answers: issuer, signature, audience, times, nonce, one subject throughout.
Not here: who a subject is in WMS2 (``wms2.identities.sso``), for how long an answer holds (``wms2.identities.sso_sessions``).
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import jwt
import requests
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import HttpRequest
from django.urls import reverse

from wms2.conf import conf

#: Part of the redirect address that is registered at the issuer, and of the rows that bind subjects to users.
PROVIDER = "sso"
#: Signatures of ID tokens: by keys of which the issuer publishes the other half.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384")
#: Difference of the issuer's clock and ours that is taken as none.
LEEWAY_SECONDS = 60
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")


class IssuerAnswer(NamedTuple):
    """What the issuer says of a user: the subject, its names of roles, and what it is asked with the next time (or empty)."""

    subject: str
    names: tuple[str, ...]
    refresh_token: str


class SsoRefused(OAuth2Error):
    """The issuer no longer stands for this user."""


class Provider(OpenIDConnectProvider):
    """The issuer. The nonce is derived from PKCE's verifier, which the session keeps: both bind the answer to this browser."""

    def get_oauth2_adapter(self, request: HttpRequest) -> Exchange:
        """What speaks to it."""
        return Exchange(request, PROVIDER)

    def get_pkce_params(self) -> dict[str, str]:
        """And the nonce; what is not ``code_verifier`` goes to the issuer."""
        pkce: dict[str, str] = super().get_pkce_params()
        return {**pkce, "nonce": _nonce(pkce["code_verifier"])}

    def extract_extra_data(self, data: Any) -> dict[str, Any]:
        """Nothing: no claims are stored beside the names of roles."""
        return {}

    def cleanup_email_addresses(self, email: str | None, addresses: list[Any], email_verified: bool = False) -> str | None:
        """The address is shown; no user is found by it."""
        addresses.clear()
        return email


class Exchange(OpenIDConnectOAuth2Adapter):
    """Calls to the issuer for one request of a user."""

    @property
    def openid_config(self) -> dict[str, Any]:
        """Its discovery document. Raises OAuth2Error: it is another issuer's, or incomplete; RequestException: no answer."""
        found = super().openid_config
        if not isinstance(found, dict) or found.get("issuer") != conf().sso_issuer:
            raise OAuth2Error(f"the discovery document is not one of the issuer {conf().sso_issuer} (WMS2_SSO_ISSUER)")
        if missing := [name for name in _ENDPOINTS if not found.get(name)]:
            raise OAuth2Error(f"the discovery document lacks {', '.join(missing)}")
        return found

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        """Where the issuer sends the browser back to."""
        return request.build_absolute_uri(reverse("sso-callback"))

    def get_access_token_data(self, request: HttpRequest, app: Any, client: Any, pkce_code_verifier: str | None = None) -> Any:
        """The tokens for a code, of which the ID token must be the one that this browser asked for."""
        answer = super().get_access_token_data(request, app, client, pkce_code_verifier=pkce_code_verifier)
        self._nonce = _nonce(pkce_code_verifier or "")
        return answer

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> Any:
        """Who signs in, and ``claims``. Raises OAuth2Error: the answer is not to be believed."""
        claims = self._claims(kwargs["response"], self._nonce)
        login = self.get_provider().sociallogin_from_response(request, {"userinfo": claims})
        login.claims = claims
        return login

    def refreshed(self, refresh_token: str, subject: str) -> IssuerAnswer:
        """What the issuer says of the user now.

        Raises:
            SsoRefused: it stands for the user no longer.
            OAuth2Error, RequestException: it gave no answer that can be used.
        """
        app = self.get_provider().app
        data = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        basic = (app.client_id, app.secret) if self.basic_auth else None
        with get_adapter().get_requests_session() as session:
            answer = session.post(
                self.access_token_url,
                data=data if basic else data | {"client_id": app.client_id, "client_secret": app.secret},
                auth=basic,
            )
        body = _json(answer)
        if body.get("error") == "invalid_grant":
            raise SsoRefused(str(body.get("error_description") or "invalid_grant"))
        if answer.status_code != HTTPStatus.OK or "access_token" not in body:
            raise OAuth2Error(f"{answer.status_code} at {self.access_token_url}: {body.get('error') or 'no token'}")
        claims = self._claims(body, None, id_token_needed=False)
        if claims["sub"] != subject:
            raise SsoRefused("the issuer answered for another user")
        return IssuerAnswer(subject, names_of(claims), str(body.get("refresh_token") or refresh_token))

    def _claims(self, tokens: Mapping[str, Any], nonce: str | None, *, id_token_needed: bool = True) -> dict[str, Any]:
        """Those of the ID token, and those of the user info endpoint over them, which are of the same subject."""
        proven = self._proven(str(tokens.get("id_token") or ""), nonce) if id_token_needed or tokens.get("id_token") else {}
        claims = self._fetch_user_info(tokens["access_token"])
        if not isinstance(claims, dict) or not claims.get("sub") or proven.get("sub", claims["sub"]) != claims["sub"]:
            raise OAuth2Error("the user info is not of the ID token's subject")
        return proven | claims

    def _proven(self, id_token: str, nonce: str | None) -> dict[str, Any]:
        """The claims of an ID token that is right in every respect; the signature counts although it came by TLS."""
        config, client_id = self.openid_config, conf().sso_client_id
        try:
            header = jwt.get_unverified_header(id_token)
            with get_adapter().get_requests_session() as session:
                keys = jwt.PyJWKSet.from_dict(_json(session.get(config["jwks_uri"])))
            claims: dict[str, Any] = jwt.decode(
                id_token, keys[header["kid"]], algorithms=list(ALGORITHMS), audience=client_id, issuer=config["issuer"],
                leeway=LEEWAY_SECONDS, options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )  # fmt: skip
        except (jwt.PyJWTError, KeyError) as error:
            raise OAuth2Error(f"the ID token is wrong: {error}") from error
        if claims.get("azp", client_id) != client_id:
            raise OAuth2Error("the ID token was issued to another client")
        if nonce is not None and claims.get("nonce") != nonce:
            raise OAuth2Error("the ID token was asked for by another browser")
        return claims


def names_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of roles or groups in the claim ``sso_roles_claim``; none where there is no such claim."""
    found: Any = claims
    for part in conf().sso_roles_claim.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return tuple(found.split())
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, Sequence) else ()


def _nonce(verifier: str) -> str:
    """One that only the holder of the verifier knows before the issuer does; it says nothing about the verifier."""
    return urlsafe_b64encode(hashlib.sha256(f"nonce {verifier}".encode()).digest()).rstrip(b"=").decode()


def _json(answer: requests.Response) -> dict[str, Any]:
    """A JSON object; empty where the answer is something else."""
    try:
        body = answer.json()
    except requests.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}
