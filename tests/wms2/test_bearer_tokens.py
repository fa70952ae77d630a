"""Bearer tokens over REST: which are taken, as whom and as what; every forged one is refused, said, audited, and counted."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings as django_settings
from django.contrib.auth.models import Group, User
from django.utils import timezone
from pytest_httpserver import HTTPServer
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from requests_app.models import RequestStatus
from requests_app.monitoring.health import health_warnings
from tests.support.issuers import ANY_AUDIENCE, AUDIENCE, ROLES, Issuer, by_hand, client_with, ec_key, rsa_key
from tests.support.limits import set_limits
from tests.support.problems import problem
from tests.support.rows import request_row
from wms2.actions import Role
from wms2.api import rate_limits
from wms2.conf import conf, from_environment
from wms2.errors import ConfigurationError
from wms2.identities import issuer_keys
from wms2.identities.bearer import LEEWAY_SECONDS, MOST_BYTES, judged, name_of
from wms2.identities.grants import OPERATORS, Grant
from wms2.models import AuditEntry, ServiceAccount
from wms2.runtime.shared_counts import Broker
from wms2.web.login_throttle import FAILURES_PER_ADDRESS

pytestmark = pytest.mark.django_db
READ = "/api/v1/status"


def trust(monkeypatch: pytest.MonkeyPatch, *issuers: Issuer, **settings: Any) -> None:
    """These issuers and no other, with further settings of WMS2."""
    values = {
        "token_issuers": json.dumps({issuer.url: issuer.keys_url for issuer in issuers}),
        "token_audiences": AUDIENCE,
        "role_names": json.dumps(ROLES),
    }
    for name, value in (values | settings).items():
        monkeypatch.setenv(f"WMS2_{name.upper()}", value)
    conf.cache_clear()


@pytest.fixture
def issuer(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> Issuer:
    made = Issuer(httpserver)
    trust(monkeypatch, made)
    return made


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets time pass for what is cached of issuers."""
    now = [time.monotonic()]
    monkeypatch.setattr(issuer_keys, "monotonic", lambda: now[0])

    def add(seconds: float) -> None:
        now[0] += seconds

    return add


def refused(token: str, why: str, *, status: int = 401, code: str = "invalid_token") -> None:
    """It is answered with the reason, and audited once with it."""
    before = AuditEntry.objects.count()
    answer = client_with(token).get(READ)
    body = problem(answer, status, code)
    assert why in body["detail"], body
    assert answer["WWW-Authenticate"].startswith(f'Bearer realm="WMS2", error="{code}", error_description="')
    entry = AuditEntry.objects.latest("id")
    assert AuditEntry.objects.count() == before + 1
    assert (entry.action, entry.outcome, entry.target) == ("token_refused", "refused", "10.0.0.1")
    assert why in entry.reason
    assert token not in str(entry.evidence)


# --- right ones


def test_a_token_signs_in_as_a_user_of_its_own_who_may_do_what_its_scope_says(issuer: Issuer) -> None:
    row = request_row(RequestStatus.QUEUED)
    hold = f"/api/v1/requests/{row.request_name}/hold"
    client = client_with(issuer.token())
    assert client.get(READ).status_code == 200
    problem(client.post(hold, {"reason": "r"}), 403, "permission_denied")

    assert client_with(issuer.token(scope="wms2.operate")).post(hold, {"reason": "r"}).status_code == 202
    name = f"5f3c1c0e-olga#{issuer.url}"
    user = User.objects.get()
    assert (user.username, user.has_usable_password(), user.is_staff) == (name, False, False)
    assert AuditEntry.objects.get(action="request_hold", outcome="done").actor == name
    assert issuer.calls == 1, "the keys, once; nothing is asked for a token"
    assert client.get(READ).status_code == 200, "what another token brought along was for its own calls"
    problem(client.post(hold, {"reason": "r"}), 403, "permission_denied")


def granted(issuer: Issuer, **claims: Any) -> set[Grant]:
    return set(judged(issuer.token(**claims), time.time()).grants)


