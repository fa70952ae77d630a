"""Sessions: how long they last, what ends them, and what browsers are asked to do with cookies and pages."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
import time_machine
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.support.places import ROOT
from wms2.conf import conf
from wms2.models import AuditEntry
from wms2.runtime.shared_counts import SharedCounts
from wms2.settings.logs import logging_config
from wms2.web import login_throttle, sessions
from wms2.web.sessions import sessions_of

pytestmark = pytest.mark.django_db
BEGAN = datetime(2026, 11, 27, 8, 0, tzinfo=UTC)
OLD, NEW = "a harvest of plums", "seven boats on the lake"
#: What anonymous clients may ask for: health, and the ways to sign in.
OPEN = {"livez", "readyz", "health", "login", "admin:login", "admin:logout"}


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def rita() -> User:
    return User.objects.create_user("rita", password=OLD)


@pytest.fixture
def capture() -> Iterator[list[dict[str, Any]]]:
    """What is written, as a reader of the JSON lines gets it: one line of text each."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = self.format(record)
            assert "\n" not in line
            found.append(json.loads(line))

    found: list[dict[str, Any]] = []
    formatter = logging_config("INFO", json_lines=True)["formatters"]["structured"]
    handler = Lines()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(
        processors=formatter["processors"], foreign_pre_chain=formatter["foreign_pre_chain"],
    ))  # fmt: skip
    logging.getLogger().addHandler(handler)
    yield found
    logging.getLogger().removeHandler(handler)


def signed_in(password: str = OLD, **form: str) -> Client:
    client = Client()
    assert client.post("/login/", {"username": "rita", "password": password, **form}).status_code == 302
    return client


def is_in(client: Client, **headers: str) -> bool:
    return bool(client.get("/account/", headers=headers).status_code == 200)


def test_a_session_that_is_idle_ends_whatever_its_page_asks_for_by_itself(rita: User) -> None:
    idle = timedelta(seconds=sessions.IDLE_SECONDS)
    with time_machine.travel(BEGAN, tick=False) as clock:
        client = signed_in()
        clock.shift(idle)
        assert is_in(client), "used within the time"
        for _ in range(2):
            clock.shift(idle / 2)
            assert is_in(client, **{"X-Wms2-Part": "live"})
        clock.shift(1)
        assert client.get("/")["Location"] == "/login/?next=/"
        assert not Session.objects.exists()


def test_a_session_that_is_used_all_the_time_ends_too(rita: User) -> None:
    most = timedelta(seconds=sessions.ABSOLUTE_SECONDS)
    with time_machine.travel(BEGAN, tick=False) as clock:
        client = signed_in()
        while datetime.now(UTC) + timedelta(hours=1) < BEGAN + most:
            clock.shift(timedelta(hours=1))
            assert is_in(client)
        clock.move_to(BEGAN + most + timedelta(seconds=1))
        assert not is_in(client)
        call_command("clearsessions")
        assert not Session.objects.exists()


def test_a_sign_in_begins_a_session_of_a_new_key(rita: User) -> None:
    client = Client()
    session = client.session
    session["planted"] = "by another"
    session.save()
    client.cookies[django_settings.SESSION_COOKIE_NAME] = str(session.session_key)
    client.post("/login/", {"username": "rita", "password": OLD})
    assert client.cookies[django_settings.SESSION_COOKIE_NAME].value != session.session_key
    assert not Session.objects.filter(pk=session.session_key).exists()


def test_one_signs_out_everywhere_else(rita: User) -> None:
    here, there = signed_in(), signed_in()
    html = here.get("/account/").content.decode()
    assert (html.count("127.0.0.1"), html.count(">this browser<")) == (2, 1)
    here.post("/account/sessions/end/")
    assert (is_in(here), is_in(there)) == (True, False)
    assert AuditEntry.objects.get(action="sessions_end").evidence == {"sessions": 1}


