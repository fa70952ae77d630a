"""Single sign-on with a real provider: who comes in as what, how roles are lost, and what is forged, replayed or broken."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from requests_app.models import RequestStatus
from tests.support.html import text
from tests.support.rows import request_row
from tests.support.sso import CALLBACK, LOGIN, Provider, answered, asked, at_the_form, signed_in
from wms2.actions import Role
from wms2.conf import conf
from wms2.identities.grants import Grant
from wms2.identities.sso_sessions import grants_by
from wms2.models import AuditEntry, ServiceAccount, SsoSession
from wms2.web.csp import HEADER

pytestmark = pytest.mark.django_db
SESSION = settings.SESSION_COOKIE_NAME


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    provider = Provider(
        tmp_path_factory.mktemp("sso"),
        [f"http://testserver{CALLBACK}"],
        ["olga:cms-operators", "rita:", "admin:cms-admins", "gone:cms-operators"],
    )
    yield provider
    provider.stop()


@pytest.fixture
def provider(running: Provider, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Provider:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    for name, value in running.settings().items():
        monkeypatch.setenv(name, value)
    conf.cache_clear()
    return running


def hold(client: Client) -> int:
    """The answer to an operator's operation over REST."""
    request = request_row(RequestStatus.QUEUED)
    answer = client.post(f"/api/v1/requests/{request.request_name}/hold", {"reason": "r"}, content_type="application/json")
    return answer.status_code


def later(**passed: float) -> None:
    """All that the issuer said was said so much earlier."""
    for row in SsoSession.objects.all():
        row.read_at -= timedelta(**passed)
        row.tried_at -= timedelta(**passed)
        row.save()


def refusals() -> list[str]:
    return list(AuditEntry.objects.filter(outcome="refused").values_list("action", flat=True))