def test_groups_and_scopes_give_roles_by_the_setting_and_no_more(issuer: Issuer) -> None:
    viewer, operator = Grant(Role.VIEWER), Grant(Role.OPERATOR)
    assert granted(issuer, scope=None, **{"wlcg.groups": ["/cms", "/cms/production", "/cms/unknown"]}) == {viewer, operator}
    of = Grant(Role.REQUESTER, groups=frozenset({"higgs", "top"}))
    groups = ["/cms/requesters", "/cms/requesters/higgs", "/cms/requesters/top", "/cms/requesters/top/deeper"]
    assert granted(issuer, scope="openid", **{"wlcg.groups": groups}) == {of}
    at_site = Grant(Role.SITE_ADMIN, sites=frozenset({"T2_CH_CERN"}))
    assert granted(issuer, scope="wms2.site:/T2_CH_CERN wms2.read wms2.operate:/some") == {viewer, at_site}
    narrowed = granted(issuer, scope="wms2.read", **{"wlcg.groups": ["/cms/production"]})
    assert narrowed == {viewer}, "a token that was asked for with one scope has no more than that"


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": None},
        {"scope": "openid offline_access"},
        {"scope": "/cms wms2.operate:/part wms2.site:/*"},
        {"scope": "storage.read:/store", "wlcg.groups": ["/cms/production"]},
        {"scope": None, "wlcg.groups": ["/cms/requesters/higgs", "cms", "production-operator"]},
    ],
    ids=["nothing", "other scopes", "scopes that say too much", "a job's token for storage", "no group itself"],
)
def test_who_has_no_role_is_refused_and_no_user_is_made(issuer: Issuer, claims: dict[str, Any]) -> None:
    refused(issuer.token(**claims), "no scope or group", status=403, code="insufficient_scope")
    assert not User.objects.exists()


def test_two_algorithms_are_taken_and_headers_that_name_keys_are_not_read(issuer: Issuer, httpserver: HTTPServer) -> None:
    issuer.keys["curve"] = ec_key("curve")
    assert client_with(issuer.token(kid="curve")).get(READ).status_code == 200
    evil = Issuer(httpserver)
    evil.keys["first"] = rsa_key("evil")
    for name, value in {"jku": evil.keys_url, "x5u": evil.keys_url, "jwk": evil.public("first"), "x5c": ["MIIB"]}.items():
        assert client_with(issuer.token(headers={name: value})).get(READ).status_code == 200
        refused(issuer.token(headers={name: value}, key=rsa_key("evil")), "signature is wrong")
    assert evil.calls == 0