def test_an_administrator_ends_the_sessions_of_a_user_or_all(rita: User) -> None:
    client = signed_in()
    call_command("end_sessions", "rita")
    assert not is_in(client)
    client = signed_in()
    call_command("end_sessions", all=True)
    assert not is_in(client)
    with pytest.raises(CommandError, match="no user 'rti'"):
        call_command("end_sessions", "rti")


def test_a_user_who_may_not_come_in_any_more_is_out_at_once(rita: User) -> None:
    client = signed_in()
    User.objects.update(is_active=False)
    assert not is_in(client)


def test_signing_out_leaves_nothing_of_the_session(rita: User) -> None:
    client = signed_in()
    key = client.session.session_key
    client.post("/logout/")
    assert not Session.objects.filter(pk=key).exists()


def test_a_new_password_asks_for_the_old_one_and_ends_other_sessions(rita: User) -> None:
    here, there = signed_in(), signed_in()
    form = {"old_password": "guessed", "new_password1": NEW, "new_password2": NEW}
    assert "incorrectly" in here.post("/account/password/", form).content.decode()
    assert is_in(there)
    assert here.post("/account/password/", {**form, "old_password": OLD})["Location"] == "/account/"
    assert (is_in(here), is_in(there), is_in(signed_in(NEW))) == (True, False, True)
    assert AuditEntry.objects.filter(action="password_change", target="rita").exists()
    assert len(sessions_of(rita)) == 2


def test_guesses_of_the_old_password_wait_and_the_admin_has_no_page_of_its_own_for_it(
    rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_throttle, "FAILURES_PER_NAME", 2)
    conf.cache_clear()
    login_throttle.attempts = SharedCounts()
    here = signed_in()
    form = {"old_password": OLD, "new_password1": "short", "new_password2": "short"}
    assert [here.post("/account/password/", form).status_code for _ in range(3)] == [200] * 3, "no guesses"
    guess = {**form, "old_password": "guessed"}
    assert [here.post("/account/password/", guess).status_code for _ in range(3)] == [200, 200, 429]
    right = here.post("/account/password/", {"old_password": OLD, "new_password1": NEW, "new_password2": NEW})
    assert right.status_code == 429
    assert int(right["Retry-After"]) > 0
    User.objects.update(is_staff=True)
    assert here.get("/admin/password_change/")["Location"] == "/account/password/"


@pytest.mark.parametrize("password", ["fourteen chars", "cmsCERN-wms2-operator1", "password12345678", "ritaritaritarita"])
def test_short_common_and_expected_passwords_are_refused(password: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(password, User(username="ritaritaritarit"))


@pytest.mark.parametrize(
    "password", [NEW, "836451836451836451", "x y z " * 20, "пятнадцать слов и ещё", "the cms detector in autumn rain"]
)
def test_long_passwords_of_any_kind_are_taken(password: str) -> None:
    validate_password(password)


def test_passwords_are_hidden_may_be_pasted_and_count_as_they_are(rita: User, nobody: Client) -> None:
    for client, path, names in (
        (nobody, "/login/", ["password"]),
        (signed_in(), "/account/password/", ["old_password", "new_password1", "new_password2"]),
    ):
        html = client.get(path).content.decode()
        for name in names:
            (field,) = re.findall(f'<input [^>]*name="{name}"[^>]*>', html)
            assert 'type="password"' in field
            assert re.search('autocomplete="(current|new)-password"', field)
        assert "onpaste" not in html
    rita.set_password(f" {OLD} ")
    rita.save()
    assert is_in(signed_in(f" {OLD} "))
    for wrong in (OLD, f" {OLD}", f" {OLD.upper()} "):
        assert Client().post("/login/", {"username": "rita", "password": wrong}).status_code == 200, wrong


def test_an_installation_begins_without_any_account() -> None:
    assert not User.objects.exists()


def test_each_sign_in_failed_or_not_and_each_sign_out_is_one_line_without_the_password(
    rita: User, capture: list[dict[str, Any]]
) -> None:
    Client().post("/login/", {"username": "rita\nforged", "password": "guessed"})
    signed_in().post("/logout/")
    said = [line for line in capture if line["event"] != "http"]
    assert [(line["event"], line.get("name") or line["user"]) for line in said] == [
        ("sign-in failed", "rita\nforged"), ("signed in", "rita"), ("signed out", "rita")
    ]  # fmt: skip
    assert not any(word in json.dumps(capture) for word in (OLD, "guessed"))


def test_pages_are_kept_by_no_browser_and_named_to_no_other_server(reader: Client) -> None:
    for path in ("/", "/account/", "/api/v1/requests", "/api/v1/docs/", "/login/"):
        answer = reader.get(path)
        assert "no-store" in answer["Cache-Control"], path
        assert (answer["Referrer-Policy"], answer["X-Content-Type-Options"]) == ("same-origin", "nosniff"), path


_PRINT = """
import json
from django.conf import settings
print(json.dumps({name: getattr(settings, name) for name in dir(settings) if name.startswith(("SESSION_", "CSRF_", "SECURE_"))}))
"""


def test_in_production_cookies_go_over_tls_alone_and_are_of_this_host() -> None:
    bare = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "wms2.check_settings"}
    argv = [sys.executable, "-B", "-c", _PRINT]
    found = json.loads(subprocess.run(argv, env=bare, cwd=ROOT, capture_output=True, check=True).stdout)
    for kind in ("SESSION", "CSRF"):
        assert found[f"{kind}_COOKIE_NAME"].startswith("__Host-")
        rules = [found[f"{kind}_COOKIE_{name}"] for name in ("SECURE", "HTTPONLY", "PATH", "DOMAIN", "SAMESITE")]
        assert rules == [True, True, "/", None, "Lax"]
    assert found["SECURE_SSL_REDIRECT"]
    assert found["SECURE_HSTS_SECONDS"] >= 31_536_000


