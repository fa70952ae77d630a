"""The header is that of pages, admin and REST page; a wrong address says what it was of; other services are one link away."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.support.html import links, text
from tests.support.rows import request_row, workflow_row
from tests.support.web_clients import client_of
from wms2.conf import conf
from wms2.web import template_tags
from wms2.web.addresses import filled, sought

pytestmark = pytest.mark.django_db


def words(client: Client, path: str, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status, path
    return " ".join(text(response.content.decode(), "main" if status == 404 else None).split())


def header(client: Client, path: str) -> str:
    page = client.get(path).content.decode()
    found = re.search(r'<header class="top">.*?</header>', page, re.DOTALL)
    assert found is not None, path
    return re.sub(r'\s*(value="[^"]{64}"|aria-current="page"|\s)\s*', " ", found[0]).replace(" >", ">")


def test_pages_admin_and_rest_page_have_one_header(operator: Client) -> None:
    request_row(request_name="a_request")
    paths = ("/", "/cases/", "/requests/a_request/", "/admin/", "/admin/requests_app/request/", "/api/v1/docs/", "/account/")
    assert len({header(operator, path) for path in paths}) == 1
    assert 'name="q"' in header(operator, "/")
    assert 'aria-current="page">Admin' in operator.get("/admin/").content.decode()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/requests/no_such/", "There is no request no_such."),
        ("/requests/odd name!/", "There is no request odd name!."),
        ("/groups/no_such/", "There is no group no_such."),
        ("/dags/00000000-0000-4000-8000-000000000000/logs/", "There is no DAG 00000000-0000-4000-8000-000000000000."),
        ("/admin/sites_app/site/T9_XX_Nowhere/change/", "There is no site T9_XX_Nowhere."),
        ("/admin/dags_app/dag/nonsense/change/", "There is no DAG nonsense."),
        ("/admin/no_such_app/", "There is nothing at /admin/no_such_app/."),
        ("/no/such/page/", "There is nothing at /no/such/page/."),
    ],
)
def test_a_wrong_address_says_what_it_was_of_and_offers_to_find_it(operator: Client, path: str, said: str) -> None:
    shown = words(operator, path, 404)
    assert said in shown
    assert "Find it by name, id or path" in shown


def test_pages_that_do_not_exist_yet_are_named_too() -> None:
    assert sought("/sites/T1_US_FNAL/")[:2] == ("site", "T1_US_FNAL")
    assert sought("/operations/schedds/submit7/")[:2] == ("schedd", "submit7")
    assert sought("/outputs/blocks/x/")[:2] == ("block", "x")


def test_the_admin_begins_with_doors_by_task_and_folds_all_tables(operator: Client) -> None:
    page = operator.get("/admin/").content.decode()
    sections = re.search(r'<ul class="sections">(.*?)</ul>', page, re.DOTALL)
    assert sections is not None
    assert sections[1].count("<li>") == 8
    for url in links(sections[1]):
        assert operator.get(url).status_code == 200, url
    folded = re.search(r'<details id="all-tables">(.*?)</details>', page, re.DOTALL)
    assert folded is not None
    assert {"/admin/dags_app/dag/", "/admin/wms2/auditentry/"} <= set(links(folded[1]))


def test_a_door_without_tables_that_the_user_may_see_is_not_there() -> None:
    assert "Requests" not in client_of(User.objects.create_user("rita")).get("/admin/").content.decode()


def test_a_name_breaks_where_it_may_and_is_shown_alone_where_it_has_no_page() -> None:
    assert template_tags.page_link("campaign-page", "a_<b>").endswith("a_<wbr>&lt;b&gt;</a>")
    assert template_tags.page_link("no-such-page", "a_<b>") == "a_<wbr>&lt;b&gt;"


def test_other_services_are_linked_as_the_settings_say(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_row(request_name="a_request", prep_id="EGM-1", input_dataset="/A/B-v1/RAW")
    workflow_row(request)
    assert 'class="outside"' not in operator.get("/requests/a_request/").content.decode()
    set_to = {
        "reqmgr2": "https://reqmgr2.example/fetch?rid={}", "mcm": "https://mcm.example/requests?prepid={}",
        "das": "https://das.example/request?input={}", "rucio": "https://rucio.example/did?name={}",
        "cric": "https://cric.example/site/{}/",
    }  # fmt: skip
    known = conf().model_copy(update={"links": set_to})
    monkeypatch.setattr(template_tags, "conf", lambda: known)
    found = links(operator.get("/requests/a_request/").content.decode())
    for url in (
        "https://reqmgr2.example/fetch?rid=a_request", "https://mcm.example/requests?prepid=EGM-1",
        "https://das.example/request?input=%2FA%2FB-v1%2FRAW", "https://rucio.example/did?name=%2FA%2FB-v1%2FRAW",
    ):  # fmt: skip
        assert url in found
    assert template_tags.links_out("site", "T1_US_FNAL").startswith(
        '<a class="outside" href="https://cric.example/site/T1_US_FNAL/"'
    )
    assert filled("https://x.example/{}", 'a"b') == "https://x.example/a%22b"
