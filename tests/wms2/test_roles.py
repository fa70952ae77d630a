"""Each role's day over HTTP: what is allowed, what is refused, how that is said and recorded; in REST, the admin and on pages."""

from __future__ import annotations

import html
from dataclasses import fields
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from requests_app import lease, service_level
from requests_app.lifecycle import credentials, packing
from requests_app.models import RequestStatus
from requests_app.reqmgr2 import acquiring
from sites_app.bans import AUTOMATIC
from sites_app.models import Site, SiteBan
from sites_app.services import SSB
from tests.support.problems import problem
from tests.support.rows import request_row, workflow_row
from tests.support.web_clients import client_of
from wms2.actions import ResourceType, Role, resource_types
from wms2.errors import FieldRefused
from wms2.identities import denials
from wms2.identities.grants import LIMITED, OPERATORS, Grant, grants_of, name_refused, use_grants
from wms2.identities.people import role_give
from wms2.identities.service_accounts import service_account_create
from wms2.models import AuditEntry, BulkRun, RoleAssignment

pytestmark = pytest.mark.django_db
WHY = {"reason": "because"}
REQUESTS = "/api/v1/requests"
_FREE = {one.name: one.default for one in fields(ResourceType)}["owner"]
BY = {"actor": "test", "reason": "test"}


@pytest.fixture(autouse=True)
def sites() -> None:
    for name in ("T2_DE_DESY", "T2_CH_CERN"):
        Site.objects.get_or_create(name=name)


def person(name: str, role: Role | None = None, **limits: Any) -> tuple[APIClient, Client]:
    """Signed in twice: over REST and in a browser. Not of Django's staff."""
    user = User.objects.create_user(name)
    if role is not None:
        role_give(role=role, holder=user, **limits, **BY)
    rest, browser = APIClient(), Client()
    rest.force_login(user)
    browser.force_login(user)
    return rest, browser


def button(kind: str, action: str) -> str:
    return f"/admin/{kind}/verb/{action}/"


def denied_for(name: str) -> list[str]:
    rows = AuditEntry.objects.filter(actor=name, action="denied").order_by("pk")
    assert {row.outcome for row in rows} <= {"refused"}
    return [f"{row.target}: {row.reason}" for row in rows]


def test_a_viewers_day() -> None:
    rest, browser = person("vera")
    row = request_row(RequestStatus.QUEUED, requestor="vera")
    assert rest.get(f"{REQUESTS}/{row.request_name}").status_code == 200
    said = problem(rest.post(f"{REQUESTS}/{row.request_name}/hold", WHY), 403, "permission_denied")["detail"]
    assert said == "this needs the role requester or operator; you have viewer"
    assert browser.get("/").status_code == 200
    assert b"/admin/" not in browser.get("/").content
    assert browser.get("/admin/").status_code == 302, "who was given no role does not open the admin"
    [entry] = denied_for("vera")
    assert entry == f"POST request-hold: {said}"

    role_give(role=Role.VIEWER, holder=User.objects.get(username="vera"), **BY)
    assert browser.get("/admin/requests_app/request/").status_code == 200
    assert "Hold …" not in browser.get(f"/admin/requests_app/request/{row.pk}/change/").content.decode()
    assert browser.post(button("requests_app/request", "hold"), {**WHY, "id": row.pk, "seen": "queued"}).status_code == 403


