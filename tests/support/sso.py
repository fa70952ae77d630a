"""The simulated provider of single sign-on as a process of its own, and a person who signs in there without a browser."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests
from django.test import Client

from tests.support.servers import Program

LOGIN, CALLBACK = "/accounts/oidc/sso/login/", "/accounts/oidc/sso/login/callback/"
HIDDEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Provider(Program):
    """Users and groups are changed in its database, as another of its doors would."""

    def __init__(self, state: Path, redirects: Sequence[str], people: Sequence[str]) -> None:
        options = [part for each in redirects for part in ("--redirect", each)]
        options += [part for each in people for part in ("--person", each)]
        super().__init__("deploy.simulators.sso", "--state", str(state), *options)
        self.state = state
        self.password = (state / "password").read_text()

    def settings(self) -> dict[str, str]:
        """Of a WMS2 that signs in here."""
        return {
            "WMS2_SSO_ISSUER": self.url,
            "WMS2_SSO_CLIENT_ID": "wms2",
            "WMS2_SSO_CLIENT_SECRET_FILE": str(self.state / "client_secret"),
            "WMS2_ROLE_NAMES": '{"cms-operators": "operator", "cms-admins": "admin"}',
        }

    def change(self, statement: str, *values: Any) -> None:
        """One statement on its database."""
        with sqlite3.connect(self.state / "sso.sqlite3", timeout=20) as database:
            database.execute(statement, values)
        database.close()

    def groups_of(self, name: str, *groups: str) -> None:
        """The person has these groups and no other."""
        self.change("delete from auth_user_groups where user_id = (select id from auth_user where username = ?)", name)
        for group in groups:
            self.change("insert or ignore into auth_group (name) values (?)", group)
            pair = "select auth_user.id, auth_group.id from auth_user, auth_group where username = ? and name = ?"
            self.change(f"insert into auth_user_groups (user_id, group_id) {pair}", name, group)


def asked(client: Client, next_url: str = "") -> str:
    """Where WMS2 sends a browser whose user presses the button."""
    answer = client.post(LOGIN, {"next": next_url})
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def at_the_form(provider: Provider, person: requests.Session, address: str, name: str) -> requests.Response:
    """The provider's answer to the person's name and password, to whom it showed its form at this address."""
    form = person.get(address, timeout=20)
    hidden = HIDDEN.search(form.text)
    assert hidden, form.text
    data = {"login": name, "password": provider.password, "csrfmiddlewaretoken": hidden.group(1)}
    return person.post(form.url, data=data, allow_redirects=False, timeout=20)


def answered(provider: Provider, address: str, name: str) -> str:
    """Where the provider sends the browser back to, after the person has signed in there: path and query."""
    with requests.Session() as person:
        answer = at_the_form(provider, person, address, name)
        while answer.status_code == 302 and answer.headers["Location"].startswith("/"):
            answer = person.get(provider.url + answer.headers["Location"], allow_redirects=False, timeout=20)
    assert answer.status_code == 302, answer.text
    return answer.headers["Location"].removeprefix("http://testserver")


def signed_in(provider: Provider, name: str, client: Client | None = None, next_url: str = "") -> tuple[Client, Any]:
    """The whole way; the browser and WMS2's answer to its coming back."""
    client = client or Client()
    return client, client.get(answered(provider, asked(client, next_url), name))