def test_keys_may_come_from_a_file(issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    trust(monkeypatch, issuer, token_issuers=json.dumps({issuer.url: str(keys)}))
    problem(client_with(issuer.token()).get(READ), 503, "issuer_unavailable")
    assert str(keys) in health_warnings()[f"token issuer {issuer.url}"]
    keys.write_text(json.dumps({"keys": [issuer.public("first")]}))
    monkeypatch.setattr(issuer_keys, "_issuers", {})  # as another process
    assert client_with(issuer.token()).get(READ).status_code == 200
    assert issuer.calls == 0


# --- forged ones


def test_a_token_without_a_right_signature_is_refused(issuer: Issuer) -> None:
    claims = issuer.claims(scope="wms2.operate")
    for none in ("none", "None", "nOnE"):
        refused(by_hand({"alg": none, "kid": "first"}, claims), "alg is not RS256 or ES256")
    prepared = by_hand({"alg": "HS256", "kid": "first", "typ": "JWT"}, claims).rpartition(".")[0]
    signature = jwt.get_algorithm_by_name("HS256").sign(prepared.encode(), issuer.pem())
    forged = f"{prepared}.{jwt.utils.base64url_encode(signature).decode()}"
    refused(forged, "alg is not RS256 or ES256")
    refused(issuer.token(key=rsa_key("evil")), "signature is wrong")
    refused(issuer.token(key=ec_key("evil")), "alg is not that of its key")
    head, _, signature_text = issuer.token().rpartition(".")
    changed = by_hand(jwt.get_unverified_header(head + "."), claims).rpartition(".")[0]
    refused(f"{changed}.{signature_text}", "signature is wrong")
    assert not User.objects.exists()


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_keys_that_are_too_weak_or_for_something_else_are_not_used(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer.keys["weak"] = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer.keys["other"] = rsa_key("other")
    public = issuer.public
    monkeypatch.setattr(issuer, "public", lambda kid: public(kid) | ({"use": "enc"} if kid == "other" else {}))
    for kid in ("weak", "other"):
        refused(issuer.token(kid=kid), "kid is not among the keys")
    assert client_with(issuer.token()).get(READ).status_code == 200


def test_other_issuers_are_not_believed(issuer: Issuer, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = Issuer(httpserver)
    refused(foreign.token(), "iss is not a trusted issuer")
    for iss in (issuer.url.rstrip("/"), f"{issuer.url}/", issuer.url.upper(), [issuer.url], {"a": 1}, None, ""):
        refused(by_hand({"alg": "RS256", "kid": "first"}, issuer.claims() | {"iss": iss}, b"x"), "iss is not a trusted issuer")
    trust(monkeypatch, issuer, foreign)
    foreign.keys = {"first": rsa_key("foreign")}
    refused(foreign.token(iss=issuer.url), "signature is wrong")
    assert client_with(foreign.token()).get(READ).status_code == 200
    assert User.objects.get().username == f"5f3c1c0e-olga#{foreign.url}"


def test_it_has_to_be_meant_for_us(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    for aud in (
        None,
        "",
        [],
        "https://other.example",
        f"{AUDIENCE}/",
        AUDIENCE.upper(),
        ["https://other.example"],
        {AUDIENCE: 1},
        ANY_AUDIENCE,
    ):
        refused(issuer.token(aud=aud), "aud names none of")  # fmt: skip
    assert judged(issuer.token(aud=["https://other.example", AUDIENCE]), time.time())
    trust(monkeypatch, issuer, token_audiences=f"{AUDIENCE},{ANY_AUDIENCE}")
    assert judged(issuer.token(aud=ANY_AUDIENCE), time.time())


def test_clocks_may_be_a_minute_apart_and_no_more(issuer: Issuer) -> None:
    now = int(time.time())
    token = issuer.token(iat=now, nbf=now, exp=now + 1000)
    for at in (now - LEEWAY_SECONDS, now + 500, now + 1000 + LEEWAY_SECONDS - 1):
        assert judged(token, at)
    refused(issuer.token(iat=now - 2000, nbf=None, exp=now - LEEWAY_SECONDS - 1), "expired")
    refused(issuer.token(nbf=now + 2 * LEEWAY_SECONDS), "not valid yet")
    refused(issuer.token(iat=now + 2 * LEEWAY_SECONDS, nbf=now), "in the future")
    refused(issuer.token(exp=now + 7 * 3600), "for more than 21600 s")
    for value in (None, "soon", True, float("inf"), float("nan"), [now]):
        refused(issuer.token(exp=value), "exp is missing or not a number")
    refused(issuer.token(iat=None), "iat is missing or not a number")


def test_what_the_profile_asks_for_has_to_be_there(issuer: Issuer) -> None:
    other: dict[str, Any]
    for other in ({"wlcg.ver": None}, {"wlcg.ver": "9.0"}):
        refused(issuer.token(**other), "wlcg.ver is not 1.0")
    for sub in (None, "", "a b", "a\0b", "x" * 256):
        refused(issuer.token(sub=sub), "sub is missing")
    refused(issuer.token(jti=None), "jti is missing")
    refused(issuer.token(exp=10**400), "exp is missing or not a number")
    other = {"scope": None, "wlcg.groups": "/cms/production"}
    refused(issuer.token(**other), "wlcg.groups is not a list")
    refused(by_hand({"alg": "RS256"}, issuer.claims(), b"x"), "names no key (kid)")
    refused(issuer.token(headers={"crit": ["exp"], "exp": 1}), "cannot be read")
    refused(by_hand({"alg": "RS256", "kid": "first", "crit": ["b64"], "b64": True}, issuer.claims()), "extensions (crit)")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("a.b.c", "cannot be read"),
        ("..", "cannot be read"),
        (by_hand({"alg": "RS256", "kid": 7}, {}), "cannot be read"),
        (by_hand({"alg": "RS256", "kid": "k"}, b"[" * 5000), "cannot be read"),
        (by_hand({"alg": "RS256", "kid": "k"}, b'{"exp":' + b"9" * 5000 + b"}"), "cannot be read"),
        (by_hand({"alg": "RS256", "kid": "k"}, b"\xff\xfe"), "cannot be read"),
        (by_hand({"alg": "RS256", "kid": "k"}, {"iss": "\0\n\u202e" * 400}), "iss is not a trusted issuer"),
        (by_hand({"alg": "RS256", "kid": "k"}, b"x" * MOST_BYTES), f"longer than {MOST_BYTES} bytes"),
        (by_hand({"alg": ["RS256"], "kid": "k"}, {}), "alg is not RS256"),
    ],
    ids=["letters", "dots", "kid", "nested", "digits", "no text", "control characters", "too long", "alg"],
)
def test_what_is_no_token_at_all_is_refused_too(issuer: Issuer, token: str, why: str) -> None:
    refused(token, why)


def test_without_issuers_no_token_is_taken_and_other_credentials_are_as_before(reader: APIClient) -> None:
    refused(by_hand({"alg": "none"}, {}), "alg is not RS256")
    for other in ("opaque", "a.b", "a.b.c.d", "a.b.c d"):
        answer = client_with(other).get(READ)
        problem(answer, 401, "not_authenticated")
        assert answer["WWW-Authenticate"] == "Token"
    user = User.objects.create_user("tom")
    assert APIClient(headers={"Authorization": f"Token {Token.objects.create(user=user).key}"}).get(READ).status_code == 200


# --- keys


def test_a_rotated_key_is_found_and_unknown_ones_make_us_ask_once_a_minute(issuer: Issuer, passed: Any) -> None:
    assert client_with(issuer.token()).get(READ).status_code == 200
    passed(issuer_keys.AGAIN_SECONDS)
    issuer.keys = {"second": rsa_key("second")}
    assert client_with(issuer.token(kid="second")).get(READ).status_code == 200
    assert issuer.calls == 2
    refused(issuer.token(key=rsa_key("first")), "kid is not among the keys")
    for number in range(5):
        refused(issuer.token(kid="second", headers={"kid": f"flood {number}"}), "kid is not among the keys")
    assert issuer.calls == 2
    passed(issuer_keys.AGAIN_SECONDS)
    for number in range(5):
        refused(issuer.token(kid="second", headers={"kid": f"flood {number}"}), "kid is not among the keys")
    assert issuer.calls == 3
    passed(issuer_keys.REFRESH_SECONDS + 1)
    assert client_with(issuer.token(kid="second")).get(READ).status_code == 200
    assert issuer.calls == 4


def test_many_calls_at_once_read_the_keys_once(issuer: Issuer) -> None:
    token = issuer.token()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: judged(token, time.time()).name, range(32)))
    assert set(found) == {name_of(issuer.url, "5f3c1c0e-olga")}
    assert issuer.calls == 1


