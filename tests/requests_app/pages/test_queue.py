"""The queue as a page: its order, the reasons, expected starts, and what another priority would do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from requests_app.limits import limit_set
from requests_app.models import Request, RequestStatus
from tests.support.html import links, text
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.statements import statements_of

pytestmark = pytest.mark.django_db
S = RequestStatus
PAGE = "/operations/queue/"


@pytest.fixture
def queued(db: Any) -> list[Request]:
    """Three behind a full slot; one that has waited long, one that is urgent."""
    limit_set(name="max_active_dags", value=1, actor="t", reason="t")
    limit_set(name="admission_aging_per_hour", value=10, actor="t", reason="t")
    dag_row(workflow_row(request_row(S.ACTIVE)))
    now = timezone.now()
    waited = request_row(S.QUEUED, priority=100, campaign="Run3", queued_at=now - timedelta(hours=20))
    return [
        request_row(S.QUEUED, priority=1, urgent=True, queued_at=now),
        waited,
        request_row(S.QUEUED, priority=200, queued_at=now),
    ]


def said(client: Client, query: str = "", part: str | None = None, status: int = 200) -> str:
    response = client.get(f"{PAGE}{query}")
    assert response.status_code == status, response.content[:500]
    return text(response.content.decode(), part)


def test_it_shows_the_order_with_the_reason_of_each_place_and_what_keeps_it(reader: Client, queued: list[Request]) -> None:
    pausing = request_row(
        S.QUEUED, next_attempt_at=timezone.now() + timedelta(hours=1), failed_attempts=2, last_error="no schedd"
    )
    assert 'href="/operations/queue/"' in reader.get("/operations/").content.decode()
    html = reader.get(PAGE).content.decode()
    found = [link.split("/")[2] for link in links(html, "part-rows") if link.startswith("/requests/")]
    assert found == [row.request_name for row in [*queued, pausing]]
    rows = text(html, "part-rows")
    for words in (
        "3 requests in order",
        "1 of 1 slots in use",
        "urgent",
        "priority 100, 300 by waiting",
        "its turn for a DAG slot",
    ):
        assert words in rows, rows
    assert "not known: no slot in all became free in the last 24 hours" in rows
    assert "after 2 failures: no schedd" in rows


def test_what_another_priority_would_do_is_shown_and_nothing_is_changed(
    reader: Client, operator: Client, queued: list[Request]
) -> None:
    _, waited, last = queued
    asked = f"?request={last.request_name}&priority=5000"
    tried = said(reader, asked, "part-tried")
    assert "It would have place 2 in place of 3" in tried
    assert waited.request_name in tried and "2 → 3" in tried
    assert "Nothing would change" in said(reader, f"?request={last.request_name}&priority=201", "part-tried")
    limit_set(name="max_active_dags", value=3, actor="t", reason="t")
    assert "It would start with the next pass" in said(reader, asked, "part-tried")

    change = [link for link in links(operator.get(f"{PAGE}{asked}").content.decode(), "part-tried") if "/verb/priority/" in link]
    assert len(change) == 1 and "to.priority=5000" in change[0]
    assert 'value="5000"' in operator.get(change[0]).content.decode()
    assert "/verb/" not in reader.get(f"{PAGE}{asked}").content.decode()
    assert Request.objects.get(pk=last.pk).priority == 200


def test_a_wrong_trial_is_said(reader: Client, queued: list[Request]) -> None:
    running = Request.objects.get(status=S.ACTIVE).request_name
    assert f"{running} is not queued" in said(reader, f"?request={running}&priority=1", status=400)
    assert "priority:" in said(reader, f"?request={running}&priority=high", status=400)
    assert "page:" in said(reader, "?page=0", status=400)


def test_its_lists_are_had_as_json_and_csv(reader: Client, queued: list[Request]) -> None:
    rows = reader.get(f"{PAGE}?format=json").json()["queue"]
    assert [(row["place"], row["request_name"]) for row in rows] == [(n, row.request_name) for n, row in enumerate(queued, 1)]
    assert rows[1]["waits_for"] == "its turn for a DAG slot"
    asked = f"?request={queued[2].request_name}&priority=5000"
    [csv] = [link for link in links(reader.get(f"{PAGE}{asked}").content.decode(), "part-tried") if link.endswith("format=csv")]
    head, own, other = reader.get(f"{PAGE}{csv}").content.decode().splitlines()
    assert head.startswith("request_name,place_before,place,")
    assert own.startswith(f"{queued[2].request_name},3,2,") and other.startswith(f"{queued[1].request_name},2,3,")


def test_it_costs_the_same_with_a_long_queue(operator: Client, queued: list[Request]) -> None:
    paths = (PAGE, f"{PAGE}?request={queued[2].request_name}&priority=5000")
    before = [len(statements_of(operator, path)) for path in paths]
    for number in range(30):
        request_row(S.QUEUED, priority=number)
    assert [len(statements_of(operator, path)) for path in paths] == before
    assert before == [8, 8]
