"""CMS's front end: who comes in by its headers, and what is refused that others forge."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection
from django.test import Client, RequestFactory
from django.utils import timezone
from rest_framework.authtoken.models import Token

from requests_app.models import RequestStatus
from tests.support.front_end import KEY, OPERATOR, PEER, RITA, configure, signed, wsgi
from tests.support.limits import set_limits
from tests.support.problems import problem
from tests.support.rows import request_row
from wms2.actions import Role
from wms2.api import rate_limits
from wms2.checks import check_configuration
from wms2.conf import conf
from wms2.errors import ConfigurationError
from wms2.identities.front_end import FrontEndRefused, identify, named_by_certificate, signature
from wms2.identities.grants import OPERATORS, Grant, grants_of
from wms2.models import AuditEntry, ServiceAccount, SsoSession

pytestmark = pytest.mark.django_db
LIST = "/api/v1/requests"
USERS = "/DC=ch/DC=cern/OU=Organic Units/OU=Users"
#: What WMCore's REST/Test.py (``fake_authz_headers``) made with this key.
OF_WMCORE = {
    "cms-auth-status": "OK",
    "cms-authn-method": "X509Cert",
    "cms-authn-login": "rita",
    "cms-authn-name": "Rita Reader",
    "cms-authn-dn": f"{USERS}/CN=rita/CN=1/CN=Rita Reader",
    "cms-authz-data-manager": "site:t1-de-kit site:t2-ch-cern group:dataops",
    "cms-authz-admin": "group:reqmgr",
    "cms-authz-developer": "",
    "cms-authn-hmac": "a3ff12699c973a939cd9681d0f8343d147f7c0a1",
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A front end at PEER, with its key."""
    file = tmp_path / "hmac"
    file.write_bytes(KEY)
    file.chmod(0o400)
    roles = {"production-operator": "operator", "admin group:reqmgr": "admin", "data-manager": "site admin"}
    configure(monkeypatch, front_end_addresses=f"{PEER},2001:db8::/64", front_end_key=file, role_names=roles)
    return file


def client(headers: dict[str, str], peer: str = PEER, **more: Any) -> Client:
    return Client(REMOTE_ADDR=peer, **wsgi(headers), **more)


def refused(headers: dict[str, str]) -> str:
    """Why it was, by what the client and the audit say alike; no page was shown, no user made."""
    said: str = problem(client(headers).get(LIST), 403, "front_end_refused")["detail"]
    page = client(headers).get("/")
    assert (page.status_code, page.cookies.get("sessionid")) == (403, None)
    entry = AuditEntry.objects.get(action="front_end_refused")  # one: the second came within the minute
    assert (entry.outcome, entry.target) == ("refused", PEER)
    assert entry.reason in said
    assert entry.reason.split(": ")[0][:60] in unescape(page.content.decode())
    return entry.reason


def grants(headers: dict[str, str], peer: str = PEER) -> tuple[Grant, ...]:
    request = RequestFactory().get("/", REMOTE_ADDR=peer, **wsgi(headers))
    identify(request)
    assert not [name for name in request.META if name.startswith("HTTP_CMS")]
    return grants_of(request.user)


def test_what_wmcore_signs_is_taken_with_its_roles_groups_and_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    assert signature(OF_WMCORE, KEY) == OF_WMCORE["cms-authn-hmac"]
    manager = Grant(Role.SITE_ADMIN, frozenset({"dataops"}), frozenset({"T1_DE_KIT", "T2_CH_CERN"}))
    assert set(grants(OF_WMCORE)) == {Grant(Role.VIEWER), manager, Grant(Role.ADMIN, frozenset({"reqmgr"}))}
    assert grants(signed(RITA | {"cms-authz-admin": "group:couchdb"})) == (Grant(Role.VIEWER),), "admins of something else"
    configure(monkeypatch, front_end_names={"site:t2-us-caltech": "T2_US_Caltech", "group:higgs": "HIG"})
    mapped = grants(signed(RITA | {"cms-authz-data-manager": "site:t2-us-caltech group:higgs site:T3_US_Rice"}), "::ffff:" + PEER)
    assert mapped[1:] == (Grant(Role.SITE_ADMIN, frozenset({"HIG"}), frozenset({"T2_US_Caltech", "T3_US_Rice"})),)


