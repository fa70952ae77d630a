"""A token issuer on loopback: real keys, a key set over HTTP, tokens as IAM makes them."""

from __future__ import annotations

import base64
import json
import time
import uuid
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from pytest_httpserver import HTTPServer
from rest_framework.test import APIClient
from werkzeug import Request, Response

AUDIENCE = "https://wms2.test.example"
ANY_AUDIENCE = "https://wlcg.cern.ch/jwt/v1/any"
ROLES = {
    "wms2.read": "viewer",
    "wms2.operate": "operator",
    "wms2.site": "site admin",
    "/cms": "viewer",
    "/cms/production": "operator",
    "/cms/requesters": "requester",
}


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """One for each name; making them is what costs."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class Issuer:
    """Its key set is served at an address of its own, and ``calls`` counts who asked for it."""

    def __init__(self, server: HTTPServer, path: str = "") -> None:
        self.path = path or f"/{uuid.uuid4().hex}/"
        self.url, self.keys_url = server.url_for(self.path), server.url_for(f"{self.path}jwk")
        self.keys: dict[str, Any] = {"first": rsa_key("first")}
        self.calls, self.away = 0, False
        server.expect_request(f"{self.path}jwk").respond_with_handler(self._serve)

    def _serve(self, request: Request) -> Response:
        self.calls += 1
        assert "Authorization" not in request.headers
        if self.away:
            return Response("down for maintenance", status=503)
        return Response(json.dumps({"keys": [self.public(kid) for kid in self.keys]}), content_type="application/json")

    def public(self, kid: str) -> dict[str, Any]:
        key = self.keys[kid].public_key()
        made = RSAAlgorithm if isinstance(key, rsa.RSAPublicKey) else ECAlgorithm
        return {**made.to_jwk(key, as_dict=True), "kid": kid, "use": "sig"}

    def claims(self, **others: Any) -> dict[str, Any]:
        """Of a token that was issued just now; None takes one out."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "5f3c1c0e-olga",
            "aud": AUDIENCE,
            "iat": now,
            "nbf": now - 60,
            "exp": now + 1200,
            "jti": uuid.uuid4().hex,
            "wlcg.ver": "1.0",
            "scope": "openid wms2.read",
        }
        return {name: value for name, value in (claims | others).items() if value is not None}

    def token(self, *, kid: str = "first", headers: dict[str, Any] | None = None, key: Any = None, **claims: Any) -> str:
        """Signed by one of its keys, or by another one in its name."""
        signing = key or self.keys[kid]
        algorithm = "ES256" if isinstance(signing, ec.EllipticCurvePrivateKey) else "RS256"
        return jwt.encode(self.claims(**claims), signing, algorithm, headers={"kid": kid, **(headers or {})})

    def pem(self) -> bytes:
        """What an attacker knows of its key."""
        return bytes(self.keys["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def by_hand(header: dict[str, Any], claims: dict[str, Any] | bytes, signature: bytes = b"") -> str:
    """A token that no library makes."""
    parts = (json.dumps(header).encode(), claims if isinstance(claims, bytes) else json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def client_with(token: str, address: str = "10.0.0.1") -> APIClient:
    client = APIClient(REMOTE_ADDR=address)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client