def test_a_requesters_day() -> None:
    rest, browser = person("rita", Role.REQUESTER, cms_groups=["HIGGS"])
    own, ours = request_row(RequestStatus.QUEUED, requestor="rita"), request_row(RequestStatus.QUEUED, group="higgs")
    other = request_row(RequestStatus.QUEUED, group="TOP")
    for row in (own, ours):
        assert rest.post(f"{REQUESTS}/{row.request_name}/hold", WHY).status_code == 202
        assert rest.post(f"{REQUESTS}/{row.request_name}/note", {**WHY, "notes": "wait"}).status_code == 202
        assert rest.post(f"{REQUESTS}/{row.request_name}/release", WHY).status_code == 202
    answer = rest.post(f"{REQUESTS}/{other.request_name}/hold", WHY)
    said = problem(answer, 403, "permission_denied")["detail"]
    wanted = "this needs the role operator; you have requester, for requests of your own and of the group HIGGS"
    assert said == f"{other}: {wanted}"
    refused = problem(rest.patch(f"{REQUESTS}/{own.request_name}", {"priority": 9}), 403, "permission_denied")["detail"]
    assert refused == wanted
    problem(rest.post(f"{REQUESTS}/{own.request_name}/complete", WHY), 403, "permission_denied")
    problem(rest.post("/api/v1/sites/T2_DE_DESY/drain", WHY), 403, "permission_denied")

    own.refresh_from_db()
    page = browser.get(own.get_absolute_url()).content.decode()
    assert "Hold …" in page and "Abort …" in page and "Complete early" not in page
    assert "Hold …" not in browser.get(other.get_absolute_url()).content.decode()
    data = {**WHY, "id": other.pk, "seen": "queued"}
    sent_away = browser.post(button("requests_app/request", "hold"), data)
    assert sent_away.status_code == 403
    assert wanted in html.unescape(sent_away.content.decode())
    assert browser.post(button("requests_app/request", "hold"), {**data, "id": own.pk, "seen": own.status}).status_code == 302
    other.refresh_from_db()
    own.refresh_from_db()
    assert (other.status, own.status) == (RequestStatus.QUEUED, RequestStatus.HELD)
    assert rest.delete(f"{REQUESTS}/{own.request_name}", WHY).status_code == 202
    assert "POST request-hold: " in denied_for("rita")[0]


def test_a_requester_releases_without_what_is_for_operators_to_decide() -> None:
    rest, browser = person("rita", Role.REQUESTER)
    row = request_row(RequestStatus.HELD, requestor="rita")
    path = f"{REQUESTS}/{row.request_name}/release"
    for name, value in (("accept_excluded", True), ("site_bans", ["T2_CH_CERN"]), ("error_hold_threshold", 0.9)):
        said = problem(rest.post(path, {**WHY, name: value}), 403, "permission_denied")["detail"]
        assert said == f"{row}: {name}: this needs the role operator; you have requester, for requests of your own"
    form = browser.get(button("requests_app/request", "release"), {"id": str(row.pk)}).content.decode()
    assert 'name="mode"' in form and 'name="accept_excluded"' not in form
    data = {**WHY, "id": row.pk, "seen": "held", "accept_excluded": "on"}
    assert browser.post(button("requests_app/request", "release"), data).status_code == 403
    row.refresh_from_db()
    assert row.status == RequestStatus.HELD
    assert rest.post(path, WHY).status_code == 202


def test_a_requester_holds_many_requests_of_their_own_and_none_beside_others() -> None:
    rest, _ = person("rita", Role.REQUESTER)
    own, other = request_row(RequestStatus.QUEUED, requestor="rita"), request_row(RequestStatus.QUEUED)
    preview = rest.get("/api/v1/bulk/requests/hold?status=queued").json()
    assert (preview["rows"], preview["acting"]) == (2, 1)
    said = problem(rest.post("/api/v1/bulk/requests/hold?status=queued", WHY), 403, "permission_denied")["detail"]
    assert said.startswith(f"{other}: this needs the role operator")
    assert not BulkRun.objects.exists()
    answer = rest.post("/api/v1/bulk/requests/hold", {**WHY, "keys": [own.request_name]})
    assert answer.status_code == 202
    assert rest.post(f"/api/v1/bulk-runs/{answer.json()['id']}/cancel", WHY).status_code == 202, "it is their own run"
    stranger, _ = person("rolf", Role.REQUESTER)
    problem(stranger.post(f"/api/v1/bulk-runs/{answer.json()['id']}/cancel", WHY), 403, "permission_denied")


