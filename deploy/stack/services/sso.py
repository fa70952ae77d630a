"""The simulated CERN SSO: an OpenID Connect provider with the demo's people."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.run import healthy
from deploy.stack.services.base import Place, Service

#: Stacks that have one.
WITH_SSO = ("demo", "check")
#: Name -> groups at the provider.
PEOPLE = {"olga": "cms-wms-operators", "ada": "cms-wms-admins", "rita": ""}
_ROLES = {"cms-wms-operators": "operator", "cms-wms-admins": "admin"}
_CALLBACK = "/accounts/oidc/sso/login/callback/"


def service(place: Place, port: int, web_port: int) -> Service:
    url = f"http://127.0.0.1:{port}/.well-known/openid-configuration"
    words = ["--state", str(_state(place.directory)), "--port", str(port)]
    for host in ("127.0.0.1", "localhost"):
        words += ["--redirect", f"http://{host}:{web_port}{_CALLBACK}"]
    for name, groups in PEOPLE.items():
        words += ["--person", f"{name}:{groups}"]
    program = (place.layout.python, "-m", "deploy.simulators.sso")
    return place.service("sso", *program, *words, problem=lambda: healthy.problem(url))


def settings(directory: Path, port: int) -> dict[str, str]:
    """Of a WMS2 that signs in there."""
    return {
        "WMS2_SSO_ISSUER": f"http://127.0.0.1:{port}",
        "WMS2_SSO_CLIENT_ID": "wms2",
        "WMS2_SSO_CLIENT_SECRET_FILE": str(_state(directory) / "client_secret"),
        "WMS2_ROLE_NAMES": json.dumps(_ROLES),
    }


def password(directory: Path) -> str:
    """Of all its people."""
    return (_state(directory) / "password").read_text(encoding="utf-8")


def _state(directory: Path) -> Path:
    return directory / "sso"
