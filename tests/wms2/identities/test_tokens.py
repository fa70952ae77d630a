"""Personal tokens, service accounts, keys of the old form, break-glass accounts: who comes in by them, and as what."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from requests_app.models import RequestStatus
from tests.support.problems import problem
from tests.support.rows import request_row
from tests.support.statements import statements
from wms2.conf import conf
from wms2.identities.grants import OPERATORS
from wms2.metrics.series import BREAK_GLASS_TOTAL
from wms2.models import AuditEntry, PersonalToken
from wms2.runtime.shared_counts import SharedCounts
from wms2.tasks import clear_sessions
from wms2.web import login_throttle
from wms2.web.login_throttle import FAILURES_PER_ADDRESS

pytestmark = pytest.mark.django_db
TOKEN = re.compile(r"wms2_[A-Za-z0-9]{8}_[A-Za-z0-9]{43}")


@pytest.fixture(autouse=True)
def _counts_anew(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    login_throttle.attempts = SharedCounts()


def bearing(token: str, scheme: str = "Bearer") -> APIClient:
    client = APIClient(REMOTE_ADDR="10.0.0.1")
    client.credentials(HTTP_AUTHORIZATION=f"{scheme} {token}")
    return client


def created(user: str, *options: str) -> str:
    """As ``manage.py tokens create`` prints it."""
    out = StringIO()
    call_command("tokens", "create", user, "--actor", "adam", *options, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


def made(client: Client, **form: Any) -> Any:
    """The answer to the form; by default a token that reads, for the user who is signed in."""
    user = client.session["_auth_user_id"]
    return client.post("/account/tokens/", {"owner": user, "name": "robot", "scope": "read", "days": 30, **form})


def may_hold(client: APIClient) -> bool:
    """Whether an operator's operation is done, not refused for want of the role."""
    name = request_row(RequestStatus.QUEUED).request_name
    answer = client.post(f"/api/v1/requests/{name}/hold", {"reason": "r"})
    assert answer.status_code in (202, 403), answer.content
    return answer.status_code == 202


def outcomes(action: str) -> list[str]:
    return list(AuditEntry.objects.filter(action=action).order_by("id").values_list("outcome", flat=True))


def stored() -> str:
    """Every value of every row of the database."""
    return "\n".join(str(row) for model in apps.get_models() for row in model._base_manager.values_list())


def test_a_token_is_shown_once_and_is_nowhere_else(reader: Client, caplog: pytest.LogCaptureFixture) -> None:
    page = made(reader).content.decode()
    (token,) = set(TOKEN.findall(page))
    prefix, secret = token.split("_")[1:]
    assert bearing(token).get("/api/v1/status").status_code == bearing(token, "Token").get("/api/v1/status").status_code == 200
    again = reader.get("/account/").content.decode()
    assert f"wms2_{prefix}_…" in again
    assert "robot" in again
    assert "<td>never</td>" not in again, "it has been used"
    assert not any(secret in text for text in (again, stored(), caplog.text))
    assert outcomes("token_made") == ["done"]


def test_the_last_use_is_written_at_most_once_a_minute(reader: Client) -> None:
    client = bearing(created("rita", "--name", "robot"))
    seen = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            client.get("/api/v1/account")
        seen.append(sum('UPDATE "personal_tokens"' in text for text in map(str, statements(queries))))
    assert seen == [1, 0]


def test_a_token_has_the_roles_of_its_scope_as_long_as_its_owner_has_them(operator: Client) -> None:
    whole, some = created("olga", "--name", "a", "--all-roles"), created("olga", "--name", "b", "--role", "operator")
    assert [may_hold(bearing(token)) for token in (whole, some, created("olga", "--name", "c"))] == [True, True, False]
    Group.objects.get(name=OPERATORS).user_set.clear()
    assert not any(may_hold(bearing(token)) for token in (whole, some))


def test_of_a_superuser_too_a_token_has_only_the_roles_of_its_scope() -> None:
    User.objects.create_superuser("sue")
    reads, roles = bearing(created("sue", "--name", "a")), bearing(created("sue", "--name", "b", "--role", "operator"))
    assert [may_hold(reads), may_hold(roles)] == [False, True]
    problem(roles.get("/api/v1/account"), 403, "permission_denied")


