"""Samples of how far requests are: when one is taken, what it tells, what becomes of old ones; asked for, and drawn."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGStatus
from requests_app.feed import Wanted, read
from requests_app.lifecycle import progress
from requests_app.lifecycle.progress import progress_sample
from requests_app.models import Event, Progress, ProgressSample, Request, RequestStatus, Round
from tests.support.rest_clients import reader
from tests.support.rows import dag_row, request_row, round_row, unit_row, workflow_row

__all__ = ["reader"]
pytestmark = pytest.mark.django_db
START = datetime(2026, 3, 1, 12, 0, 7, tzinfo=UTC)
S = RequestStatus


@pytest.fixture
def dag() -> DAG:
    return dag_row(workflow_row(request_row(S.ACTIVE)), total_work_units=10)


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cycle so many seconds after the start."""

    def at(seconds: float, dag: DAG | None = None, **counts: int) -> None:
        if dag is not None:
            DAG.objects.filter(pk=dag.pk).update(**counts)
        monkeypatch.setattr(progress.clock, "now", lambda: START + timedelta(seconds=seconds))
        progress_sample(transaction.atomic)

    return at


def reported(request: Request) -> list[tuple[int, int]]:
    rows = read(Wanted(("request.progress",), request), None).events
    return [(row[4]["units_done"], row[4]["jobs_running"]) for row in rows]


def test_one_sample_and_one_event_for_a_window_in_which_something_has_changed(dag: DAG, sample: Any) -> None:
    request = dag.workflow.request
    sample(0, dag, units_done=1, nodes_running=4)
    sample(20, dag, units_done=2)  # of the same window: told with the next
    sample(60)
    sample(120)  # nothing has changed
    sample(185, dag, units_done=3, nodes_running=9, nodes_idle=2)
    assert reported(request) == [(1, 4), (2, 4), (3, 9)]
    rows = ProgressSample.objects.filter(request=request).order_by("at")
    assert [(row.at - START, row.units, row.units_done) for row in rows] == [
        (timedelta(seconds=60 * minute - 7), 10, done) for minute, done in ((0, 1), (1, 2), (3, 3))
    ]
    summary = Progress.objects.get(request=request)
    assert (summary.units_done, summary.peak_running, summary.first_at, summary.at) == (3, 9, rows[0].at, rows[2].at)
    assert summary.job_seconds == 4 * 180


def test_rounds_are_added_up_and_a_rescue_counts_in_place_of_what_it_goes_on_with(dag: DAG, sample: Any) -> None:
    DAG.objects.filter(pk=dag.pk).update(units_done=6, nodes_failed=4, nodes_running=3, status=DAGStatus.PARTIAL)
    Round.objects.filter(pk=dag.round_id).update(closed_at=START)
    again = round_row(dag.workflow, 1)
    dag_row(dag.workflow, DAGStatus.PARTIAL, round=again, total_work_units=5, units_done=2)
    dag_row(dag.workflow, DAGStatus.RUNNING, round=again, total_work_units=5, units_done=4, nodes_running=1)
    sample(0)
    row = ProgressSample.objects.get()
    assert (row.units, row.units_done, row.units_failed, row.jobs_running) == (15, 10, 4, 1), "jobs only of what is live"


def test_the_end_of_a_request_is_sampled_and_then_it_is_left_alone(dag: DAG, sample: Any) -> None:
    request = dag.workflow.request
    sample(0, dag, nodes_running=5)
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.REMOVED)
    Request.objects.filter(pk=request.pk).update(status=S.ABORTED, status_since=START + timedelta(seconds=30))
    sample(60)
    assert reported(request) == [(0, 5), (0, 0)]
    DAG.objects.filter(pk=dag.pk).update(units_done=7)
    sample(3600)
    assert len(reported(request)) == 2