def test_an_operator_acts_through_the_front_end_by_her_roles_alone_and_has_no_session() -> None:
    request = request_row(RequestStatus.QUEUED)
    path, body = f"{LIST}/{request.request_name}/hold", {"reason": "r"}
    headers = signed(RITA | OPERATOR | {"cms-authn-name": "Rita Réader"}, status="ok")  # as auth-proxy-server spells it
    assert client(signed(RITA), enforce_csrf_checks=True).post(path, body, "application/json").status_code == 403
    her = client(headers, enforce_csrf_checks=True)
    assert her.post(path, body, "application/json").status_code == 202
    assert AuditEntry.objects.get(action="request_hold").actor == "rita"
    assert "rita" in her.get("/").content.decode()
    assert not her.cookies.get("sessionid")
    assert not Session.objects.exists()
    assert not User.objects.get(username="rita").has_usable_password()
    assert client(signed(RITA)).post(path, body, "application/json").status_code == 403, "the next request brings no role"


def test_a_browser_needs_the_csrf_token_that_a_page_of_others_does_not_have() -> None:
    request = request_row(RequestStatus.QUEUED)
    her = client(signed(RITA | OPERATOR), enforce_csrf_checks=True)
    for header in ("Origin", "Sec-Fetch-Site", "Referer"):
        answer = her.post(
            f"{LIST}/{request.request_name}/hold", {"reason": "r"}, "application/json", headers={header: "https://x"}
        )
        assert "CSRF" in problem(answer, 403, "permission_denied")["detail"], header
    assert her.post("/logout/").status_code == 403


def test_her_own_session_or_that_of_another_says_nothing_beside_the_front_end_and_a_token_does() -> None:
    other = User.objects.create_user("olga")
    her = client(signed(RITA))
    her.force_login(other)
    assert "rita" in (page := her.get("/").content.decode())
    assert "olga" not in page
    token = Token.objects.create(user=other)
    request = request_row(RequestStatus.QUEUED)
    other.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    path = f"{LIST}/{request.request_name}/hold"
    by_token = {"Authorization": f"Token {token.key}"}
    assert her.post(path, {"reason": "r"}, "application/json", headers=by_token).status_code == 202
    assert AuditEntry.objects.get(action="request_hold").actor == "olga"


@pytest.mark.parametrize("name", [*RITA, *OPERATOR, "cms-auth-cert", "cms-authz-new"])
def test_a_header_without_hmac_is_refused(name: str) -> None:
    assert "no header cms-auth-status" in refused({name: "rita"})
    AuditEntry.objects.all().delete()
    assert "cms-authn-hmac is not that" in refused({"cms-auth-status": "OK", name: "rita"})
    assert not User.objects.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"cms-authz-admin": "group:reqmgr"},
        {"cms-authz-admin": ""},
        {"cms-authn-more": "x"},
        {"cms-authn-login": "olga"},
        {"cms-authn-login": "rita,olga"},
        {"cms-authz-production-operator": "group:dataops site:T1_DE_KIT"},
        {"cms-authn-hmac": ""},
        {"cms-authn-hmac": "é"},
        {"cms-authn-name": "Rita Reader", "cms-authn-dn": ""},
    ],
    ids=str,
)
def test_what_was_signed_is_refused_with_one_header_more_or_another_value(change: dict[str, str]) -> None:
    replayed = signed(RITA | OPERATOR)
    assert client(replayed).get(LIST).status_code == 200
    assert "cms-authn-hmac is not that" in refused(replayed | change)


def test_another_key_another_status_and_a_missing_key_are_refused(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cms-authn-hmac is not that" in refused(signed(RITA, b"another key of theirs"))
    for status, why in (("FAIL", "'FAIL', not OK"), ("", "no header")):
        AuditEntry.objects.all().delete()
        assert why in refused(signed(RITA, status=status))
    key.chmod(0o600)
    key.write_bytes(b"another key of theirs")
    assert client(signed(RITA, b"another key of theirs")).get(LIST).status_code == 200, "it is read at each use"
    for bad in ("empty", "missing"):
        AuditEntry.objects.all().delete()
        key.write_bytes(b"") if bad == "empty" else key.unlink()
        assert "WMS2_FRONT_END_KEY" in refused(signed(RITA, b""))


@pytest.mark.parametrize("peer", ["10.1.2.4", "127.0.0.1", "2001:db8:1::1", ""])
def test_from_elsewhere_right_headers_are_ignored_and_audited_whatever_proxies_are_said(peer: str) -> None:
    forwarded = {"X-Forwarded-For": PEER, "X-Real-Ip": PEER, "Forwarded": f"for={PEER}", "Remote-Addr": PEER}
    theirs = client(signed(RITA | OPERATOR) | forwarded, peer)
    problem(theirs.get(LIST), 401, "not_authenticated")
    assert theirs.get("/")["Location"] == "/login/?next=/"
    entry = AuditEntry.objects.get(action="front_end_ignored")
    assert (entry.outcome, entry.target, entry.evidence["login"]) == ("refused", peer or "a local socket", "rita")
    assert "cms-authz-production-operator" in entry.reason
    assert not User.objects.exists()


def test_without_a_front_end_in_the_settings_its_headers_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, front_end_addresses="")
    problem(client(signed(RITA)).get(LIST), 401, "not_authenticated")
    assert [entry.action for entry in AuditEntry.objects.all()] == ["denied"], "as of any other who does not sign in"


