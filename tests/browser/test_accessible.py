"""axe finds nothing serious on any page: every address of the pages, the admin and the REST interface's page, with rows for each.

The walk goes over the URL resolver, so that a new page is looked at without being named here; one that needs rows of its own is
named in ``ARGUMENTS``, and what is no page in ``NO_PAGES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import axe_playwright_python
import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse
from playwright.sync_api import Browser
from rest_framework.authtoken.models import Token

from dags_app.models import DAG, FailureSample
from outputs_app.models import ProcessingBlock
from requests_app.models import RequestGroup
from sites_app.models import Schedd
from tests.support import every_row
from tests.support.browser import WIDTH, Window, window
from tests.support.scene import Scene
from wms2.actions import buttons_of
from wms2.admin import ReadOnlyAdmin
from wms2.models import BulkRun

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
FOUND = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  const grave = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  return grave.map((one) => one.id + " at " + one.nodes.slice(0, 4).map((node) => node.target.join(" ")).join(", "));
}"""
#: Of the admin, by the ends of their names: what redirects or takes POST alone, and what is a script or JSON.
NO_ADMIN_PAGES = ("logout", "login", "jsi18n", "autocomplete", "view_on_site")
#: Django's own, which most models refuse; the long run looks at them.
DJANGOS = ("_add", "_delete", "_history", "password_change", "password_change_done")
#: Beside REST: images, answers to machines, sign-ins that lead elsewhere, POST alone.
NO_PAGES = {
    "request-chart": "an image", "livez": "for machines", "readyz": "for machines", "logout": "POST alone",
    "sso-login": "leads elsewhere", "sso-callback": "leads elsewhere", "account-token-make": "POST alone",
    "account-token-revoke": "POST alone", "account-old-key-end": "POST alone", "account-sessions-end": "POST alone",
    "saved-view-new": "POST alone", "saved-view-end": "POST alone", "request-watched": "POST alone",
}  # fmt: skip


class Address(NamedTuple):
    """A pattern of the resolver: its name with its namespace, and whether it takes arguments."""

    name: str
    route: str


def _dag(_: Scene) -> DAG:
    return FailureSample.objects.select_related("dag").all()[0].dag


def _job(_: Scene) -> Sequence[Any]:
    sample = FailureSample.objects.all()[0]
    return [sample.dag_id, sample.unit, sample.node, sample.attempt, sample.job_id]


#: Arguments of pages, by name.
ARGUMENTS: dict[str, Callable[[Scene], Sequence[Any]]] = {
    "request-page": lambda built: [built.held.request_name],
    "group-page": lambda _: [RequestGroup.objects.all()[0].name],
    "stored-logs-page": lambda built: [_dag(built).pk],
    "logs-page": _job,
    "campaign-page": lambda built: [built.held.campaign],
    "site-page": lambda _: ["T1_US_FNAL"],
    "schedd-page": lambda _: [Schedd.objects.all()[0].name],
    "dag-page": lambda built: [_dag(built).pk],
    "block-page": lambda _: [ProcessingBlock.objects.all()[0].pk],
    "bulk-run-page": lambda _: [BulkRun.objects.all()[0].pk],
    "missing-lumis-page": lambda built: [built.held.request_name],
    "report-page": _job,
    "ads-page": _job,
}
#: What follows an address, where it shows more so.
QUERIES = {"search": ("?q=T", "?q=nothing_of_that_name", "")}


def addresses(patterns: Iterable[Any], namespace: str = "", route: str = "") -> Iterator[Address]:
    """All named patterns but those below /api/ that are not its page."""
    for each in patterns:
        whole = route + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from addresses(each.url_patterns, f"{each.namespace}:" if each.namespace else namespace, whole)
        elif isinstance(each, URLPattern) and each.name and (not whole.startswith("api/") or each.name == "api-docs"):
            yield Address(f"{namespace}{each.name}", whole)


def pages(built: Scene, *, whole: bool = False) -> dict[str, list[str]]:
    """Name -> addresses to open; fails for names of which it knows neither arguments nor that they are none. ``whole``: also
    Django's own, and of each row each operation."""
    found: dict[str, list[str]] = {}
    unknown = []
    for name, route in addresses(get_resolver().url_patterns):
        if name in NO_PAGES or (
            name.startswith("admin:") and name.endswith(NO_ADMIN_PAGES if whole else (*NO_ADMIN_PAGES, *DJANGOS))
        ):
            continue
        try:
            found[name] = _admin(name, route, whole) if name.startswith("admin:") else _page(name, built)
        except NoReverseMatch as error:
            unknown.append(f"{name}: {error}")
    assert unknown == [], "give their arguments in ARGUMENTS, or say in NO_PAGES what they are"
    return found


def _page(name: str, built: Scene) -> list[str]:
    path = reverse(name, args=ARGUMENTS[name](built) if name in ARGUMENTS else [])
    return [path + query for query in QUERIES.get(name, ("",))]


def _admin(name: str, route: str, whole: bool) -> list[str]:
    model = _model(name)
    if name.endswith(":app_list"):
        return [reverse(name, args=[label]) for label in ("sites_app", *(("auth", "wms2") if whole else ()))]
    if name.endswith("auth_user_password_change"):
        return [reverse(name, args=[User.objects.all()[0].pk])]
    if model is not None and name.endswith(DJANGOS) and isinstance(admin.site.get_model_admin(model), ReadOnlyAdmin):
        return []  # each the same page
    if model is None or "<" not in route:
        return [reverse(name)]
    row = model._default_manager.first()
    assert row is not None, f"{model} has no row in every_row"
    if name.endswith("_action"):
        return [f"{reverse(name, args=[action.name])}?id={row.pk}" for action in buttons_of(model)[: None if whole else 1]]
    return [reverse(name, args=[row.pk])]