def test_after_a_day_samples_become_means_and_after_a_month_only_the_summary_is_left(dag: DAG, sample: Any) -> None:
    for minute in range(25):
        sample(60 * minute, dag, units_done=minute % 10, nodes_running=minute)
    before = Progress.objects.values().get()
    sample(86_400 + 600)
    means = list(ProgressSample.objects.filter(mean=True).order_by("at").values_list("at__minute", "units_done", "jobs_running"))
    assert means == [(0, 9, 5)], "10 minutes: units as at their end, jobs on average of 0 to 9"
    assert ProgressSample.objects.filter(mean=False).count() == 15
    for _ in range(2):  # again, nothing happens twice
        sample(86_400 + 1800)
    assert list(ProgressSample.objects.order_by("at").values_list("at__minute", "mean")) == [(0, True), (10, True), (20, True)]
    sample(86_400 * 32)
    assert not ProgressSample.objects.exists()
    assert Progress.objects.values().get() == before


def test_what_the_feed_told_of_progress_goes_with_its_samples_and_nothing_else_does(dag: DAG, sample: Any) -> None:
    request = dag.workflow.request
    for minute in range(12):
        sample(60 * minute, dag, units_done=minute)
    with connection.cursor() as cursor:  # as if each had been told when it was sampled, a little later
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE events DISABLE TRIGGER events_stay")
        cursor.execute(
            "UPDATE events SET at = (data->>'at')::timestamptz + interval '40 seconds' WHERE kind = 'request.progress'"
        )
        cursor.execute("UPDATE events SET at = %s WHERE kind <> 'request.progress'", [START])
    others = Event.objects.exclude(kind="request.progress").count()
    begin = read(Wanted(), None).events[0][0]
    sample(86_400 + 600)
    assert reported(request) == [(11, 0)]
    assert Event.objects.exclude(kind="request.progress").count() == others
    assert len(read(Wanted(), begin - 1).events) == others + 1, "no reader is told that it has missed events"


def test_it_is_there_over_rest_and_as_an_image_with_its_numbers(dag: DAG, sample: Any, reader: APIClient) -> None:
    name = dag.workflow.request.request_name
    unit_row(dag)
    path, browser = f"/api/v1/requests/{name}/progress", Client()
    browser.force_login(User.objects.get(username="rita"))
    assert reader.get(path).json() == {"summary": None, "samples": []}
    assert "nothing is sampled yet" in browser.get(f"/requests/{name}/progress.svg").content.decode()
    for minute in range(4):
        sample(60 * minute, dag, units_done=2 * minute, nodes_running=8 - minute)
    body = reader.get(path).json()
    assert [row["units_done"] for row in body["samples"]] == [0, 2, 4, 6]
    assert (body["summary"]["units_done"], body["summary"]["peak_running"]) == (6, 8)
    image = browser.get(f"/requests/{name}/progress.svg")
    assert image["Content-Type"] == "image/svg+xml"
    text = image.content.decode()
    assert "6 of 10 work units done" in text
    assert re.findall(r'points="([^"]*)"', text)[1].endswith("600,72.0 600,48.0"), "60 % at the end"
    page = browser.get(f"/requests/{name}/").content.decode()
    course = reader.get(f"/api/v1/requests/{name}/series?measure=done").json()
    assert [line["values"] for line in course["lines"]] == [[0, 2, 4, 6], [10] * 4]
    assert [mark["label"] for mark in course["marks"]] == ["round 0"]
    for at in course["times"]:
        assert f'<time datetime="{at.replace("Z", "+00:00")}">' in page
    assert reader.get(f"/api/v1/requests/{name}/series?measure=rate").json()["lines"][0]["values"] == [None, 120, 120, 120]
    jobs = reader.get(f"/api/v1/requests/{name}/series?measure=jobs&format=csv").content.decode().splitlines()
    assert (jobs[0], [line.split(",")[1] for line in jobs[1:]]) == ("at,running,idle,held", ["8", "7", "6", "5"])