def test_a_session_by_single_sign_on_neither_lends_the_front_end_its_roles_nor_ends(
    monkeypatch: pytest.MonkeyPatch, key: Path
) -> None:
    configure(monkeypatch, sso_issuer="https://sso.example", sso_client_id="wms2", sso_client_secret_file=key)
    configure(monkeypatch, role_names={"cms-operators": "operator"})
    for name in ("rita", "olga"):
        user, now = User.objects.get_or_create(username=name)[0], timezone.now()
        row = SsoSession.objects.create(user=user, subject=name, names=["cms-operators"], read_at=now, tried_at=now)
        her = client(signed(RITA))
        her.force_login(user)
        session = her.session
        session["wms2_sso_session"] = row.pk
        session.save()
        assert "rita" in her.get("/").content.decode(), name
        assert her.get("/admin/").status_code == 302, "the front end says no role"
        assert SsoSession.objects.filter(pk=row.pk).exists(), name


def test_a_token_has_no_role_that_is_stored_and_that_the_front_end_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, role_names={"production-operator": "operator"})
    user = User.objects.create_user("rita")
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    form = {"owner": user.pk, "name": "robot", "days": 30}
    reads, operates = client(signed(RITA)), client(signed(RITA | OPERATOR))
    for asked in ({"scope": "owner"}, {"scope": "roles", "roles": ["operator"]}):
        answer = reads.post("/account/tokens/", form | asked)
        assert answer.status_code == 400
        assert "you came in without the role operator" in answer.content.decode()
    assert reads.post("/account/tokens/", form | {"scope": "read"}).status_code == 200
    assert operates.post("/account/tokens/", form | {"scope": "owner", "name": "other"}).status_code == 200


def test_some_accounts_do_not_come_through_a_front_end() -> None:
    User.objects.create_superuser("root")
    User.objects.create_user("gone", is_active=False)
    robot = User.objects.create_user("robot")
    ServiceAccount.objects.create(user=robot, owner=None, purpose="nightly", created_at=timezone.now(), created_by="adam")
    logins = {
        "robot": "has left",
        "root": "all rights",
        "gone": "not active",
        "<nil>": "no login",
        "": "no login",
        "anonymous": "no login",
        "WMS2": "no login",
    }
    for login, why in logins.items():
        AuditEntry.objects.all().delete()
        assert why in refused(signed(RITA | OPERATOR | {"cms-authn-login": login}))
    assert User.objects.count() == 3


def test_without_a_name_one_reads_only_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    nameless = client({"cms-auth-status": "NONE", **OPERATOR}, enforce_csrf_checks=True)
    problem(nameless.get(LIST), 401, "not_authenticated")
    configure(monkeypatch, front_end_anonymous="true")
    request = request_row(RequestStatus.QUEUED)
    assert (nameless.get(LIST).status_code, nameless.get("/").status_code) == (200, 200)
    held = nameless.post(f"{LIST}/{request.request_name}/hold", {"reason": "r"}, "application/json")
    problem(held, 401, "not_authenticated")
    assert nameless.get("/login/").status_code == 200, "who has a name signs in"
    assert (nameless.get("/admin/").status_code, nameless.get("/account/").status_code) == (302, 302)
    problem(nameless.get("/api/v1/account"), 401, "not_authenticated")
    problem(client({}, "10.9.9.9").get(LIST), 401, "not_authenticated")


def test_readers_without_a_name_are_limited_by_their_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, front_end_anonymous="true", proxies_in_front=1)
    set_limits(monkeypatch, rate_limit_read=2)
    monkeypatch.setattr(rate_limits, "_limits", Asked())
    for address in ("10.9.9.1", "10.9.9.2"):
        client({"cms-auth-status": "NONE", "X-Forwarded-For": address}).get(LIST)
    client(signed(RITA) | {"X-Forwarded-For": "10.9.9.3"}).get(LIST)
    assert Asked.identities == ["at-10.9.9.1", "at-10.9.9.2", f"user-{User.objects.get(username='rita').pk}"]


class Asked:
    """Limits that refuse nothing."""

    identities: ClassVar[list[str]] = []

    def ask(self, rate: str, identity: str, limit: int, window_seconds: float) -> None:
        self.identities.append(identity)


