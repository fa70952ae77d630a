"""GET /requests: filters narrow, orderings walk, pages neither lose nor repeat a row, a page costs a fixed number of queries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import WorkUnitState
from requests_app.api.views import RequestViewSet
from requests_app.models import HoldCode, Request, RequestStatus
from sites_app.models import Site
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from wms2.api.filters import UpperSearchFilter
from wms2.api.pagination import ordering_choices

pytestmark = pytest.mark.django_db
S = RequestStatus
URL = "/api/v1/requests"


def names(client: APIClient, **query: Any) -> list[str]:
    response = client.get(URL, query)
    assert response.status_code == 200, response.content
    return [row["request_name"] for row in response.json()["results"]]


def walk(client: APIClient, **query: Any) -> list[str]:
    found: list[str] = []
    url: str | None = None
    while url is not None or not found:
        page = (client.get(url) if url else client.get(URL, query)).json()
        found += [row["request_name"] for row in page["results"]]
        url = page["next"]
        if url is None:
            break
    return found


def aged(request: Request, **fields: Any) -> Request:
    Request.objects.filter(pk=request.pk).update(**fields)
    return request


def test_a_line_tells_where_the_request_stands(reader: APIClient) -> None:
    request = request_row(S.ACTIVE, campaign="Run3", waiting_for="DAGMan job 7", priority=110_000)
    dag = dag_row(workflow_row(request))
    unit_row(dag, 0)
    unit_row(dag, 1, state=WorkUnitState.DONE, manifest_sha256="a", fence=1)
    unit_row(dag, 2, state=WorkUnitState.FAILED)

    (line,) = reader.get(URL).json()["results"]

    assert line["request_name"] == request.request_name
    assert (line["status"], line["campaign"], line["priority"]) == ("active", "Run3", 110_000)
    assert line["waiting_for"] == "DAGMan job 7"
    assert line["workflow"] == {"id": str(request.workflow.pk), "status": "new"}
    assert line["work_units"] == {
        "total": 2, "planned": 1, "done": 1, "done_unaccounted": 0, "failed": 1, "abandoned": 0,
    }  # fmt: skip
    assert "request_data" not in line


def test_a_request_without_a_workflow_says_so(reader: APIClient) -> None:
    request_row(S.NEW)
    (line,) = reader.get(URL).json()["results"]
    assert line["workflow"] is None
    assert line["work_units"]["total"] == 0


def test_each_filter_narrows_and_all_hold_together(reader: APIClient) -> None:
    now = timezone.now()
    held = request_row(S.HELD, campaign="A", requestor="anna", group="DATAOPS", hold_code=HoldCode.THRESHOLD, priority=900)
    queued = request_row(S.QUEUED, campaign="A", requestor="bert", priority=500, urgent=True)
    old = aged(request_row(S.COMPLETED, campaign="B", priority=100, alert_code="stuck"), created_at=now - timedelta(days=9))
    every = {held.request_name, queued.request_name, old.request_name}

    def found(**query: Any) -> set[str]:
        return set(names(reader, **query))

    assert found() == every
    assert found(status="held") == {held.request_name}
    assert found(status="held,queued") == {held.request_name, queued.request_name}
    assert found(campaign="A") == {held.request_name, queued.request_name}
    assert found(requestor="bert") == {queued.request_name}
    assert found(group="DATAOPS") == {held.request_name}
    assert found(hold_code="threshold,ledger") == {held.request_name}
    assert found(urgent="true") == {queued.request_name}
    assert found(alerted="true") == {old.request_name}
    assert found(alerted="false") == every - {old.request_name}
    assert found(priority_min=500) == {held.request_name, queued.request_name}
    assert found(priority_min=200, priority_max=500) == {queued.request_name}
    assert found(created_until=(now - timedelta(days=1)).isoformat()) == {old.request_name}
    assert found(created_since=(now - timedelta(days=1)).isoformat()) == every - {old.request_name}
    assert found(updated_since=(now - timedelta(days=1)).isoformat()) == every
    assert found(updated_until=(now - timedelta(days=1)).isoformat()) == set()
    assert found(status="held", campaign="B") == set()


def test_search_finds_parts_of_names_whatever_the_case_and_takes_no_pattern(reader: APIClient) -> None:
    one = request_row(request_name="cms_PsiToMuMu_v1", prep_id="BPH-Run3-00001")
    two = request_row(request_name="cms_Other_v1", input_dataset="/PsiToMuMu/Era-v1/RAW")
    assert set(names(reader, search="psitomumu")) == {one.request_name, two.request_name}
    assert names(reader, search="bph-") == [one.request_name]
    assert names(reader, search="%") == []
    assert names(reader, search="cms_Psi") == [one.request_name]


def test_pages_of_every_ordering_show_each_row_once_also_where_values_repeat(reader: APIClient) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    for index in range(23):
        row = request_row(S.QUEUED if index % 3 else S.COMPLETED, priority=100 * (index % 2), campaign="C" if index % 4 else "")
        aged(row, created_at=moment + timedelta(seconds=index // 5), status_since=moment, updated_at=moment)
    expected = {
        ordering: list(Request.objects.order_by(ordering, "pk").values_list("request_name", flat=True))
        for ordering in ordering_choices(RequestViewSet)
    }
    assert {ordering: walk(reader, ordering=ordering, page_size=4) for ordering in expected} == expected


def test_the_newest_come_first_and_rows_that_arrive_meanwhile_shift_nothing(reader: APIClient) -> None:
    rows = [aged(request_row(), created_at=timezone.now() - timedelta(hours=10 - index)) for index in range(6)]
    first = reader.get(URL, {"page_size": 3}).json()
    request_row()
    second = reader.get(first["next"]).json()
    found = [row["request_name"] for row in first["results"] + second["results"]]
    assert found == [row.request_name for row in reversed(rows)]
    assert second["next"] is None


def test_the_next_page_keeps_the_filters(reader: APIClient) -> None:
    wanted = [request_row(S.QUEUED).request_name for _ in range(3)]
    request_row(S.NEW)
    assert set(walk(reader, status="queued", page_size=1)) == set(wanted)


def test_a_wrong_query_is_400_and_names_the_parameter(reader: APIClient) -> None:
    """Beside what holds for all lists (tests/wms2/api/test_lists.py)."""
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"status": "held,sleeping"}, "status"),
        ({"status": ","}, "status"),
        ({"status": "held,"}, "status"),
        ({"status": "held\x00"}, "status"),
        ({"priority_min": "high"}, "priority_min"),
        ({"priority_min": "-1"}, "priority_min"),
        ({"priority_max": "1000000"}, "priority_max"),
        ({"priority_max": "1e400"}, "priority_max"),
        ({"created_since": "yesterday"}, "created_since"),
        ({"created_since": "0001-01-01T00:00:00+14:00"}, "created_since"),
        ({"updated_until": "9999-12-31T23:59:59-12:00"}, "updated_until"),
        ({"urgent": "yes"}, "urgent"),
        ({"updated_until": "2026-13-01T00:00:00Z"}, "updated_until"),
        ({"search": "a\x00b"}, "search"),
        ({"search": "x" * 201}, "search"),
        ({"campaign": "c\x00"}, "campaign"),
        ({"ordering": "created_at,priority"}, "ordering"),
        ({"page_size": "many"}, "page_size"),
        ({"page_size": "１"}, "page_size"),
        ({"page_size": "9" * 5000}, "page_size"),
        ({"page": "2"}, "page"),
    )
    answers = [(query, field, reader.get(URL, query)) for query, field in wrong]
    assert not [
        (query, answer.content) for query, field, answer in answers
        if (answer.status_code, answer.json().get("field")) != (400, field)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"status": "foo"}, "'foo' is not one of new, submitted, queued"),
        ({"created_since": "yesterday"}, "not a moment; give it as ISO 8601 has it, e.g. 2026-11-25T12:00:00Z"),
    ],
)
def test_a_wrong_value_is_answered_with_those_that_are_right(reader: APIClient, query: dict[str, str], words: str) -> None:
    assert words in problem(reader.get("/api/v1/requests", query), 400, "invalid")["detail"]


def test_moments_at_the_ends_of_time_are_only_moments(reader: APIClient) -> None:
    request_row()
    assert len(names(reader, created_since="0001-01-01T00:00:00Z", updated_until="9999-12-31T23:59:59Z")) == 1
    assert len(names(reader, created_since="0323-09-03T16:35:15.596450+21:27")) == 1, "more than PostgreSQL takes"


def test_a_cursor_belongs_to_its_list(reader: APIClient) -> None:
    for name in ("T1_US_FNAL", "T2_CH_CERN"):
        Site.objects.create(name=name)
    elsewhere = reader.get("/api/v1/sites?ordering=status&page_size=1").json()["next"]
    cursor = parse_qs(urlsplit(elsewhere).query)["cursor"][0]
    problem(reader.get(f"/api/v1/requests?ordering=status&cursor={quote(cursor)}"), 400, "invalid", field="cursor")


def test_a_cursor_belongs_to_its_ordering(reader: APIClient) -> None:
    for _ in range(3):
        request_row()
    url = reader.get(URL, {"page_size": 1}).json()["next"]
    problem(reader.get(url + "&ordering=priority"), 400, "invalid", field="cursor")


@pytest.mark.parametrize("rows", [1, 30])
def test_a_page_costs_three_queries_however_many_rows(reader: APIClient, rows: int, django_assert_num_queries: Any) -> None:
    for _ in range(rows):
        unit_row(dag_row(workflow_row(request_row(S.ACTIVE))))
    with django_assert_num_queries(3) as captured:  # the token's user, the page, its work units
        assert len(reader.get(URL, {"page_size": 50}).json()["results"]) == rows
    assert_reads_no_document(captured)


def assert_reads_no_document(captured: CaptureQueriesContext) -> None:
    for query in captured.captured_queries:
        for column in ('"request_data"', '"config_data"', '"psets"'):
            assert column not in query["sql"]


def test_a_search_does_not_run_from_one_field_into_the_next(reader: APIClient) -> None:
    row = request_row(request_name="cms_one_v1", prep_id="BPH-1", campaign="Run3")
    assert names(reader, search="one_V1") == names(reader, search="bph-1") == [row.request_name]
    assert names(reader, search="v1bph") == []


def test_a_search_asks_for_the_column_as_indexes_over_it_are_made(reader: APIClient, django_assert_num_queries: Any) -> None:
    row = request_row(prep_id="BPH-1")
    with django_assert_num_queries(6) as captured:  # the token's user, which requests have it, in a transaction, the page
        assert names(reader, search="bph") == [row.request_name]
    setting, search = (captured.captured_queries[index]["sql"] for index in (2, 3))
    assert setting == "SET LOCAL enable_seqscan = off"
    assert search.startswith('SELECT "requests"."id" AS "pk" FROM "requests" WHERE ')
    assert """"search_text"::text LIKE '%BPH%'""" in search


@pytest.mark.django_db(transaction=True)
def test_how_a_search_is_planned_holds_for_it_alone(reader: APIClient) -> None:
    assert names(reader, search="bph") == []
    with connection.cursor() as cursor:
        cursor.execute("SHOW enable_seqscan")
        assert cursor.fetchone() == ("on",)


def test_a_search_that_many_requests_answer_finds_all_of_them(reader: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UpperSearchFilter, "few", 2)
    rows = [request_row(prep_id="BPH-1", priority=index) for index in range(4)]
    assert names(reader, search="bph", ordering="priority") == [row.request_name for row in rows]
    assert walk(reader, search="bph", ordering="-priority", page_size=1) == [row.request_name for row in reversed(rows)]