def test_no_token_has_a_role_that_its_owner_has_not(reader: Client) -> None:
    answer = made(reader, scope="roles", roles=["operator"])
    assert answer.status_code == 400
    assert "rita has not the role operator" in answer.content.decode()
    assert made(reader, days=conf().keep_history_days + 1).status_code == 400
    with pytest.raises(CommandError, match="not the role admin"):
        created("rita", "--name", "x", "--role", "admin")
    assert (outcomes("token_made"), PersonalToken.objects.exists()) == (["refused", "refused"], False)


def revoked(token: str) -> None:
    call_command("tokens", "revoke", token.split("_")[1], "--reason", "lost", "--actor", "adam", stdout=StringIO())


def expired(token: str) -> None:
    PersonalToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def deactivated(token: str) -> None:
    User.objects.filter(username="rita").update(is_active=False)


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (revoked, "token_revoked", "was revoked at"),
        (expired, "token_expired", "expired at"),
        (deactivated, "token_owner_ended", "rita is not active"),
    ],
)
def test_only_who_has_the_secret_learns_why_it_is_refused(
    end: Callable[[str], None], code: str, says: str, reader: Client
) -> None:
    token = created("rita", "--name", "robot")
    end(token)
    for _ in range(2):
        body = problem(bearing(token).get("/api/v1/status"), 401, code)
        assert says in body["detail"]
        assert token.split("_")[2] not in str(body)
    problem(bearing(token[:-1] + ("a" if token[-1] != "a" else "b")).get("/api/v1/status"), 401, "authentication_failed")
    assert outcomes("token_refused") == ["refused"], "once in the window"


def test_guesses_wait_and_are_audited_once_while_the_right_token_is_served(reader: Client) -> None:
    token = created("rita", "--name", "robot")
    guess = bearing(token[:14] + "0" * 43)
    codes = [guess.get("/api/v1/status").status_code for _ in range(FAILURES_PER_ADDRESS + 5)]
    assert codes == [401] * FAILURES_PER_ADDRESS + [429] * 5
    assert bearing(token).get("/api/v1/status").status_code == 200
    assert (outcomes("token_wrong"), outcomes("sign_in_braked")) == (["refused"], ["refused"])


def test_a_service_account_is_its_owners_and_ends_with_them(reader: Client, staff: Client) -> None:
    command = ("service_accounts", "create", "svc-robot", "--owner", "rita", "--reason", "nightly", "--actor", "adam")
    call_command(*command, stdout=StringIO())
    with pytest.raises(CommandError, match="there is a user svc-robot already"):
        call_command(*command, stdout=StringIO())
    robot = User.objects.get(username="svc-robot")
    assert made(staff, owner=robot.pk).status_code == 400, "not staff's"
    page = made(reader, owner=robot.pk).content.decode()
    clients = [bearing(TOKEN.findall(page)[0]), bearing(Token.objects.create(user=robot).key, "Token")]
    assert [client.get("/api/v1/status").status_code for client in clients] == [200, 200]
    assert "nightly" in reader.get("/account/").content.decode()

    User.objects.filter(username="rita").update(is_active=False)
    assert [client.get("/api/v1/status").status_code for client in clients] == [401, 401]
    handed = ("service_accounts", "hand-over", "svc-robot", "--owner", "stan", "--reason", "r", "--actor", "adam")
    call_command(*handed, stdout=StringIO())
    assert [client.get("/api/v1/status").status_code for client in clients] == [200, 200]
    User.objects.filter(username="stan").delete()
    assert "has left" in problem(clients[0].get("/api/v1/status"), 401, "token_owner_ended")["detail"]
    assert outcomes("service_account_created") == ["done", "refused"]


def test_a_service_account_never_signs_in_by_password(reader: Client) -> None:
    call_command(
        "service_accounts", "create", "svc-robot", "--owner", "rita", "--reason", "r", "--actor", "adam", stdout=StringIO()
    )
    robot = User.objects.get(username="svc-robot")
    robot.set_password("opensesame")
    robot.save()
    assert Client().post("/login/", {"username": "svc-robot", "password": "opensesame"}).status_code == 200