def test_while_the_database_is_away_the_front_end_gets_503_and_health_is_answered() -> None:
    def away(execute: Any, sql: str, *rest: Any) -> Any:
        raise OperationalError("connection to the server was lost")

    with connection.execute_wrapper(away):
        hers = client(signed(RITA), raise_request_exception=False)
        assert (hers.get(LIST).status_code, hers.get("/livez").status_code) == (503, 200)
        assert client(signed(RITA, b"another"), raise_request_exception=False).get("/livez").status_code == 200


CERTIFICATE = {"HTTP_X_SSL_CLIENT_VERIFY": "SUCCESS"}


def by_certificate(dn: str, **more: str) -> Any:
    return named_by_certificate(CERTIFICATE | {"HTTP_X_SSL_CLIENT_S_DN": dn} | more, conf())


def test_the_name_of_a_certificate_is_matched_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    logins = {"/DC=org/CN=Robot: wms/emailAddress=a@b.ch": "robot"}
    configure(monkeypatch, x509_front_end_addresses="10.5.5.5", x509_logins=logins, x509_login_base=USERS)
    below = "OU=Users,OU=Organic Units,DC=cern,DC=ch"
    assert by_certificate("emailAddress=a@b.ch,CN=Robot: wms,DC=org").login == "robot"
    assert by_certificate(f"CN=Rita R\\C3\\A9ader,CN=1,CN=rita,{below}").login == "rita"
    forged = {
        "CN=rita/CN=1,OU=Users,DC=ch": "know no login",
        f"CN={USERS}/CN=rita": "know no login",
        f"CN=evil,DC=org,CN=rita,{below}": "know no login",
        f"CN=rita+OU=x,{below}": "several attributes",
        f"OU=rita,{below}": "know no login",
        below: "know no login",
        f"{USERS}/CN=rita": "RFC 4514",
        "CN=\xff": "RFC 4514",
    }
    for dn, why in forged.items():
        with pytest.raises(FrontEndRefused, match=why):
            by_certificate(dn)
    with pytest.raises(FrontEndRefused, match="'FAILED:expired', not SUCCESS"):
        by_certificate(f"CN=rita,{below}", HTTP_X_SSL_CLIENT_VERIFY="FAILED:expired")


def test_voms_attributes_give_roles_where_a_header_of_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = {"/cms/Role=production": "operator", "/cms": "viewer"}
    logins = {"/CN=Rita": "rita"}
    configure(monkeypatch, x509_front_end_addresses="10.5.5.5", x509_logins=logins, role_names=roles)
    assert by_certificate("CN=Rita", HTTP_X_VOMS_FQANS="/cms/Role=production") == ("rita", None), "as stored"
    configure(monkeypatch, x509_voms_header="X-VOMS-FQANs")
    said = "/cms/Role=NULL/Capability=NULL, /cms/Role=production/Capability=NULL,/atlas/Role=production"
    assert by_certificate("CN=Rita", HTTP_X_VOMS_FQANS=said).grants == (Grant(Role.VIEWER), Grant(Role.OPERATOR))
    assert by_certificate("CN=Rita").grants == ()


def test_dangerous_settings_are_found_by_manage_py_check(monkeypatch: pytest.MonkeyPatch, key: Path) -> None:
    def found() -> set[str]:
        ids = {str(each.id).removeprefix("wms2.") for each in check_configuration()}
        return {each for each in ids if each.startswith(("E01", "W01"))}

    assert found() == set()
    configure(monkeypatch, front_end_addresses="0.0.0.0/0", x509_front_end_addresses="::/0", role_names={})
    assert found() == {"E010", "E012", "W012"}
    configure(monkeypatch, front_end_addresses="10.0.0.0/8,2001:db8::/32", front_end_key="", x509_front_end_addresses="")
    assert found() == {"W010", "E011", "W012"}
    key.chmod(0o644)
    key.write_bytes(b"short")
    configure(monkeypatch, front_end_addresses="", front_end_key=key)
    assert found() == {"E013", "W014", "W015"}
    key.unlink()
    assert found() == {"W013"}


def test_one_address_is_not_both_kinds_of_front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, x509_front_end_addresses="10.1.0.0/16")
    with pytest.raises(ConfigurationError, match=r"10\.1\.0\.0/16 has addresses of WMS2_FRONT_END_ADDRESSES \(10\.1\.2\.3/32\)"):
        conf()
    configure(monkeypatch, x509_front_end_addresses="10.1.2.9/16")
    with pytest.raises(ConfigurationError, match="WMS2_X509_FRONT_END_ADDRESSES"):
        conf()
