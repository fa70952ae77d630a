"""The content policy: on every answer, and nothing in any page that it would stop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

from deploy.stack import paths
from tests.support.cases import in_one_test
from tests.support.scene import Scene
from wms2.web.csp import HEADER, POLICY

pytestmark = pytest.mark.django_db
ROOT = paths.checkout()
INLINE = re.compile(r"<style|\sstyle\s*=|\son[a-z]+\s*=\s*[\"']|javascript:|<script(?![^>]*\ssrc=)", re.IGNORECASE)
FOREIGN = re.compile(r"(?:src|href|action)\s*=\s*[\"'](?:https?:)?//", re.IGNORECASE)


@in_one_test("path, status", [
        ("/", 200), ("/requests/?status=nonsense", 400), ("/login/", 302), ("/nothing", 404), ("/requests/nothing/", 404),
        ("/admin/", 200),
        ("/admin/requests_app/request/", 200), ("/admin/nothing/", 404), ("/api/v1/requests", 200), ("/api/v1/nothing", 404),
        ("/api/v1/schema/", 200), ("/livez", 200),
    ])  # fmt: skip
def test_every_answer_carries_the_policy(operator: Client, path: str, status: int) -> None:
    response = operator.get(path)
    assert response.status_code == status
    assert response[HEADER] == POLICY


@in_one_test("path", ["/", "/login/", "/admin/", "/api/v1/requests", "/api/v1/docs/"])
def test_every_answer_without_a_sign_in_carries_the_policy(nobody: Client, path: str) -> None:
    assert HEADER in nobody.get(path)


def test_a_failure_carries_it_too(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken for the test")

    monkeypatch.setattr("requests_app.pages.views.overview", fail)
    operator.raise_request_exception = False
    response = operator.get("/")
    assert response.status_code == 500
    assert response[HEADER] == POLICY
    assert b"broken for the test" not in response.content


def test_nothing_is_allowed_inline_or_evaluated_or_foreign(operator: Client) -> None:
    for path in ("/", "/admin/", "/api/v1/docs/"):
        policy = operator.get(path)[HEADER]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy


def test_only_swagger_may_draw_images_from_its_own_text(operator: Client) -> None:
    assert "data:" in operator.get("/api/v1/docs/")[HEADER]
    assert "data:" not in operator.get("/api/v1/schema/")[HEADER]


def pages(built: Scene) -> list[str]:
    found = [
        "/",
        "/?status=held",
        "/nothing",
        "/api/v1/docs/",
        "/admin/",
        "/admin/requests_app/limit/",
        "/admin/password_change/",
    ]
    found += ["/admin/requests_app/limit/verb/change/?id=max_active_dags"]
    for request in (built.held, built.refused, built.active, built.completed, built.new):
        found += [f"/requests/{request.request_name}/", f"/admin/requests_app/request/{request.pk}/change/"]
    return [*found, f"/admin/requests_app/request/verb/abort/?id={built.active.pk}", "/admin/requests_app/request/?q=cms"]


def test_no_page_holds_anything_inline_or_foreign(operator: Client, built: Scene) -> None:
    for path in pages(built):
        html = operator.get(path).content.decode()
        assert INLINE.findall(html) == [], path
        assert FOREIGN.findall(html) == [], path


@in_one_test("template", sorted((ROOT / "templates").rglob("*.html")))
def test_no_template_holds_anything_inline(template: Path) -> None:
    assert INLINE.findall(template.read_text()) == []


def test_the_script_neither_evaluates_nor_writes_markup() -> None:
    script = (ROOT / "wms2/static/wms2/live.js").read_text()
    for word in ("eval(", "new Function", "innerHTML =", "document.write", 'setAttribute("style', "http:", "https:"):
        assert word not in script