def test_while_the_issuer_is_away_its_last_keys_are_good_for_a_day(issuer: Issuer, passed: Any) -> None:
    issuer.away = True
    for _ in range(3):
        answer = client_with(issuer.token()).get(READ)
        problem(answer, 503, "issuer_unavailable")
        assert answer["Retry-After"] == "60"
    assert issuer.calls == 1
    passed(issuer_keys.AGAIN_SECONDS)
    issuer.away = False
    assert client_with(issuer.token()).get(READ).status_code == 200
    assert f"token issuer {issuer.url}" not in health_warnings()

    issuer.away = True
    passed(issuer_keys.REFRESH_SECONDS + 1)
    assert client_with(issuer.token()).get(READ).status_code == 200
    assert "good for 23.7 h more" in health_warnings()[f"token issuer {issuer.url}"]
    problem(client_with(issuer.token(headers={"kid": "new?"})).get(READ), 503, "issuer_unavailable")
    passed(issuer_keys.GOOD_SECONDS)
    problem(client_with(issuer.token()).get(READ), 503, "issuer_unavailable")
    assert "answered 503" in health_warnings()[f"token issuer {issuer.url}"]
    assert not AuditEntry.objects.filter(action="token_refused").exists(), "no fault of the caller's"


# --- revoked ones, names, guesses