def _addresses(patterns: Any, before: str = "", space: str = "") -> Iterator[tuple[str, str]]:
    """Name and address of each, with something in the place of what varies."""
    for entry in patterns:
        if isinstance(entry, URLResolver):
            inner = f"{space}{entry.namespace}:" if entry.namespace else space
            yield from _addresses(entry.url_patterns, before + _filled(entry.pattern), inner)
        elif isinstance(entry, URLPattern):
            yield f"{space}{entry.name}", "/" + before + _filled(entry.pattern)


def _filled(pattern: Any) -> str:
    uuid, text = "00000000-0000-4000-8000-000000000000", str(pattern)
    for name, converter in pattern.converters.items():
        word = type(converter).__name__
        value = uuid if "UUID" in word else "1" if "Int" in word else "x"
        start, end = text.index("<"), text.index(">")
        assert text[start:end].endswith(name)
        text = text[:start] + value + text[end + 1 :]
    return text


def test_every_address_but_health_and_the_sign_in_is_closed_to_who_is_not_signed_in(nobody: Client) -> None:
    """REST answers 401, pages lead to the sign-in; 404 and 405 say nothing either."""
    asked, wrong = 0, []
    for name, address in _addresses(get_resolver().url_patterns):
        if name in OPEN or "(?P" in address:
            continue
        asked += 1
        answer = nobody.get(address)
        if not (answer.status_code in (401, 404, 405) or (answer.status_code == 302 and "login" in answer["Location"])):
            wrong.append((name, address, answer.status_code))
    assert asked > 200
    assert wrong == []


@pytest.mark.parametrize("path", ["/api/v1/schema/", "/api/v1/metrics", "/api/v1/docs/"])
def test_schema_page_over_it_and_metrics_are_for_who_is_signed_in(nobody: Client, reader: Client, path: str) -> None:
    assert nobody.get(path).status_code in (302, 401)
    assert reader.get(path).status_code == 200


def test_flower_is_for_operators_and_a_refusal_is_audited(operator: Client, reader: Client, nobody: Client) -> None:
    assert [client.get("/api/v1/auth/flower").status_code for client in (operator, reader, nobody)] == [204, 403, 401]
    entry = AuditEntry.objects.get(action="denied", actor="rita")
    assert (entry.actor, entry.outcome) == ("rita", "refused")