def test_over_rest_tokens_are_listed_and_revoked_and_never_made(reader: Client, operator: Client) -> None:
    mine, narrow = created("rita", "--name", "mine", "--all-roles"), created("rita", "--name", "narrow")
    others = created("olga", "--name", "mine").split("_")[1]
    client = bearing(mine)
    body = client.get("/api/v1/account").json()
    assert (body["user"], [grant["role"] for grant in body["grants"]]) == ("rita", ["viewer"])
    assert [token["name"] for token in body["tokens"]] == ["narrow", "mine"]
    assert "digest" not in str(body)
    address = f"/api/v1/account/tokens/{narrow.split('_')[1]}"
    problem(bearing(narrow).get("/api/v1/account"), 403, "permission_denied")
    problem(bearing(narrow).delete(f"{address}?reason=r"), 403, "permission_denied")
    problem(client.delete(f"/api/v1/account/tokens/{others}?reason=r"), 404, "not_found")
    problem(client.delete(address), 400, "invalid", field="reason")
    assert [client.delete(f"{address}?reason=r").status_code for _ in range(2)] == [202, 202]
    problem(bearing(narrow).get("/api/v1/status"), 401, "token_revoked")
    problem(client.post("/api/v1/account", {}), 405, "method_not_allowed")
    assert outcomes("token_revoked") == ["done"]


def test_the_page_revokes_and_needs_a_session_with_its_csrf_token(reader: Client, operator: Client) -> None:
    prefix = created("rita", "--name", "robot").split("_")[1]
    assert Client().get("/account/")["Location"] == "/login/?next=/account/"
    assert bearing(created("rita", "--name", "b")).get("/account/").status_code == 302, "pages take no token"
    guarded = Client(enforce_csrf_checks=True)
    guarded.force_login(User.objects.get(username="rita"))
    assert made(guarded, name="forged").status_code == 403
    assert operator.post(f"/account/tokens/{prefix}/revoke/").status_code == 404
    assert "is revoked" in reader.post(f"/account/tokens/{prefix}/revoke/", follow=True).content.decode()
    assert "again" not in reader.post(f"/account/tokens/{prefix}/revoke/", follow=True).content.decode()
    assert made(reader, name="robot").status_code == 200, "the name is free again"
    assert "already" in made(reader, name="robot").content.decode()


def test_a_key_of_the_old_form_goes_on_and_says_that_it_is_to_be_replaced(reader: Client, staff: Client) -> None:
    old = bearing(Token.objects.create(user=User.objects.get(username="rita")).key, "Token")
    answer = old.get("/api/v1/status")
    assert (answer.status_code, answer["Deprecation"][0]) == (200, "@")
    assert "/account/" in answer["Link"]
    assert "Deprecation" not in bearing(created("rita", "--name", "a")).get("/api/v1/status")
    assert "a key of the old form" in reader.get("/account/").content.decode()
    assert staff.get("/admin/authtoken/tokenproxy/add/").status_code == 403
    made(reader, end_old_key="on")
    problem(old.get("/api/v1/status"), 401, "authentication_failed")
    assert "a key of the old form" not in reader.get("/account/").content.decode()
    assert outcomes("old_key_ended") == ["done"]


def test_the_command_lists_without_secrets(reader: Client) -> None:
    token, out = created("rita", "--name", "robot", "--days", "7"), StringIO()
    call_command("tokens", "list", "rita", stdout=out)
    assert token.split("_")[1] in out.getvalue()
    assert token.split("_")[2] not in out.getvalue()
    with pytest.raises(CommandError, match="1 to 365 days"):
        created("rita", "--name", "b", "--days", "366")


def test_a_break_glass_sign_in_is_counted_and_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("glass", "rita"):
        User.objects.create_user(name, password="opensesame")
    monkeypatch.setenv("WMS2_BREAK_GLASS_ACCOUNTS", "glass")
    conf.cache_clear()
    before = BREAK_GLASS_TOTAL._value.get()
    for name in ("rita", "glass"):
        assert Client().post("/login/", {"username": name, "password": "opensesame"}).status_code == 302
    assert BREAK_GLASS_TOTAL._value.get() == before + 1
    assert AuditEntry.objects.get(action="break_glass_sign_in").target == "glass"


def test_the_schedule_removes_expired_sessions(reader: Client) -> None:
    Session.objects.update(expire_date=timezone.now() - timedelta(days=1))
    User.objects.create_user("stan")
    Client().force_login(User.objects.get(username="stan"))
    clear_sessions()
    assert Session.objects.count() == 1


def test_a_token_that_only_reads_does_not_even_what_every_reader_may(reader: Client) -> None:
    User.objects.filter(username="rita").update(email="rita@wms2.example")
    watch = f"/api/v1/requests/{request_row().request_name}/watch"
    tokens = created("rita", "--name", "reads"), created("rita", "--name", "all", "--all-roles")
    answers = [bearing(token).post(watch, {"reason": "r"}).status_code for token in tokens]
    assert answers == [403, 202]