def test_a_site_admins_day() -> None:
    rest, browser = person("sam", Role.SITE_ADMIN, sites=["T2_DE_DESY"])
    sites = "/api/v1/sites"
    assert rest.post(f"{sites}/T2_DE_DESY/drain", WHY).status_code == 202
    assert rest.post(f"{sites}/T2_DE_DESY/ban", WHY).status_code == 202
    said = problem(rest.post(f"{sites}/T2_CH_CERN/ban", WHY), 403, "permission_denied")["detail"]
    assert said == "T2_CH_CERN: this needs the role operator; you have site admin, for T2_DE_DESY"
    problem(rest.post(f"{sites}/T2_DE_DESY/ban", {**WHY, "insist": True}), 403, "permission_denied")
    problem(rest.post(f"{sites}/T2_DE_DESY/disable", WHY), 403, "permission_denied")
    problem(rest.patch(f"{sites}/T2_DE_DESY", {"status": "enabled", **WHY}), 403, "permission_denied")
    until = {**WHY, "until": (timezone.now() + timedelta(minutes=1)).isoformat()}  # then it would be enabled
    problem(rest.post(f"{sites}/T2_DE_DESY/drain", until), 403, "permission_denied")
    assert 'name="until"' not in browser.get(button("sites_app/site", "drain"), {"id": "T2_DE_DESY"}).content.decode()
    request = request_row(RequestStatus.QUEUED, requestor="sam")
    problem(rest.post(f"{REQUESTS}/{request.request_name}/hold", WHY), 403, "permission_denied")

    page = browser.get("/admin/sites_app/site/T2_5FDE_5FDESY/change/").content.decode()
    assert "Lift bans" in page and "Disable" not in page
    assert "Lift bans" not in browser.get("/admin/sites_app/site/T2_5FCH_5FCERN/change/").content.decode()
    ban = SiteBan.objects.create(site_id="T2_CH_CERN", reason="down", expires_at="2099-01-01T00:00:00Z")
    assert browser.get(button("sites_app/siteban", "lift"), {"id": str(ban.pk)}).status_code == 403
    assert rest.delete(f"{sites}/T2_DE_DESY/ban", WHY).status_code == 202
    assert [ban.removed_at for ban in SiteBan.objects.filter(site_id="T2_CH_CERN")] == [None]


def test_an_operators_day_without_being_staff() -> None:
    rest, browser = person("olga")
    User.objects.get(username="olga").groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    row = request_row(RequestStatus.QUEUED)
    assert rest.post(f"{REQUESTS}/{row.request_name}/hold", WHY).status_code == 202
    assert browser.get("/admin/").status_code == 200
    row.refresh_from_db()
    data = {**WHY, "id": row.pk, "seen": row.status}
    assert browser.post(button("requests_app/request", "release"), data).status_code == 302
    for page in ("auth/user/", "auth/group/", "wms2/roleassignment/add/"):
        assert browser.get(f"/admin/{page}").status_code == 403, page
    assert browser.get("/admin/wms2/roleassignment/").status_code == 200