def _model(name: str) -> type[Model] | None:
    found = [model for model in apps.get_models() if name.startswith(f"admin:{model._meta.app_label}_{model._meta.model_name}_")]
    return found[0] if found else None


@pytest.fixture
def built(transactional_db: Any, tmp_path: Path) -> Scene:
    """A row of every table."""
    Token.objects.create(user=User.objects.create_user("tom"))
    return every_row.build(tmp_path)


def look_at(opened: Window, paths: Iterable[str]) -> list[str]:
    """What axe finds, by address."""
    script, found = AXE.read_text(encoding="utf-8"), []
    for path in paths:
        answer = opened.page.goto(opened.base + path, wait_until="load")
        assert answer is not None
        if "html" not in answer.headers.get("content-type", ""):
            continue
        if answer.status not in (200, 403, 404):
            found.append(f"{path}: answered {answer.status}")
        if path == "/api/v1/docs/":
            opened.page.locator(".opblock").first.wait_for()
        opened.page.evaluate(script)
        found += [f"{path}: {each}" for each in opened.page.evaluate(FOUND)]
    return found


#: One of each kind of page of the admin: those of the others are made by the same code.
KINDS = (
    "admin:index", "admin:app_list", "admin:requests_app_request_changelist", "admin:requests_app_request_change",
    "admin:requests_app_request_action", "admin:requests_app_request_import", "admin:dags_app_failuregroup_changelist",
    "admin:requests_app_limit_changelist", "admin:wms2_roleassignment_changelist",
)  # fmt: skip


@pytest.mark.dear("what axe finds, of each kind of page one")
def test_axe_finds_nothing_serious(chromium: Browser, live_server: Any, built: Scene) -> None:
    known = pages(built)
    paths = [path for name, of_name in known.items() if not name.startswith("admin:") or name in KINDS for path in of_name]
    with window(chromium, live_server.url) as opened:
        opened.sign_in_as(User.objects.create_superuser("sue"))
        assert look_at(opened, [*paths, "/no/such/page/", "/requests/no_such_request/"]) == []
    with window(chromium, live_server.url, dark=True, width=390) as opened:
        opened.sign_in_as(User.objects.get(username="sue"))
        assert look_at(opened, ["/admin/", "/admin/requests_app/request/", *known["board"], *known["request-page"]]) == []


@pytest.mark.deep("tests/browser/test_accessible.py::test_axe_finds_nothing_serious")
def test_axe_finds_nothing_serious_on_any_page_of_the_admin(chromium: Browser, live_server: Any, built: Scene) -> None:
    """Lists with rows and without, rows, forms, each operation; lists, rows and forms in the dark on a telephone."""
    known = {name: of_name for name, of_name in pages(built, whole=True).items() if name.startswith("admin:")}
    with window(chromium, live_server.url) as opened:
        opened.sign_in_as(User.objects.create_superuser("sue"))
        nothing = "/admin/requests_app/request/?q=nothing_of_that_name"
        assert look_at(opened, [nothing, *(path for of_name in known.values() for path in of_name)]) == []
        opened.go("/admin/wms2/roleassignment/add/")
        opened.page.get_by_role("button", name="Save", exact=True).click()
        opened.page.locator(".errornote").wait_for()
        opened.page.evaluate(AXE.read_text(encoding="utf-8"))
        assert opened.page.evaluate(FOUND) == [], "a form that is refused"
    dark = [of_name[0] for name, of_name in known.items() if of_name and name.endswith(("_changelist", "_change", "_add"))]
    with window(chromium, live_server.url, dark=True, width=390) as opened:
        opened.sign_in_as(User.objects.get(username="sue"))
        assert look_at(opened, dark) == []


@pytest.mark.deep("tests/browser/test_accessible.py::test_axe_finds_nothing_serious")
def test_axe_finds_nothing_serious_in_the_interfaces_page_unfolded(chromium: Browser, live_server: Any, operator: User) -> None:
    """One operation of each method with its fields and answers, and how one signs in; at both widths. Only what is in sight is
    there: one is folded before the next is looked for."""
    script, found = AXE.read_text(encoding="utf-8"), []
    for width in (390, WIDTH):
        with window(chromium, live_server.url, width=width) as opened:
            opened.page.set_viewport_size({"width": width, "height": 4000})
            opened.sign_in_as(operator)
            opened.go("/api/v1/docs/")
            opened.page.locator(".opblock").first.wait_for()
            opened.page.evaluate(script)
            for method in ("get", "post", "patch", "delete"):
                block = opened.page.locator(f".opblock-{method}").first
                block.locator(".opblock-summary-control").click()
                block.locator(".opblock-body").wait_for()
                found += [f"{width}, {method}: {each}" for each in opened.page.evaluate(FOUND)]
                block.locator(".opblock-summary-control").click()
            opened.page.locator(".btn.authorize").first.click()
            opened.page.locator(".modal-ux").wait_for()
            found += [f"{width}, signing in: {each}" for each in opened.page.evaluate(FOUND)]
    assert found == []
