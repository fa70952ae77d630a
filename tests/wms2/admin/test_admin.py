"""The admin: all but internal tables is there to look at, nothing can be edited, and lists cost the same with many rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection, models, transaction
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dags_app.models import (
    DAG,
    WorkUnit,
)
from requests_app.models import (
    Limit,
    Request,
    RequestStatus,
)
from sites_app.models import Schedd
from tests.support import every_row, former_release, many
from tests.support.html import links, text
from tests.support.next_release import a_row_has_a_later_word, worded
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.scene import Scene
from tests.support.web_clients import client_of
from wms2.admin import readonly
from wms2.models import AuditEntry, RoleAssignment

pytestmark = pytest.mark.django_db
APPS = ("wms2", "sites_app", "dags_app", "outputs_app", "requests_app")
#: Of the machinery alone: what an operator wants to know of them is said elsewhere (a request's page, the board, metrics).
INTERNAL = {
    "wms2.Wake", "wms2.RowCount", "wms2.KeptAnswer", "dags_app.FailureLog", "requests_app.AdmissionBucket",
    "requests_app.AdmissionState", "requests_app.KeptAccount", "requests_app.Progress", "requests_app.ProgressSample",
    "requests_app.EventFeed", "requests_app.Installation", "requests_app.EvaluationLease",
    "requests_app.CampaignCount", "dags_app.Sample", "dags_app.StateSample",
    "requests_app.SavedView",  # its owner's alone, unless it is shared; then it stands above the list
}  # fmt: skip
EVERY = [model for name in APPS for model in apps.get_app_config(name).get_models()]
MODELS = [model for model in EVERY if model._meta.label not in INTERNAL]
LISTED = [model for model in MODELS if model is not Limit]
#: All but what admins change by hand (tests/wms2/test_roles.py).
READ_ONLY = [model for model in MODELS if model is not RoleAssignment]
#: session, user; group of operators where there are operations; count, rows; filters that offer recent values or rows of
#: small tables
MOST_LIST_QUERIES = 14
LARGE = tuple(
    f'"{model._meta.db_table}"."{field.column}"'
    for model in EVERY
    for field in model._meta.concrete_fields
    if isinstance(field, models.JSONField) or field.name == "psets"
)


def list_of(model: type[models.Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page_of(row: models.Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def html(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, (path, response.content[:300])
    return response.content.decode()


def shown(client: Client, path: str) -> str:
    return text(html(client, path))


#: Of the whole installation.
_LISTS = (
    "requests", "status", "admission/queue", "lifecycle/status", "dags", "blocks", "effects", "sites", "cases", "metrics"
)  # fmt: skip
PAGES = ("/", "/requests/", "/bulk/", "/cases/", *(f"/api/v1/{name}" for name in _LISTS))
#: What may be done to a row depends on it, so its page is not shown: a new word there takes two releases.
NOT_JUDGED = ("requests_app.Request.stop_intent", "outputs_app.Drift.kind", "outputs_app.IntegrityCase.prognosis")


@pytest.fixture(scope="module")
def some(module_rows: None, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """At least one row of every model."""
    return every_row.build(tmp_path_factory.mktemp("scene"))


def test_every_model_but_internal_tables_is_registered() -> None:
    assert {model._meta.label for model in EVERY if model not in admin.site._registry} == INTERNAL


@pytest.fixture(scope="module")
def lists(some: Scene) -> dict[type[models.Model], str]:
    """The HTML of every list, as staff see it."""
    client = client_of(User.objects.create_user("sam", is_staff=True))
    return {model: html(client, list_of(model)) for model in MODELS}


@pytest.fixture(scope="module")
def pages(some: Scene) -> dict[type[models.Model], str]:
    """The HTML of a row's page of every model, as staff see it."""
    client = client_of(User.objects.create_user("sid", is_staff=True))
    rows = {model: model._default_manager.first() for model in MODELS}
    assert [model for model, row in rows.items() if row is None] == [], "the scene has a row of each"
    return {model: html(client, page_of(row)) for model, row in rows.items() if row is not None}


@pytest.mark.dear("every page of the admin, opened once for all assertions of this file")
def test_every_list_and_every_rows_page_opens_for_staff(
    lists: dict[type[models.Model], str], pages: dict[type[models.Model], str]
) -> None:
    assert [model for model in MODELS if not text(lists[model])] == []
    assert [model for model in MODELS if "View" not in text(pages[model])] == []


def test_the_link_to_a_row_holds_no_other_link(lists: dict[type[models.Model], str]) -> None:
    nested = re.compile(r"<a [^>]*>(?:(?!</a>).)*<a ", re.DOTALL)
    assert [model for model in LISTED if nested.search(lists[model])] == []


def test_the_link_to_a_row_has_words(lists: dict[type[models.Model], str]) -> None:
    wordless = re.compile(r'<th class="field-[^>]*><a [^>]*>(?:-|–|&nbsp;|\s)*</a>')
    assert [model for model in LISTED if wordless.search(lists[model])] == []


