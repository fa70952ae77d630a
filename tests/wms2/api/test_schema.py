"""The OpenAPI schema tells the truth: it is valid, complete, without warnings, and its page needs no other server."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from rest_framework.test import APIClient

from wms2.urls import api_v1

pytestmark = pytest.mark.django_db
#: Not operations of the interface: the schema itself and the page over it.
PAGES = {"/api/v1/schema/", "/api/v1/docs/"}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found


def test_it_is_valid_openapi_made_without_warnings(schema: dict[str, Any]) -> None:
    GENERATOR_STATS.reset()
    validate_schema(SchemaGenerator().get_schema(request=None, public=True))
    assert not GENERATOR_STATS._warn_cache
    assert not GENERATOR_STATS._error_cache


def routes(patterns: Any, prefix: str = "") -> set[str]:
    found = set()
    for entry in patterns:
        here = prefix + str(entry.pattern)
        found |= {here} if isinstance(entry, URLPattern) else routes(entry.url_patterns, here)
    return found


def test_every_route_is_in_it(schema: dict[str, Any]) -> None:
    ours = {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", f"/api/v1/{route}") for route in routes(api_v1)} - PAGES
    reported = {path.replace("{id}", "{pk}") for path in schema["paths"]}
    assert {re.sub(r"\{\w+\}", "{}", path) for path in ours | {"/livez", "/readyz"}} == {
        re.sub(r"\{\w+\}", "{}", path) for path in reported
    }


def test_every_operation_says_what_it_does_and_how_it_fails(schema: dict[str, Any]) -> None:
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description"), (method, path)
            failure = operation["responses"]["default"]["content"]
            assert failure == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}, (method, path)


def test_a_list_that_is_offered_as_csv_says_so(schema: dict[str, Any]) -> None:
    found = 0
    for path, operations in schema["paths"].items():
        parameters = {each["name"]: each["schema"] for each in operations.get("get", {}).get("parameters", ())}
        if "csv" in parameters.get("format", {}).get("enum", ()):
            found += 1
            assert "text/csv" in operations["get"]["responses"]["200"]["content"], path
    assert found > 20


def test_verbs_ask_for_a_reason_and_answer_202(schema: dict[str, Any]) -> None:
    for action in ("hold", "release", "stop", "fail", "restart", "invalidate"):
        operation = schema["paths"][f"/api/v1/requests/{{request_name}}/{action}"]["post"]
        assert "202" in operation["responses"]
        body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert "reason" in schema["components"]["schemas"][body]["required"]
    abort = schema["paths"]["/api/v1/requests/{request_name}"]["delete"]
    assert [(p["name"], p["required"]) for p in abort["parameters"] if p["in"] == "query"] == [("reason", True)]


def test_the_schema_is_json(reader: APIClient) -> None:
    response = reader.get("/api/v1/schema/")
    assert "json" in response["Content-Type"]
    assert response.json()["openapi"].startswith("3.")


def test_the_page_loads_nothing_from_elsewhere_and_has_no_inline_script(client: Client) -> None:
    client.force_login(User.objects.create_user("rita"))
    page = client.get("/api/v1/docs/").content.decode()
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert sources
    assert all(source.startswith("/") for source in sources), sources
    assert "<style" not in page
    assert not re.search(r"<script(?![^>]*src=)", page)
    script = client.get("/api/v1/docs/?script=")
    assert script["Content-Type"] == "application/javascript"
    assert "/api/v1/schema/" in script.content.decode()


def test_who_is_not_signed_in_is_sent_to_the_sign_in_page(client: Client) -> None:
    response = client.get("/api/v1/docs/")
    assert (response.status_code, response["Location"]) == (302, f"{settings.LOGIN_URL}?next=/api/v1/docs/")
