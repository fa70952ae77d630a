"""The provider as one process: ``python -m deploy.simulators.sso --state DIR --port P --redirect URL --person NAME:GROUP,...``

Prints ``sso ready on URL`` once it listens. The client's id is ``wms2``; its secret and the users' one password are files in the
state directory, made at the first start. A client ``wms2-cli`` without a secret has the device flow alone.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from gunicorn.app.base import BaseApplication

CLIENT_ID, DEVICE_CLIENT_ID = "wms2", "wms2-cli"
CLIENT_SECRET, PASSWORD = "client_secret", "password"
_KEY_BITS = 2048


class _Server(BaseApplication):
    """Gunicorn with one process, several requests at once."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        super().__init__()

    def load_config(self) -> None:
        """Of nothing but these."""
        for name, value in (
            ("bind", [f"fd://{self._listening.fileno()}"]), ("threads", 4), ("worker_class", "gthread"), ("loglevel", "warning"),
            ("control_socket_disable", True),
        ):  # fmt: skip
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        """In the process that answers."""
        from django.core.wsgi import get_wsgi_application

        return get_wsgi_application()


def files_ensure(state: Path) -> None:
    """Keys and passwords, each made once, for the owner alone."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("secret_key", CLIENT_SECRET, PASSWORD):
        if not (state / name).exists():
            _write(state / name, secrets.token_urlsafe(18 if name == PASSWORD else 48))
    if not (state / "signing_key.pem").exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
        _write(state / "signing_key.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def rows_ensure(state: Path, redirects: Sequence[str], people: Sequence[str]) -> None:
    """Tables, both clients, and the people with exactly their groups."""
    import django

    django.setup()
    from allauth.idp.oidc.models import Client
    from django.contrib.auth.models import Group, User
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", interactive=False, verbosity=0)
    for client_id, kind, grants, addresses in (
        (CLIENT_ID, Client.Type.CONFIDENTIAL, (Client.GrantType.AUTHORIZATION_CODE, Client.GrantType.REFRESH_TOKEN), redirects),
        (DEVICE_CLIENT_ID, Client.Type.PUBLIC, (Client.GrantType.DEVICE_CODE, Client.GrantType.REFRESH_TOKEN), ()),
    ):
        client = Client.objects.filter(pk=client_id).first() or Client(pk=client_id)
        client.name, client.type, client.skip_consent = client_id, kind, True
        client.set_scopes(["openid", "profile", "email"])
        client.set_grant_types(list(grants))
        client.set_redirect_uris(list(addresses))
        client.set_secret((state / CLIENT_SECRET).read_text())
        client.save()
    for person in people:
        name, _, groups = person.partition(":")
        user, _ = User.objects.get_or_create(username=name)
        user.set_password((state / PASSWORD).read_text())
        user.save()
        user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups.split(",") if group])
    connections.close_all()


def main() -> None:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m deploy.simulators.sso", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--redirect", action="append", default=[], help="redirect address of the client wms2")
    parser.add_argument("--person", action="append", default=[], help="NAME:GROUP,GROUP")
    chosen = parser.parse_args()
    files_ensure(chosen.state)
    os.environ |= {"SIMULATED_SSO_STATE": str(chosen.state), "DJANGO_SETTINGS_MODULE": "deploy.simulators.sso.settings"}
    rows_ensure(chosen.state, chosen.redirect, chosen.person)
    listening = socket.create_server(("127.0.0.1", chosen.port))  # gunicorn closes it
    print(f"sso ready on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    _Server(listening).run()


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