def test_moments_say_in_which_zone_they_are(lists: dict[type[models.Model], str], pages: dict[type[models.Model], str]) -> None:
    bare = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?! UTC|\.\d|\+)")
    shown = [(model, text(page)) for of in (lists, pages) for model, page in of.items() if model in LISTED]
    assert [(model, bare.findall(page)) for model, page in shown if bare.search(page)] == []


def test_names_of_columns_are_spelled_as_people_write_them(pages: dict[type[models.Model], str]) -> None:
    odd = re.compile(r"\b(?:Rse|Dag|Cric|Dbs|Lfn|Req mgr2|Dagman)\b[^.]{0,30}:")
    assert [(model, odd.findall(text(pages[model]))) for model in LISTED if odd.search(text(pages[model]))] == []


def test_nothing_can_be_added_edited_or_deleted_even_by_a_superuser(some: Scene) -> None:
    user = User.objects.create_superuser("sue")
    client, request = client_of(user), RequestFactory().get("/admin/")
    request.user = user
    for model in READ_ONLY:
        row, shown_by = model._default_manager.first(), admin.site._registry[model]
        assert row is not None
        path = page_of(row)
        assert client.get(f"{list_of(model)}add/").status_code == 403
        assert client.post(path, {"status": "completed"}).status_code == 403
        assert client.get(path.replace("/change/", "/delete/")).status_code == 403
        assert not shown_by.has_change_permission(request, row), "its page has no fields"
        assert "delete_selected" not in shown_by.get_actions(request)


@pytest.mark.deep("tests/wms2/admin/test_admin.py::test_nothing_can_be_added_edited_or_deleted_even_by_a_superuser")
def test_no_page_has_a_field_to_edit(some: Scene) -> None:
    client = client_of(User.objects.create_superuser("sue"))
    for model in READ_ONLY:
        row = model._default_manager.first()
        assert row is not None
        of_row = html(client, page_of(row)).split("</header>", 1)[1]
        fields = set(re.findall(r'<(?:input|select|textarea)[^>]*name="([^"]+)"', of_row))
        assert fields <= {"csrfmiddlewaretoken"}, (model, fields)
        assert "delete_selected" not in html(client, list_of(model))


def test_readers_and_nobody_are_not_let_in(reader: Client, nobody: Client) -> None:
    for client in (reader, nobody):
        for model in MODELS:
            assert client.get(list_of(model))["Location"].startswith("/admin/login/")


if former_release.RECORDING:

    def test_rows_of_every_model_are_recorded_for_the_next_release(some: Scene, tmp_path: Path) -> None:
        former_release.record_rows(tmp_path)


def test_pages_show_words_that_this_release_does_not_know(operator: Client, some: Scene) -> None:
    names = (some.held.request_name, some.active.request_name, some.completed.request_name)
    of_requests = [path for name in names for path in (f"/requests/{name}/", f"/api/v1/requests/{name}")]
    operator.raise_request_exception = False
    columns = worded()
    broken: list[str] = []
    for shown_too in (True, False):
        of_these = [column for column in columns if (column not in NOT_JUDGED) is shown_too]
        with transaction.atomic():
            rows = [a_row_has_a_later_word(column) for column in of_these]
            pages = [page_of(row) for row in rows if type(row) in MODELS] if shown_too else []
            lists = [list_of(type(row)) for row in rows if type(row) in MODELS]
            paths = dict.fromkeys([*PAGES, *of_requests, *lists, *pages])
            broken += [path for path in paths if operator.get(path).status_code != 200]
            transaction.set_rollback(True)
    assert broken == []


@pytest.mark.deep("tests/wms2/admin/test_admin.py::test_pages_show_words_that_this_release_does_not_know")
def test_pages_show_each_such_word_by_itself(operator: Client, some: Scene) -> None:
    names = (some.held.request_name, some.active.request_name, some.completed.request_name)
    of_requests = [path for name in names for path in (f"/requests/{name}/", f"/api/v1/requests/{name}")]
    operator.raise_request_exception = False
    broken: list[str] = []
    for column in worded():
        with transaction.atomic():
            row = a_row_has_a_later_word(column)
            of_row = [list_of(type(row)), *(() if column in NOT_JUDGED else (page_of(row),))] if type(row) in MODELS else []
            paths = (*PAGES, *of_requests, *of_row)
            broken += [f"{column}: {path}" for path in paths if operator.get(path).status_code != 200]
            transaction.set_rollback(True)
    assert broken == []


