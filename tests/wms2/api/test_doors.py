"""Who gets in, and how a wrong call is answered: sign-in, permissions, methods, bodies, addresses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test import Client, RequestFactory
from rest_framework.test import APIClient

from requests_app.models import RequestStatus
from tests.support.cases import in_one_test
from tests.support.problems import problem
from tests.support.rows import request_row
from wms2.api.exceptions import server_error
from wms2.api.parsers import MAX_BODY_BYTES
from wms2.identities.grants import OPERATORS

pytestmark = pytest.mark.django_db
#: Beside the lists, for which tests/wms2/api/test_lists.py shows the same.
READABLE = ("admission/queue", "admission/config", "lifecycle/status", "status", "metrics", "events", "schema/")


def test_signed_in_users_read_and_others_only_health(reader: APIClient, nobody: APIClient) -> None:
    for path in READABLE:
        body = problem(nobody.get(f"/api/v1/{path}"), 401, "not_authenticated")
        assert "Bearer" in body["hint"], path
        assert reader.get(f"/api/v1/{path}").status_code == 200, path


@pytest.mark.parametrize("path", ["/", "/admin/", "/api/v1/requests", "/api/v1/requests?status=held"])
def test_while_the_database_is_away_everything_answers_503_with_a_time_to_come_back(path: str) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_user("anybody"))
    with connection.execute_wrapper(_away):
        answer = client.get(path)
    assert (answer.status_code, int(answer["Retry-After"]) > 0) == (503, True)
    assert b"database does not answer" in answer.content


def _away(execute: Any, sql: str, *rest: Any) -> Any:
    raise OperationalError("connection to the server was lost")


def test_a_wrong_token_is_told_apart_from_none(nobody: APIClient) -> None:
    nobody.credentials(HTTP_AUTHORIZATION="Token of-nobody")
    problem(nobody.get("/api/v1/requests"), 401, "authentication_failed")


def test_a_session_signs_in_too_and_writes_need_its_csrf_token() -> None:
    User.objects.create_superuser("sue", password="opensesame")
    client = Client(enforce_csrf_checks=True)
    assert client.login(username="sue", password="opensesame")
    assert client.get("/api/v1/requests").status_code == 200
    request = request_row(RequestStatus.QUEUED)
    response = client.post(f"/api/v1/requests/{request.request_name}/hold", {"reason": "r"}, content_type="application/json")
    assert "CSRF" in problem(response, 403, "permission_denied")["detail"]


def test_staff_without_the_group_do_not_write() -> None:
    client = APIClient()
    client.force_authenticate(User.objects.create_user("stan", is_staff=True))
    body = problem(client.patch("/api/v1/admission/config", {"max_active_dags": 3, "reason": "r"}), 403, "permission_denied")
    assert body["detail"] == "this needs the role operator; you have viewer"


def test_the_operators_group_is_there_after_each_migrate() -> None:
    Group.objects.filter(name=OPERATORS).delete()
    call_command("migrate", verbosity=0)
    assert Group.objects.filter(name=OPERATORS).exists()


@in_one_test("path", ["/api/v1/request", "/api/v1/requests/", "/api/v2/requests", "/api/v1/requests/a%00b", "/api/"])
def test_an_unknown_address_is_answered_with_a_problem(operator: APIClient, path: str) -> None:
    body = problem(operator.get(path), 404, "not_found")
    if path.endswith("/"):
        assert "slash" in body["detail"]


@in_one_test(
    "method, path",
    [
        ("put", "requests"),
        ("delete", "requests"),
        ("post", "dags"),
        ("patch", "sites"),
        ("options", "requests"),
        ("post", "status"),
    ],
)
def test_a_method_that_is_not_served_is_refused_with_those_that_are(operator: APIClient, method: str, path: str) -> None:
    response = getattr(operator, method)(f"/api/v1/{path}")
    problem(response, 405, "method_not_allowed")
    assert "GET" in response["Allow"]


def test_an_unknown_query_parameter_is_refused_with_the_known_ones(operator: APIClient) -> None:
    for path in READABLE:
        if path not in ("metrics", "schema/"):
            body = problem(operator.get(f"/api/v1/{path}?staus=held"), 400, "unknown_parameter", field="staus")
            assert "known" in body["detail"], path


@in_one_test(
    "body, word",
    [
        (b"", "request_name"),
        (b"{", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b'{"document": {}, "document": {}}', "given twice"),
        (b'{"document": {"a": NaN}}', "NaN"),
        (b'{"document": {"a": 1e999}}', "too large"),
        (b'{"document": {"a": "x\\u0000y"}}', "NUL"),
        (b'{"document": {"a": "\\ud800"}}', "surrogate"),
        (b'{"document": {"\\u0000": 1}}', "NUL"),
        (b'{"document": ' + b'{"a": ' * 150 + b"1" + b"}" * 151, "nested"),
        (b"[" * 100_000, "nested"),
        (b"[1, 2]", "dictionary"),
        (b'"text"', "dictionary"),
        (b"null", ""),
        (b"1" * 5000, "JSON"),
    ],
)
def test_a_body_that_is_no_usable_json_is_400(operator: APIClient, body: bytes, word: str) -> None:
    response = operator.generic("POST", "/api/v1/requests", body, content_type="application/json")
    assert response.status_code == 400, response.content
    assert word in response.json()["detail"]


def test_a_body_beyond_the_limit_is_refused(operator: APIClient) -> None:
    body = b'{"document": {"a": "' + b"x" * MAX_BODY_BYTES + b'"}}'
    problem(operator.generic("POST", "/api/v1/requests", body, content_type="application/json"), 413, "too_large")


def test_only_json_is_taken(operator: APIClient) -> None:
    response = operator.generic("POST", "/api/v1/requests", b"request_name=a", content_type="application/x-www-form-urlencoded")
    problem(response, 415, "unsupported_media_type")


def test_a_database_that_does_not_answer_is_503_with_a_time_to_come_back(
    operator: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("connection refused at /secret/socket")

    monkeypatch.setattr("requests_app.api.system.system_summary", fail)
    response = operator.get("/api/v1/status")
    body = problem(response, 503, "database_unavailable")
    assert int(response["Retry-After"]) > 0
    assert "secret" not in json.dumps(body)


def test_a_statement_that_takes_too_long_is_503_with_what_to_do(operator: APIClient) -> None:
    def slowly(execute: Any, sql: str, *rest: Any) -> Any:
        execute("SELECT pg_sleep(10)", (), *rest[1:])
        return execute(sql, *rest)

    with connection.cursor() as cursor, connection.execute_wrapper(slowly):
        cursor.cursor.execute("SET LOCAL statement_timeout = '50ms'")
        body = problem(operator.get("/api/v1/status"), 503, "took_too_long")
    assert "smaller page" in body["hint"]


def test_what_was_not_foreseen_is_a_problem_below_api_and_a_page_elsewhere() -> None:
    answer = server_error(RequestFactory().get("/api/v1/status"))
    assert (answer.status_code, answer["Content-Type"]) == (500, "application/problem+json")
    assert json.loads(answer.content)["code"] == "internal_error"
    assert server_error(RequestFactory().get("/admin/"))["Content-Type"].startswith("text/html")


def test_allow_lists_only_methods_that_are_answered(operator: APIClient) -> None:
    lists = ("requests", "workflows", "dags", "blocks", "effects", "sites", "pools", "schedds")
    for path in (*(f"/api/v1/{path}" for path in (*lists, *READABLE, "health", "docs/")), "/livez", "/readyz"):
        refused = operator.options(path)
        assert refused.status_code == 405, path
        assert "GET" in refused["Allow"] and "OPTIONS" not in refused["Allow"], path
        assert "OPTIONS" not in operator.get(path)["Allow"], path


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("patch", "admission/config", {"error_hold_threshold": True, "reason": "r"}),
        ("post", "requests/NAME/release", {"max_excluded_fraction": True, "reason": "r"}),
        ("post", "requests/NAME/release", {"error_hold_threshold": True, "reason": "r"}),
        ("patch", "requests/NAME", {"production_steps": [{"fraction": True, "priority": 1}]}),
    ],
)
def test_true_is_no_share_of_everything(operator: APIClient, method: str, path: str, body: dict[str, Any]) -> None:
    request = request_row(RequestStatus.HELD)
    response = getattr(operator, method)(f"/api/v1/{path.replace('NAME', request.request_name)}", body)
    assert "valid number" in problem(response, 400, "invalid")["detail"]