def test_the_admins_form_of_sign_in_lets_in_who_has_a_role_and_no_one_else(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    for name in ("olga", "vera"):
        User.objects.create_user(name, password="opensesame")
    role_give(role=Role.OPERATOR, holder=User.objects.get(username="olga"), **BY)
    signed_in = {"olga": 302, "vera": 200}
    for name, code in signed_in.items():
        assert Client().post("/admin/login/", {"username": name, "password": "opensesame"}).status_code == code


def test_who_has_no_role_is_told_which_one_an_operation_asks_for_and_nobody_has_to_sign_in() -> None:
    row = request_row(RequestStatus.HELD)
    address = f"{button('requests_app/request', 'release')}?id={row.pk}"
    _, reader = person("vera")
    for answer in (reader.get(address), reader.post(address, WHY)):
        assert answer.status_code == 403
        assert "this needs the role requester or operator; you have viewer." in html.unescape(answer.content.decode())
    assert "you have none" in reader.get("/admin/", follow=True).content.decode()
    assert Client().get(address)["Location"].startswith("/admin/login/")
    row.refresh_from_db()
    assert row.status == RequestStatus.HELD


def test_an_admins_day() -> None:
    rest, browser = person("ada", Role.ADMIN)
    row = request_row(RequestStatus.HELD)
    workflow_row(row)
    assert rest.post(f"{REQUESTS}/{row.request_name}/release", {**WHY, "site_bans": ["T2_CH_CERN"]}).status_code == 202
    assert browser.get("/admin/auth/user/").status_code == 403, "Django's own pages are superusers' alone"
    rolf = User.objects.create_user("rolf")
    page, given = "/admin/wms2/roleassignment/add/", {"user": rolf.pk, "reason": "new"}
    for data, said in (
        ({"role": "site admin"}, "name the sites"),
        ({"role": "site admin", "sites": "T2_DE_DESY T9_NO_WHERE"}, "there is no site T9_NO_WHERE"),
        ({"role": "operator", "cms_groups": "HIGGS"}, "only a requester"),
        ({"role": "operator", "user": ""}, "Give a user or a group"),
    ):
        answer = browser.post(page, {**given, **data})
        assert answer.status_code == 200 and said in html.unescape(answer.content.decode()), data
    assert browser.post(page, {**given, "role": "site admin", "sites": "T2_DE_DESY"}).status_code == 302
    assert Grant(Role.SITE_ADMIN, sites=frozenset({"T2_DE_DESY"})) in grants_of(User.objects.get(username="rolf"))
    entry = AuditEntry.objects.get(action="roleassignment_added")
    assert (entry.actor, entry.target, entry.evidence["sites"]) == ("ada", "site admin: rolf", ["T2_DE_DESY"])
    pk = RoleAssignment.objects.get(user=rolf).pk
    assert browser.post(f"/admin/wms2/roleassignment/{pk}/delete/", {"post": "yes"}).status_code == 302
    assert AuditEntry.objects.filter(actor="ada", action="roleassignment_deleted", target="site admin: rolf").exists()


def test_roles_that_a_door_brings_along_are_limited_as_stored_ones() -> None:
    user = User.objects.create_user("fred")
    use_grants(
        user, [Grant(Role.REQUESTER, groups=frozenset({"higgs"})), Grant(Role.SITE_ADMIN, sites=frozenset({"t2-de-desy"}))]
    )
    rest = APIClient()
    rest.force_authenticate(user)
    assert rest.post("/api/v1/sites/T2_DE_DESY/drain", WHY).status_code == 202
    problem(rest.post("/api/v1/sites/T2_CH_CERN/drain", WHY), 403, "permission_denied")
    for group, code in (("HIGGS", 202), ("TOP", 403), ("", 403)):
        row = request_row(RequestStatus.QUEUED, group=group)
        assert rest.post(f"{REQUESTS}/{row.request_name}/hold", WHY).status_code == code, group


def test_all_roles_of_a_user_are_one_query() -> None:
    user = User.objects.create_user("olga")
    group = Group.objects.get_or_create(name=OPERATORS)[0]
    user.groups.add(group)
    role_give(role=Role.REQUESTER, holder=user, cms_groups=["HIGGS"], **BY)
    role_give(role=Role.VIEWER, holder=group, **BY)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        found = grants_of(User(pk=user.pk, username="olga"))
    assert len(asked) == 1
    assert {(grant.role, grant.groups) for grant in found} == {
        (Role.VIEWER, frozenset()), (Role.OPERATOR, frozenset()), (Role.REQUESTER, frozenset({"HIGGS"})),
    }  # fmt: skip


def test_an_operation_for_rows_of_ones_own_says_whose_a_row_is() -> None:
    wrong = [
        f"{resource_type.name} {action.name}"
        for resource_type in resource_types()
        for action in resource_type.actions
        if not set(LIMITED).isdisjoint(action.roles) and resource_type.owner is _FREE
    ]
    assert wrong == []
    required = [
        one.name for each in resource_types() for action in each.actions for one in action.fields if one.roles and one.required
    ]
    assert required == []


def test_denials_are_audited_once_a_minute_each_and_bounded_for_all() -> None:
    nobody = APIClient(REMOTE_ADDR="10.0.0.1")
    for _ in range(5):
        problem(nobody.get(REQUESTS), 401, "not_authenticated")
    [entry] = AuditEntry.objects.filter(action="denied")
    assert (entry.actor, entry.outcome, entry.evidence["kind"]) == ("unknown", "refused", "401")
    assert entry.evidence["address"] == "10.0.0.1"
    APIClient(REMOTE_ADDR="10.0.0.2").get(REQUESTS)
    nobody.get("/api/v1/dags")
    assert AuditEntry.objects.filter(action="denied").count() == 3
    for number in range(denials.MOST_PER_MINUTE + 20):
        denials.denial_record(actor=f"u{number}", address="", kind="403", target_type="call", target="x", why="no")
    assert AuditEntry.objects.filter(action="denied").count() == denials.MOST_PER_MINUTE
    assert "more is refused" in AuditEntry.objects.order_by("pk").last().reason  # type: ignore[union-attr]


def test_a_failed_sign_in_and_a_refused_import_are_audited() -> None:
    Client().post("/login/", {"username": "opensesame", "password": "rita"})
    entry = AuditEntry.objects.get(action="denied")
    assert (entry.target, entry.evidence["kind"]) == ("no such user", "sign_in"), "what was typed may be a password"
    rest, _ = person("olga", Role.OPERATOR)
    problem(rest.post(REQUESTS, {"document": {"RequestName": "olga_a_v1", "RequestType": "Odd"}}), 422, "document_refused")
    entry = AuditEntry.objects.get(action="denied", actor="olga")
    assert (entry.target, entry.target_type, entry.outcome) == ("olga_a_v1", "request", "refused")
    assert "RequestType" in entry.reason


def test_a_denied_call_may_be_made_again_with_its_key_once_the_role_is_given() -> None:
    rest, _ = person("rita", Role.REQUESTER)
    row = request_row(RequestStatus.QUEUED, group="HIGGS")
    path, key = f"{REQUESTS}/{row.request_name}/hold", {"Idempotency-Key": "k1"}
    assert rest.post(path, WHY, headers=key).status_code == 403
    assert denied_for("rita") != []
    role_give(role=Role.REQUESTER, holder=User.objects.get(username="rita"), cms_groups=["HIGGS"], **BY)
    assert rest.post(path, WHY, headers=key).status_code == 202


def identities(*arguments: str) -> str:
    out = StringIO()
    call_command("identities", *arguments, stdout=out)
    return out.getvalue()


def test_from_no_user_to_roles_by_the_command_alone(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    monkeypatch.setattr("sys.stdin", StringIO("tr1cky-and-l0ng\n"))
    by = ("--actor", "set-up")
    assert identities("administrator", "ada", "--password-stdin", *by) == "ada is an administrator.\n"
    browser = Client()
    assert browser.login(username="ada", password="tr1cky-and-l0ng")
    assert browser.get("/admin/auth/user/").status_code == 200
    password = identities("create", "rita", "--generate", *by).split()[1]
    assert Client().login(username="rita", password=password)
    identities("give", "rita", "requester", "--groups", "HIGGS", "TOP", *by)
    identities("give", "shifters", "operator", "--to-group", *by)
    listed = identities("list")
    assert "ada: operator; admin\n" in listed
    assert "rita: requester, for requests of your own and of the groups HIGGS, TOP\n" in listed
    assert "group shifters: operator\n" in listed
    for wrong, said in (
        (("give", "rita", "site-admin"), "sites: name the sites"),
        (("give", "rita", "site-admin", "--sites", "T9_NO"), "sites: there is no site T9_NO"),
        (("give", "none", "viewer"), "there is no user none"),
        (("take", "rita", "operator"), "was not given the role operator"),
        (("create", "rita", "--no-password"), "there is a user rita"),
        (("create", "WMS2", "--no-password"), "a name by which WMS2 itself acts"),
        (("deactivate", "ada"), "ada is the last administrator"),
    ):
        with pytest.raises(CommandError, match=said):
            identities(*wrong, *by)
    identities("take", "rita", "requester", *by)
    identities("deactivate", "rita", *by)
    assert "rita: not active\n" in identities("list")
    assert not Client().login(username="rita", password=password)
    done = AuditEntry.objects.filter(actor="set-up", outcome="done").values_list("action", flat=True)
    assert {"user_create", "role_give", "role_take", "user_deactivate"} <= set(done)
    assert password not in str(list(AuditEntry.objects.values()))


def test_no_user_is_called_as_wms2_calls_itself() -> None:
    ours = {AUTOMATIC, SSB, lease.ACTOR, service_level.ACTOR, packing.ACTOR, credentials.ACTOR, acquiring.ACTOR, denials.UNKNOWN}
    assert {name for name in ours if not name_refused(name)} == set()
    browser = client_of(User.objects.create_superuser("ada"))
    form = {"username": "wms2", "usable_password": "false"}
    assert "WMS2 itself acts" in browser.post("/admin/auth/user/add/", form).content.decode()
    assert browser.post("/admin/auth/user/add/", {**form, "username": "rita"}).status_code == 302
    path = f"/admin/auth/user/{User.objects.get(username='rita').pk}/change/"
    assert 'value="rita"' in browser.get(path).content.decode()
    assert "WMS2 itself acts" in browser.post(path, {"username": "ssb"}).content.decode()
    with pytest.raises(FieldRefused):
        service_account_create(name="ssb", owner=User.objects.get(username="ada"), actor="ada", purpose="p")
    assert not User.objects.filter(username__in=ours).exists()
