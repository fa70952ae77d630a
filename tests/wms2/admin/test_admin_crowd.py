"""Lists of the admin with hundreds of rows: how far one can page, and what is found."""

from __future__ import annotations

import re

import pytest
from django.db import models
from django.test import Client
from django.urls import reverse

from dags_app.models import DAG, WorkUnit
from outputs_app.models import Effect, ProcessingBlock
from requests_app.models import Request, Workflow
from tests.support import many
from tests.support.html import text
from wms2.admin import readonly
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def crowd(module_rows: None) -> None:
    many.build(620)


def list_of(model: type[models.Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def shown(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, (path, response.content[:300])
    return text(response.content.decode())


def test_behind_the_last_page_one_is_told_to_search(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readonly, "MOST", 120)
    said = shown(operator, list_of(Request))
    assert "the first 120 requests; search or filter to see others" in said
    assert "tester_task_000003_v1" not in said
    assert "tester_task_000003_v1" in shown(operator, f"{list_of(Request)}?q=000003")


def test_pages_of_a_list_go_on_where_the_former_ended(operator: Client) -> None:
    first, second = (shown(operator, f"{list_of(Request)}?p={number}") for number in (1, 2))
    names = re.compile(r"tester_task_\d{6}_v1")
    assert len(set(names.findall(first))) == len(set(names.findall(second))) == 50
    assert not set(names.findall(first)) & set(names.findall(second))


@pytest.mark.parametrize(
    ("model", "term"),
    [*((model, "tester_task_000010_v1") for model in (WorkUnit, DAG, Effect, ProcessingBlock, AuditEntry)), (DAG, "1")],
)
def test_rows_are_found_by_whole_names(operator: Client, model: type[models.Model], term: str) -> None:
    said = shown(operator, f"{list_of(model)}?q={term}")
    assert "tester_task_000010_v1" in said
    assert "tester_task_000020_v1" not in said


@pytest.mark.parametrize("term", ["nothing-like-that", "%", "\\", "x" * 400, "00000000-0000-0000-0000-000000000000"])
def test_a_search_for_what_is_not_there_finds_nothing(operator: Client, term: str) -> None:
    for model in (Request, DAG, WorkUnit, Effect, AuditEntry, Workflow, ProcessingBlock):
        assert "tester_task" not in shown(operator, f"{list_of(model)}?q={term}")
