"""Failures across requests: code by site, whom a cell concerns, samples whose logs are kept first, and from there operations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dags_app.models import DAG, FailureGroup
from requests_app.models import Request, RequestStatus
from tests.support.html import links, text
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.scene import Scene
from tests.support.statements import statements_of

pytestmark = pytest.mark.django_db
CELL = "/failures/?code=8021&site=T2_CH_CERN"


def failed(code: int, site: str, attempts: int = 1, *, hours_ago: float = 1, messages: int = 0, **fields: Any) -> Request:
    """A request with one kind of failures, and samples of so many messages."""
    request = request_row(RequestStatus.ACTIVE, campaign="Run3")
    workflow = workflow_row(request)
    dag: DAG = dag_row(workflow)
    last = timezone.now() - timedelta(hours=hours_ago)
    group = FailureGroup.objects.create(
        workflow=workflow, category="data", code=code, site=site, attempts=attempts, first_at=last, last_at=last, **fields
    )
    for number in range(messages):
        group.samples.create(
            dag=dag, unit="mg_000001", node="proc_000000", attempt=0, job_id=f"{number}.0", final=True, at=last,
            message=f"cannot open file{chr(97 + number)}.root, try {number}",
        )  # fmt: skip
    return request


def test_codes_and_sites_with_most_failures_come_first_each_cell_leads_to_its_requests(reader: Client) -> None:
    many, few = failed(8021, "T2_CH_CERN", 40, given_up=7, messages=6), failed(8021, "T1_US_FNAL", 3)
    elsewhere, old = failed(50660, "T1_US_FNAL", 5), failed(99, "T2_DE_DESY", 900, hours_ago=30)
    page = reader.get("/failures/").content.decode()
    said = text(page, "part-matrix")
    assert said.index("8021") < said.index("50660") and said.index("T2_CH_CERN") < said.index("FNAL")
    assert "48 failed attempts, 7 given up" in said and "DESY" not in said, "that was before the last day"
    assert f"?{CELL.partition('?')[2]}#found" in links(page)

    found = reader.get(CELL).content.decode()
    listed = text(found, "found")
    assert many.request_name in listed
    assert not [each for each in (few, elsewhere, old) if each.request_name in listed]
    assert len([link for link in links(found) if "/jobs/" in link or "/logs/" in link]) >= 6, "a sample of each message"
    assert old.request_name in text(reader.get("/failures/?code=99&range=7d").content.decode(), "found")

    table = reader.get("/api/v1/failures?format=csv").content.decode().splitlines()
    assert table[:2] == ["code,site,category,rule,attempts,given_up", "8021,T1_US_FNAL,data,,3,0"]
    places = reader.get("/api/v1/failures").json()["places"]
    assert [(each["code"], each["site"], each["attempts"]) for each in places] == [
        (8021, "T1_US_FNAL", 3), (8021, "T2_CH_CERN", 40), (50660, "T1_US_FNAL", 5),
    ]  # fmt: skip


def test_the_requests_of_a_cell_are_a_filter_of_the_list_of_requests(reader: Client) -> None:
    here = failed(8021, "T2_CH_CERN")
    failed(8021, "T1_US_FNAL"), failed(1, "T2_CH_CERN"), failed(8021, "T2_CH_CERN", hours_ago=40)
    nowhere = failed(7, "")
    since = f"{timezone.now() - timedelta(hours=24):%Y-%m-%dT%H:%M:%SZ}"

    def found(query: str) -> list[str]:
        return [row["request_name"] for row in reader.get(f"/api/v1/requests?{query}").json()["results"]]

    assert found(f"failed_code=8021&failed_site=T2_CH_CERN&failed_since={since}") == [here.request_name]
    assert len(found("failed_code=8021")) == 3
    assert found("failed_site=none") == [nowhere.request_name]
    assert reader.get("/api/v1/requests?failed_code=abc").status_code == 400


def test_a_log_that_is_kept_comes_first_and_is_two_clicks_from_the_first_page(reader: Client, built: Scene) -> None:
    page = reader.get("/failures/").content.decode()  # the first click
    said = text(page, "part-samples")
    assert said.index("DIGIRaw") < said.index("not there"), "the one with a log is the first"
    log = next(link for link in links(page) if link.endswith("/logs/"))  # the second
    assert "Fatal Root Error" in text(reader.get(log).content.decode())


def test_operators_act_on_the_requests_that_they_mark(reader: Client, operator: Client, built: Scene) -> None:
    page = operator.get(CELL).content.decode()
    assert "Release …" in text(page, "found") and f'name="id" value="{built.held.pk}"' in page
    assert "Those marked" not in text(reader.get(CELL).content.decode(), "found")
    confirm = operator.get(f"/admin/requests_app/request/verb/release/?id={built.held.pk}&back=/failures/")
    assert built.held.request_name in text(confirm.content.decode())


def test_what_cannot_be_asked_for_is_said(reader: Client) -> None:
    for query in ("range=1y", "code=x", "category=bad", f"site={'s' * 200}"):
        answer = reader.get(f"/failures/?{query}")
        assert answer.status_code == 400, query
        assert f"{query.partition('=')[0]}:" in text(answer.content.decode(), "part-matrix")
        assert reader.get(f"/api/v1/failures?{query}").status_code == 400, query


def test_it_costs_the_same_with_many_failures(reader: Client, built: Scene) -> None:
    paths = (CELL, f"{CELL}&list=samples")
    before = [len(statements_of(reader, path)) for path in paths]
    for number in range(20):
        failed(8021, "T2_CH_CERN", messages=2)
        failed(8000 + number, f"T2_XX_Site{number}")
    assert [len(statements_of(reader, path)) for path in paths] == before
    assert max(before) <= 8


def test_the_table_is_drawn_once_in_a_while_for_all_who_ask_for_the_same(
    reader: Client, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requests_app.pages.cached.CACHED_SECONDS", 600.0)
    failed(8021, "T1_US_FNAL", 3)
    reader.get("/failures/")
    failed(8021, "T1_US_FNAL", 4)
    for query, attempts in (("", 3), ("range=7d", 7), ("category=data", 7), ("campaign=Run3", 7), ("", 3)):
        page = operator.get(f"/failures/?{query}").content.decode()
        assert f"{attempts} failed attempts" in text(page, "part-matrix"), query
        asked = statements_of(reader, f"/failures/?{query}")
        assert not any("failure_samples" in sql for sql in asked), f"{query}: they were read for another reader"
