"""The part *Rounds* of a request's page: round against round, decisions in words, what steps measured."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from dags_app.models import DAG, DAGKind, DAGStatus, FailureCategory, FailureGroup, SizingDecision
from requests_app.models import Request, RequestStatus
from requests_app.pages.rounds import MOST_ROUNDS
from tests.support.html import links, text
from tests.support.rows import dag_row, generation_spec, request_row, round_row, unit_row, workflow_row
from tests.support.scene_rounds import adaptive_request, measured, round_next, three_rounds

pytestmark = pytest.mark.django_db
PART = "part-rounds"


def html_of(client: Client, request: Request) -> str:
    response = client.get(f"/requests/{request.request_name}/")
    assert response.status_code == 200, response.content[:500]
    return response.content.decode()


def said(client: Client, request: Request) -> str:
    return text(html_of(client, request), PART)


def lines(html: str) -> list[str]:
    """The rows of the first table of the part."""
    table = html[html.index(f'id="{PART}"') :].split("<tbody>")[1].split("</tbody>")[0]
    return [text(f"<p>{row}</p>") for row in table.split("<tr>")[1:]]


def test_rounds_are_compared_line_by_line(reader: Client) -> None:
    first, second, third = lines(html_of(reader, three_rounds()))
    assert re.match(r"0 1 of 1 8 8 16,000 MB \d,\d+ MB Reco 500 43 min, 52 min 240\.0 MB \d+% [\d.]+$", first)
    assert re.match(r"1 10 of 10 \d+ 4 [\d,]+ MB 6,\d+ MB GenSim [\d,]+ \d h \d+ min, \d h \d+ min [\d.]+ GB \d+% \d+$", second)
    assert third.startswith("2 0 of 40 ")
    assert third.count("not yet") == 1


def test_decisions_of_the_newest_dag_are_told_with_before_chosen_measured_and_why(reader: Client) -> None:
    html = html_of(reader, three_rounds())
    reported = text(html, "round-decisions")
    assert "Why round 2 is sized as it is" in reported
    assert reported.endswith("Why those before are sized as they are is listed by the REST interface.")
    assert re.search(r"cores of a job 8 4 [\d.]+ cores busy [\d.]+ of 8 cores are kept busy pinned", reported)
    assert re.search(r"memory of a job \w+ 16,000 [\d,]+ MB [\d,]+ MB p95 of \w+ \+ 20%, [\d,]+ MB a core", reported)
    assert re.search(r"jobs per work unit 8 \d+ [\d.]+ MB a job /PrimaryTTTo2L2Nu/Era-Proc-v1/AODSIM merges to", reported)


def test_what_a_bound_did_is_told_and_an_unknown_number_is_shown_by_its_name(reader: Client) -> None:
    request = adaptive_request()
    dag = round_next(request, units=1)
    assert "Why those before" not in html_of(reader, request)
    SizingDecision.objects.all().delete()
    common = {"dag": dag, "why": "<b>because</b>"}
    SizingDecision.objects.create(what="memory_mb", before=2000, chosen=2000, bound="default_memory_per_core_mb", **common)
    SizingDecision.objects.create(what="new_number", chosen=0.0213, measured=12, task=2, **common)
    html = html_of(reader, request)
    reported = text(html, "round-decisions")
    assert "memory of a job the same 2,000 MB <b>because</b>; bounded by default_memory_per_core_mb" in reported
    assert "new number task 2 the same 0.0213 12 <b>because</b>" in reported
    assert "<b>because" not in html


def test_a_rescue_is_named(reader: Client) -> None:
    request = adaptive_request()
    dag = round_next(request, units=1)
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.PARTIAL)
    sizes = {"memory_mb": {"1": 18_000}}
    rescue = dag_row(request.workflow, kind=DAGKind.FAILURE_RESCUE, parent_dag=dag, round=dag.round, sizes=sizes)
    SizingDecision.objects.create(dag=rescue, what="memory_mb", before=16_000, chosen=18_000, why="p95 of Reco + 20%")
    html = html_of(reader, request)
    assert "Why round 0, rescue after failures, is sized as it is" in text(html, "round-decisions")
    assert "18,000 MB" in lines(html)[0]  # what its jobs ask for now


def test_steps_tell_what_their_jobs_measured_and_what_failed(reader: Client) -> None:
    request = three_rounds()
    group = {"workflow": request.workflow, "category": FailureCategory.TRANSIENT, "code": 50660, "step": "Reco"}
    at = request.created_at
    FailureGroup.objects.create(**group, attempts=5, rounds={"0": 2, "1": 3}, first_at=at, last_at=at)
    reported = text(html_of(reader, request), "round-steps")
    assert reported.index("GenSim 1 4 × 1 ") < reported.index("GenSim 0 1 × 8 8")
    assert re.search(r"Reco 1 1 × 4 \d+ .*? AODSIM 61\.0 KB 3 with code 50660", reported)
    assert re.search(r"GenSim 0 1 × 8 8 [\d,]+, [\d,]+ MB 3\.\d+, 4\.\d+ 14% 100% RAWSIMoutput 700\.0 KB Reco 0", reported)


def test_an_adaptive_request_tells_what_is_waited_for(reader: Client) -> None:
    request = adaptive_request(RequestStatus.QUEUED)
    assert "No round is planned yet. The first one is small" in said(reader, request)
    round_next(request, units=1)
    reported = said(reader, request)
    assert "Nothing is measured yet: that comes with the first work unit that is done." in reported
    assert "adaptive: each is sized by what those before measured" in reported
    assert "What jobs measured" not in reported


def test_another_request_shows_them_once_something_is_measured(reader: Client) -> None:
    request = adaptive_request(adaptive=False)
    dag = round_next(request, units=1)
    assert PART not in html_of(reader, request)
    measured(dag.round, "GenSim", seconds=1900, cores=1.1, rss_mb=2300, events=500)
    assert "sized as the request asks" in said(reader, request)


def test_another_request_shows_them_once_there_are_two(reader: Client) -> None:
    workflow = workflow_row(request_row(RequestStatus.ACTIVE))
    first = dag_row(workflow, DAGStatus.PARTIAL)
    unit_row(first, 0, state="failed", events=800)
    assert PART not in html_of(reader, workflow.request)
    workflow.rounds.update(closed_at=first.created_at)
    unit_row(dag_row(workflow, round=round_row(workflow, 1)), 0, events=800)
    reported = lines(html_of(reader, workflow.request))
    assert reported[0].startswith("0 0 of 0 1 given up 8 1 2,000 MB not yet")
    assert reported[1].startswith("1 0 of 1 8 1 2,000 MB not yet")


def test_of_many_rounds_the_newest_are_shown_at_the_same_cost(reader: Client, django_assert_num_queries: Any) -> None:
    request = request_row(RequestStatus.ACTIVE, adaptive=True)
    workflow_row(request, generation_spec(request.request_name))
    for _ in range(MOST_ROUNDS + 3):
        dag = round_next(request, units=1, done=1)
        measured(dag.round, "GenSim", seconds=90, cores=1, rss_mb=900, events=100, threads=1)
        reader.get(f"/requests/{request.request_name}/")  # counts its account
        with django_assert_num_queries(7):
            html = html_of(reader, request)
    assert [line.split()[0] for line in lines(html)] == [str(index) for index in range(3, MOST_ROUNDS + 3)]
    assert f"/api/v1/workflows/{request.workflow.pk}/rounds" in links(html, PART)