def test_a_user_who_is_not_active_and_a_revoked_token_are_refused(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    token, name = issuer.token(jti="stolen"), name_of(issuer.url, "5f3c1c0e-olga")
    assert client_with(token).get(READ).status_code == 200
    User.objects.update(is_active=False)
    refused(token, "not active")
    assert AuditEntry.objects.latest("id").actor == name
    User.objects.update(is_active=True)
    trust(monkeypatch, issuer, tokens_refused="stolen")
    refused(token, "revoked")
    assert client_with(issuer.token()).get(READ).status_code == 200
    trust(monkeypatch, issuer, tokens_refused=f"other,{name}")
    refused(issuer.token(), "revoked")


def test_a_service_account_that_a_token_means_ends_with_its_owner(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, robot = (User.objects.create_user(name) for name in ("olga", "robot"))
    ServiceAccount.objects.create(user=robot, owner=owner, purpose="nightly", created_at=timezone.now(), created_by="adam")
    token = issuer.token()
    trust(monkeypatch, issuer, token_users=json.dumps({name_of(issuer.url, "5f3c1c0e-olga"): "robot"}))
    assert client_with(token).get(READ).status_code == 200
    User.objects.filter(pk=owner.pk).update(is_active=False)
    refused(token, "the owner of the service account robot, olga, is not active")


def test_a_subject_is_never_taken_for_another_user(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    User.objects.create_superuser("olga")
    token = issuer.token(sub="olga", scope="wms2.read")
    assert client_with(token).get(READ).status_code == 200
    assert sorted(User.objects.values_list("username", flat=True)) == ["olga", f"olga#{issuer.url}"]

    trust(monkeypatch, issuer, token_users=json.dumps({f"olga#{issuer.url}": "olga"}))
    row = request_row(RequestStatus.QUEUED)
    client, hold = client_with(token), f"/api/v1/requests/{row.request_name}/hold"
    User.objects.get(username="olga").groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    problem(client.post(hold, {"reason": "r"}), 403, "permission_denied")
    assert client_with(issuer.token(sub="olga", scope="wms2.operate")).post(hold, {"reason": "r"}).status_code == 202
    assert AuditEntry.objects.get(action="request_hold", outcome="done").actor == "olga"

    long = [name_of("https://cms-auth.cern.ch/", sub) for sub in ("x" * 255, "x" * 254)]
    names = {*long, name_of("https://a/", "b"), name_of("https://a", "b"), name_of("http://a/", "b"), name_of("https://a/", "#b")}
    assert len(names) == 6
    assert all(len(name) <= 100 and "#" in name for name in names)


def test_wrong_tokens_are_counted_by_address_and_a_right_one_never_waits(issuer: Issuer) -> None:
    wrong = issuer.token(key=rsa_key("evil"))
    most = FAILURES_PER_ADDRESS
    for _ in range(most):
        problem(client_with(wrong).get(READ), 401, "invalid_token")
    for _ in range(5):
        problem(client_with(wrong).get(READ), 429, "too_many_failures")
    audited = AuditEntry.objects.values_list("action", flat=True)
    assert sorted(audited) == ["sign_in_braked"] + ["token_refused"] * most
    assert client_with(issuer.token()).get(READ).status_code == 200
    problem(client_with(wrong, address="10.0.0.2").get(READ), 401, "invalid_token")


def test_calls_of_one_user_are_counted_together(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    trust(monkeypatch, issuer)
    set_limits(monkeypatch, rate_limit_read=2, rate_limit_window_seconds=60)
    prefix = f"wms2:test:bearer:{time.time_ns()}"
    broker = Broker(django_settings.CELERY_BROKER_URL, prefix, "rates are not limited")
    rate_limits.use(rate_limits.RateLimits(broker))
    assert [client_with(issuer.token()).get(READ).status_code for _ in range(3)] == [200, 200, 429]
    assert client_with(issuer.token(sub="other")).get(READ).status_code == 200
    assert broker.client.delete(*broker.client.keys(f"{prefix}:*")) == 2


# --- settings


@pytest.mark.parametrize(
    ("environment", "settings", "why"),
    [
        ("production", {"token_issuers": '{"http://a.example/": "https://a.example/jwk"}'}, "an issuer is a URL, https://"),
        ("production", {"token_issuers": '{"https://a.example/": "http://a.example/jwk"}'}, "are at a URL"),
        ("test", {"token_issuers": '{"https://a.example/#b": "/etc/keys"}'}, "without"),
        ("test", {"token_issuers": '{"https://a.example/": "keys"}'}, "absolute path"),
        ("test", {"token_issuers": '{"https://a.example/": "/etc/keys"}', "token_audiences": ""}, "WMS2_TOKEN_AUDIENCES"),
        ("test", {"token_issuers": "https://a.example/"}, "WMS2_TOKEN_ISSUERS"),
    ],
)
def test_settings_that_trust_too_much_stop_the_start(environment: str, settings: dict[str, str], why: str) -> None:
    texts = {name: value for name, value in conf().model_dump(mode="json").items() if isinstance(value, str)}
    values = {f"WMS2_{name.upper()}": value for name, value in texts.items()}
    values |= {"WMS2_ENVIRONMENT": environment, "WMS2_TOKEN_AUDIENCES": AUDIENCE, "WMS2_CONFIGCACHE_URL": "https://a.example/c"}
    values |= {"WMS2_REQMGR2_URL": "https://a.example/reqmgr2/data"}
    with pytest.raises(ConfigurationError, match=why):
        from_environment(values | {f"WMS2_{name.upper()}": value for name, value in settings.items()})