def test_the_sign_in_page_offers_single_sign_on_first_and_only_where_there_is_an_issuer(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/login/?next=/%3Fstatus=held", "/admin/login/"):
        page = Client().get(path)
        html = page.content.decode()
        assert html.index("Sign in with CERN SSO") < html.index("User name"), path
        assert f"form-action 'self' {provider.url};" in page[HEADER]
    assert 'name="next" value="/?status=held"' in Client().get("/login/?next=/%3Fstatus=held").content.decode()
    monkeypatch.delenv("WMS2_SSO_ISSUER")
    monkeypatch.delenv("WMS2_SSO_CLIENT_ID")
    monkeypatch.delenv("WMS2_SSO_CLIENT_SECRET_FILE")
    conf.cache_clear()
    page = Client().get("/login/")
    assert "SSO" not in page.content.decode()
    assert "form-action 'self';" in page[HEADER]
    assert (Client().post(LOGIN).status_code, Client().get(CALLBACK).status_code) == (404, 404)


def test_a_group_at_the_issuer_is_a_role_here_and_no_group_is_a_reader(provider: Provider) -> None:
    olga, answer = signed_in(provider, "olga", next_url="/?status=held")
    assert (answer.status_code, answer["Location"]) == (302, "/?status=held")
    assert "olga" in olga.get("/").content.decode()
    assert hold(olga) == 202
    rita, _ = signed_in(provider, "rita")
    assert rita.get("/").status_code == 200
    assert hold(rita) == 403
    user = User.objects.get(username="olga")
    assert (user.has_usable_password(), user.is_staff, user.is_superuser, user.groups.count()) == (False, False, False, 0)
    assert signed_in(provider, "olga")[1].status_code == 302, "the same user a second time"
    assert User.objects.filter(username="olga").count() == 1


def test_who_loses_the_group_loses_the_role_within_the_hour_and_gets_it_back(provider: Provider) -> None:
    olga, _ = signed_in(provider, "olga")
    provider.groups_of("olga")
    try:
        later(minutes=29)
        assert hold(olga) == 202, "what the issuer said still holds"
        later(minutes=1)
        assert hold(olga) == 403
        assert olga.get("/").status_code == 200
    finally:
        provider.groups_of("olga", "cms-operators")
    assert hold(olga) == 403, "not asked again within half an hour"
    later(minutes=30)
    assert hold(olga) == 202


def test_whom_the_issuer_no_longer_knows_is_signed_out_and_the_page_says_so(provider: Provider) -> None:
    gone, _ = signed_in(provider, "gone")
    provider.change("delete from allauth_idp_oidc_token where type = 'rt'")
    later(minutes=31)
    answer = gone.get("/", follow=True)
    assert answer.redirect_chain == [("/login/?next=/", 302)]
    assert "Your session has ended: CERN SSO does not go on with it" in text(answer.content.decode())
    assert refusals() == ["sso_session_ended"]
    assert not SsoSession.objects.exists()


def test_while_the_issuer_is_away_roles_hold_for_the_hour_then_one_only_reads(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    User.objects.create_user("locke", password="opensesame")
    olga, _ = signed_in(provider, "olga")
    monkeypatch.setenv("WMS2_SSO_ISSUER", "http://127.0.0.1:1")
    conf.cache_clear()
    later(minutes=59)
    assert hold(olga) == 202
    later(minutes=1)
    assert hold(olga) == 403
    assert "CERN SSO has not confirmed your roles within the hour" in text(olga.get("/").content.decode())
    down = Client().post(LOGIN)
    assert down.status_code == 503
    assert "CERN SSO cannot be reached. Try again later; local accounts work below." in text(down.content.decode())
    local = Client()
    assert local.post("/login/", {"username": "locke", "password": "opensesame"}).status_code == 302
    assert local.get("/").status_code == 200
    monkeypatch.setenv("WMS2_SSO_ISSUER", provider.url)
    conf.cache_clear()
    later(minutes=1)
    assert hold(olga) == 202, "asked again as soon as it answers"


def test_no_local_account_is_taken_over_by_its_name(provider: Provider) -> None:
    admin = User.objects.create_superuser("Admin", password="opensesame")
    client, answer = signed_in(provider, "admin")
    assert answer.status_code == 403
    assert client.get("/").status_code == 302
    said = text(answer.content.decode())
    assert "WMS2 has a user admin who is not bound to your account at CERN SSO" in said
    assert refusals() == ["sso_sign_in"]
    subject = said.partition("manage.py sso_connect admin ")[2].split()[0]
    call_command("sso_connect", "Admin", subject)
    client, answer = signed_in(provider, "admin")
    assert answer.status_code == 302
    assert client.session["_auth_user_id"] == str(admin.pk)
    admin.is_active = False
    admin.save()
    assert signed_in(provider, "admin")[1].status_code == 403
    call_command("sso_connect", "Admin", "--remove")
    assert client.get("/").status_code == 302, "its session has ended"
    assert "is not bound to your account" in text(signed_in(provider, "admin")[1].content.decode())
    for arguments, why in ((["--remove"], "is not bound"), ([], "name the subject"), (["3", "--remove"], "name the subject")):
        with pytest.raises(CommandError, match=why):
            call_command("sso_connect", "Admin", *arguments)


def test_a_subject_that_is_bound_to_another_user_is_no_session_of_the_former(provider: Provider) -> None:
    client, _ = signed_in(provider, "olga")
    assert client.get("/").status_code == 200
    User.objects.create_user("o.local")
    call_command("sso_connect", "o.local", SsoSession.objects.get().subject)
    assert client.get("/").status_code == 302, "its session has ended"


def test_a_superuser_changes_users_only_as_long_as_the_issuer_says_admin(provider: Provider) -> None:
    admin = User.objects.create_superuser("admin")
    said = text(signed_in(provider, "admin")[1].content.decode())
    call_command("sso_connect", "admin", said.partition("manage.py sso_connect admin ")[2].split()[0])
    client, _ = signed_in(provider, "admin")
    assert client.get("/admin/auth/user/").status_code == 200
    SsoSession.objects.filter(user=admin).update(names=[])
    assert client.get("/admin/auth/user/").status_code == 403
    assert client.post(f"/admin/auth/user/{admin.pk}/password/", {"password1": "x", "password2": "x"}).status_code == 403


def test_a_session_that_was_planted_is_not_the_one_that_is_signed_in(provider: Provider) -> None:
    victim = Client()
    address = asked(victim)
    planted = victim.cookies[SESSION].value
    victim.get(answered(provider, address, "olga"))
    assert victim.cookies[SESSION].value != planted
    attacker = Client()
    attacker.cookies[SESSION] = planted
    assert attacker.get("/").status_code == 302


def test_answers_that_this_browser_did_not_ask_for_are_refused_and_audited(provider: Provider) -> None:
    client = Client()
    back = answered(provider, asked(client), "olga")
    query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    asked(client)  # another sign-in of the same browser, with another verifier and nonce
    forged = [
        (Client(), query),
        (client, query | {"state": "guessed"}),
        (client, {"code": query["code"]}),
        (client, {"error": "server_error", "state": "guessed"}),
    ]
    for browser, sent in forged:
        answer = browser.get(f"{CALLBACK}?{urlencode(sent)}")
        assert answer.status_code == 400, sent
        assert "did not begin in this browser" in text(answer.content.decode())
        assert browser.get("/").status_code == 302
    assert refusals() == ["sso_sign_in"] * len(forged)


def test_a_code_is_good_once_and_for_the_browser_that_asked(provider: Provider) -> None:
    thief, owner = Client(), Client()
    code = parse_qs(urlsplit(answered(provider, asked(owner), "olga")).query)["code"][0]
    state = parse_qs(urlsplit(asked(thief)).query)["state"][0]
    stolen = thief.get(f"{CALLBACK}?{urlencode({'code': code, 'state': state})}")
    assert (stolen.status_code, thief.get("/").status_code) == (403, 302), "PKCE: another browser's verifier"

    back = answered(provider, asked(owner), "olga")
    assert owner.get(back).status_code == 302
    assert owner.get(back).status_code == 400, "its state is used up"
    state = parse_qs(urlsplit(asked(owner)).query)["state"][0]
    code = parse_qs(urlsplit(back).query)["code"][0]
    assert owner.get(f"{CALLBACK}?{urlencode({'code': code, 'state': state})}").status_code == 403, "and so is its code"


def test_nothing_else_of_allauth_is_exposed_and_no_one_is_sent_elsewhere(provider: Provider) -> None:
    for path in ("", "login/", "signup/", "email/", "password/reset/", "social/connections/", "inactive/", "oidc/other/login/"):
        assert Client().get(f"/accounts/{path}").status_code == 404, path
    assert Client().get(LOGIN).status_code == 405
    assert Client(enforce_csrf_checks=True).post(LOGIN).status_code == 403
    for elsewhere in ("https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)"):
        _, answer = signed_in(provider, "olga", next_url=elsewhere)
        assert answer["Location"] == "/", elsewhere


def test_a_command_line_signs_in_by_the_device_flow(running: Provider) -> None:
    api = f"{running.url}/identity/o/api"
    asks = requests.post(f"{api}/device/code", {"client_id": "wms2-cli", "scope": "openid profile"}, timeout=20).json()
    with requests.Session() as person:
        page = running.url + at_the_form(running, person, asks["verification_uri_complete"], "olga").headers["Location"]
        assert "wms2-cli" in person.get(page, timeout=20).text
        person.post(page, {"action": "confirm"}, timeout=20)
    grant = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": asks["device_code"]}
    tokens = requests.post(f"{api}/token", grant | {"client_id": "wms2-cli"}, timeout=20).json()
    said = requests.get(f"{api}/userinfo", headers={"Authorization": f"Bearer {tokens['access_token']}"}, timeout=20).json()
    assert (said["preferred_username"], said["cern_roles"]) == ("olga", ["cms-operators"])


def test_names_of_the_issuer_may_carry_a_site_or_a_group() -> None:
    role_names = {"sites": "site admin", "ask": "requester", "a:b": "operator"}
    names = ["sites:T2_DE_DESY", "sites:T1_US_FNAL", "ask:higgs", "a:b", "unknown:x", "unknown"]
    assert set(grants_by(names, role_names)) == {
        Grant(Role.SITE_ADMIN, sites=frozenset({"T2_DE_DESY", "T1_US_FNAL"})),
        Grant(Role.REQUESTER, groups=frozenset({"higgs"})),
        Grant(Role.OPERATOR),
    }
    assert grants_by(["operators:T2_DE_DESY"], {"operators": "operator"}) == (), "a limit is no way to all rows"


def test_a_service_account_is_not_bound_to_a_person() -> None:
    robot = User.objects.create_user("robot")
    ServiceAccount.objects.create(user=robot, owner=None, purpose="nightly", created_at=timezone.now(), created_by="adam")
    with pytest.raises(CommandError, match="robot is a service account"):
        call_command("sso_connect", "robot", "3")


class Liar(ThreadingHTTPServer):
    """An issuer that answers every code with the ID token of the test, and speaks of one subject."""

    id_token = ""
    name = "lia"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.issuer = self.url

    def answer(self, path: str) -> dict[str, Any]:
        names = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")
        endpoints = {name: f"{self.url}/{name}" for name in names}
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {
            "/.well-known/openid-configuration": endpoints | {"issuer": self.issuer},
            "/jwks_uri": {"keys": [public | {"kid": "k", "use": "sig", "alg": "RS256"}]},
            "/token_endpoint": {"access_token": "a", "id_token": self.id_token},
            "/userinfo_endpoint": {"sub": "7", "preferred_username": self.name},
        }[path]


class _Answers(BaseHTTPRequestHandler):
    server: Liar

    def do_GET(self) -> None:
        body = json.dumps(self.server.answer(self.path)).encode()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def liar(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    with Liar() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        monkeypatch.setenv("WMS2_SSO_ISSUER", server.url)
        conf.cache_clear()
        yield server
        server.shutdown()


def test_id_tokens_that_prove_nothing_are_refused(liar: Liar) -> None:
    public = liar.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now = int(time.time())
    forged: dict[str, tuple[dict[str, Any], Any, str]] = {
        "no signature": ({}, None, "none"),
        "the public key as a secret": ({}, hashlib.sha256(public).hexdigest(), "HS256"),
        "another key": ({}, other, "RS256"),
        "another issuer": ({"iss": "https://elsewhere.example"}, liar.key, "RS256"),
        "another client": ({"aud": "other"}, liar.key, "RS256"),
        "issued to another client": ({"aud": ["wms2", "other"], "azp": "other"}, liar.key, "RS256"),
        "no end": ({"exp": None}, liar.key, "RS256"),
        "ended": ({"exp": now - 90}, liar.key, "RS256"),
        "not yet": ({"nbf": now + 120}, liar.key, "RS256"),
        "another browser's": ({"nonce": "guessed"}, liar.key, "RS256"),
        "no nonce": ({"nonce": None}, liar.key, "RS256"),
        "another subject": ({"sub": "8"}, liar.key, "RS256"),
        "a name of WMS2's own": ({}, liar.key, "RS256"),
    }
    slow: dict[str, tuple[dict[str, Any], Any, str]] = {"right, by a clock that is slow": ({"exp": now - 30}, liar.key, "RS256")}
    for what, (changes, key, algorithm) in (forged | slow).items():
        client, liar.name = Client(), "WMS2" if what.startswith("a name") else "lia"
        query = {name: values[0] for name, values in parse_qs(urlsplit(asked(client)).query).items()}
        right = {"iss": liar.url, "sub": "7", "aud": "wms2", "iat": now - 300, "exp": now + 60, "nonce": query["nonce"]} | changes
        claims = {name: value for name, value in right.items() if value is not None}
        liar.id_token = jwt.encode(claims, key, algorithm=algorithm, headers={"kid": "k"})
        answer = client.get(CALLBACK, {"code": "c", "state": query["state"]})
        came_in = client.get("/").status_code == 200
        assert (answer.status_code, came_in) == ((403, False) if what in forged else (302, True)), what
    assert refusals() == ["sso_sign_in"] * len(forged)
    liar.issuer = "https://elsewhere.example"
    assert Client().post(LOGIN).status_code == 503, "the discovery document is another issuer's"


def test_who_signs_in_by_a_password_has_the_roles_that_are_stored(provider: Provider) -> None:
    olga, _ = signed_in(provider, "olga")
    assert hold(olga) == 202
    user = User.objects.get(username="olga")
    user.set_password("opensesame")
    user.is_staff = True
    user.save()
    client = Client()
    client.cookies[SESSION] = signed_in(provider, "olga")[0].cookies[SESSION].value
    assert client.post("/admin/login/", {"username": "olga", "password": "opensesame"}).status_code == 302
    assert client.session["_auth_user_id"] == str(user.pk)
    assert hold(client) == 403, "the same user with no role that is stored"


def test_signing_out_forgets_what_the_issuer_gave(provider: Provider) -> None:
    olga, _ = signed_in(provider, "olga")
    row = SsoSession.objects.get()
    assert row.refresh_token
    assert row.refresh_token not in str(dict(olga.session))
    assert olga.post("/logout/").status_code == 302
    assert not SsoSession.objects.exists()