def queries(client: Client, path: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(path).status_code == 200
    return [query["sql"] for query in captured.captured_queries]


@pytest.mark.dear("every list of the admin, twice: with few and with many rows")
def test_lists_cost_the_same_for_few_and_many_rows_count_no_table_and_read_no_documents(
    operator: Client, lists: dict[type[models.Model], str]
) -> None:
    few = {model: len(queries(operator, list_of(model))) for model in LISTED}
    many.build(620)
    with_many = {model: queries(operator, list_of(model)) for model in LISTED}
    more = [model for model, asked in with_many.items() if len(asked) > few[model]]
    with_many |= {model: queries(operator, list_of(model)) for model in more}  # what a process keeps for a while is not counted
    assert [model for model, asked in with_many.items() if len(asked) > few[model]] == []
    assert max(map(len, with_many.values())) <= MOST_LIST_QUERIES
    for model, asked in with_many.items():
        for sql in asked:
            assert "COUNT(" not in sql or f"LIMIT {readonly.MOST + 1}" in sql, sql
            if sql.startswith("SELECT") and "LIMIT" in sql:
                read = sql.split(" FROM ", 1)[0]
                assert [column for column in LARGE if column in read] == [], model


def test_a_rows_page_does_not_read_the_documents_of_the_rows_it_points_to(staff: Client, some: Scene) -> None:
    unit = WorkUnit.objects.filter(workflow=some.active.workflow).first()
    assert unit is not None
    for sql in queries(staff, page_of(unit)):
        assert '"workflows"."psets"' not in sql
        assert '"workflows"."config_data"' not in sql


def test_a_dag_is_found_by_its_id(operator: Client) -> None:
    dag = dag_row(workflow_row())
    other = dag_row(workflow_row())
    said = shown(operator, f"{list_of(DAG)}?q={dag.pk}")
    assert str(dag.pk)[:8] in said
    assert str(other.pk)[:8] not in said


def test_filters_offer_what_the_newest_rows_have(operator: Client, some: Scene) -> None:
    said = shown(operator, list_of(AuditEntry))
    assert "request_import" in said
    assert "request_abort" in said
    only = shown(operator, f"{list_of(AuditEntry)}?action=request_abort")
    assert "wrong pile-up" in only
    assert "pdmvserv request_import" not in only


def test_links_to_the_audit_where_it_was_lead_to_where_it_is(staff: Client) -> None:
    moved = staff.get("/admin/requests_app/auditentry/?q=a_request")
    assert (moved.status_code, moved["Location"]) == (302, "/admin/wms2/auditentry/?q=a_request")
    assert staff.get(moved["Location"]).status_code == 200
    assert staff.get("/admin/requests_app/auditentry/7/change/")["Location"] == "/admin/wms2/auditentry/7/change/"


def test_a_status_has_its_colour_and_its_age(staff: Client, some: Scene) -> None:
    page = html(staff, list_of(Request))
    assert '<span class="badge colour-bad">Held</span>' in page
    assert re.search(r"3 h 1\d min", text(page))  # the scene was set a while ago


def test_a_requests_page_leads_to_everything_that_belongs_to_it(staff: Client, some: Scene) -> None:
    page = html(staff, page_of(some.active))
    found = [link for link in links(page) if str(some.active.pk) in link or str(some.active.workflow.pk) in link]
    assert f"/requests/{some.active.request_name}/" in links(page)
    for link in found:
        assert staff.get(link).status_code == 200, link
    for name in ("workflow", "dag", "workunit", "processingblock", "inputfile", "effect", "requesttransition", "event"):
        assert any(f"/{name}/" in link for link in found), name
    work_units = next(link for link in found if "/workunit/" in link)
    assert "320 work units" in shown(staff, work_units)


def test_it_tells_why_the_request_stands_where_it_stands(staff: Client, some: Scene) -> None:
    said = shown(staff, page_of(some.held))
    assert "Why: Too many failed work units: 33 of 120 work units were not done" in said
    assert "To do: Look at the failures" in said
    assert "the DAG ended with work units not done" in said, "the latest transitions are there"


def test_documents_are_shown_indented_and_as_text(staff: Client) -> None:
    request = request_row(RequestStatus.NEW, request_data={"Campaign": "<b>x</b>", "Step1": {"a": 1}})
    page = html(staff, page_of(request))
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "  &quot;Step1&quot;: {\n    &quot;a&quot;: 1" in page


def test_the_silent_schedd_is_seen_in_the_list(staff: Client, some: Scene) -> None:
    assert "timed out after 20 s" in shown(staff, list_of(Schedd))


def test_the_index_names_the_installation(staff: Client) -> None:
    assert "WMS2 admin" in shown(staff, "/admin/")


def test_no_filter_reads_a_whole_table() -> None:
    """A filter over a column without choices would ask for its distinct values."""
    for model in LISTED:
        for filter_ in admin.site._registry[model].list_filter:
            if isinstance(filter_, str):
                field = model._meta.get_field(filter_)
                small = isinstance(field, models.ForeignKey) and field.related_model._meta.app_label == "sites_app"
                assert field.choices or isinstance(field, models.BooleanField) or small, (model, filter_)
