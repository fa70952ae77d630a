"""Samples of all requests together: what was accounted counts once in every bucket, tables stay bounded, lines have gaps where
nothing was looked at, and a chart, its JSON and its CSV have the same numbers."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from dags_app.models import BUCKETS, DAG, FRESH, Sample, StateSample
from dags_app.services import samples as writing
from dags_app.services.samples import failures_sample
from requests_app.lifecycle import sampling
from requests_app.lifecycle.sampling import samples_fold, samples_take
from requests_app.models import RequestStatus
from requests_app.selectors import samples as reading
from requests_app.selectors.samples import OTHERS, UnknownSeries, chart, series
from sites_app.models import Site
from tests.support.rest_clients import reader
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.statements import statements
from wms2.runtime import clock
from wms2.web.charts import chart_table
from wms2.web.time_range import TimeRange

__all__ = ["reader"]
pytestmark = pytest.mark.django_db
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the time: so many minutes after the start."""

    def set_to(minutes: float) -> datetime:
        moment = START + timedelta(minutes=minutes)
        for module in (writing, sampling, reading):
            monkeypatch.setattr(module.clock, "now", lambda: moment)
        return moment

    set_to(0)
    return set_to


@pytest.fixture
def dag() -> DAG:
    return dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), nodes_running=6, nodes_idle=2)


def fail(dag: DAG, site: str, code: int, times: int = 1, step: str = "GenSim") -> None:
    failures_sample(dag=dag, failed=[(clock.now(), site, step, code)] * times)


def range_of(name: str, ends: datetime) -> TimeRange:
    return TimeRange.of({"range": name}, ends)


def known(line: list[float | None]) -> list[float]:
    return [value for value in line if value]


def test_what_was_accounted_counts_once_in_every_bucket_and_after_a_crash_too(dag: DAG, at: Any) -> None:
    fail(dag, "T1_US_FNAL", 8001, 3)
    fail(dag, "T2_CH_CERN", 8001, 2)
    fail(dag, "T2_CH_CERN", 134)
    samples_fold(transaction.atomic, at(4))
    assert set(Sample.objects.values_list("seconds", flat=True)) == {FRESH}, "their bucket goes on"
    with pytest.raises(RuntimeError), transaction.atomic():
        samples_fold(transaction.atomic, at(5))
        raise RuntimeError
    for _ in range(2):
        samples_fold(transaction.atomic, at(5))
    fail(dag, "T2_CH_CERN", 134)  # committed after its bucket was added up
    Sample.objects.filter(seconds=FRESH).update(at=START)
    samples_fold(transaction.atomic, at(10))
    for seconds in BUCKETS:
        rows = Sample.objects.filter(seconds=seconds)
        assert sorted(rows.filter(by="site").values_list("site", "failures")) == [("T1_US_FNAL", 3), ("T2_CH_CERN", 4)]
        assert sorted(rows.filter(by="code").values_list("code", "failures")) == [(134, 2), (8001, 5)]
        assert [list(rows.filter(by=by).values_list("failures", flat=True)) for by in ("", "release")] == [[7], [7]]
        assert sorted(rows.filter(by="all").values_list("site", "code", "campaign", "failures")) == [
            ("T1_US_FNAL", 8001, "Campaign", 3),
            ("T2_CH_CERN", 134, "Campaign", 2),
            ("T2_CH_CERN", 8001, "Campaign", 2),
        ]


def test_a_bucket_has_so_many_groups_and_what_is_beyond_them_is_its_sites(
    dag: DAG, at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "BUCKETS", {300: (timedelta(hours=25), 3), 86_400: (None, 5)})
    for number in range(8):
        fail(dag, f"site{number % 2}", 100 + number, times=10 - number)
    samples_fold(transaction.atomic, at(5))
    for number in range(8):  # the same again: what is known is added to, the others stay their sites'
        failures_sample(dag=dag, failed=[(START, f"site{number % 2}", "GenSim", 100 + number)] * (10 - number))
    samples_fold(transaction.atomic, at(10))
    rows = Sample.objects.filter(seconds=300, by="all")
    assert sorted(rows.values_list("site", "code", "failures")) == [
        ("site0", 0, 20), ("site0", 100, 20), ("site0", 102, 16), ("site1", 0, 30), ("site1", 101, 18),
    ]  # fmt: skip
    assert Sample.objects.filter(seconds=86_400, by="all").count() == 7
    assert Sample.objects.filter(seconds=300, by="code").count() == 8, "each by itself is whole"


def test_buckets_go_when_they_have_stayed_and_days_stay(dag: DAG, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(dag, "T1_US_FNAL", 8001)
    samples_take(transaction.atomic)
    counted = StateSample.objects.count()
    monkeypatch.setattr(sampling, "REMOVED", 3)
    at(60 * 26)
    samples_take(transaction.atomic)
    assert Sample.objects.filter(seconds=300).count() == 7 - 3, "a portion of the seven groups"
    for _ in range(30):
        samples_take(transaction.atomic)
    at(60 * 24 * 40)
    for _ in range(60):
        samples_take(transaction.atomic)
    assert set(Sample.objects.values_list("seconds", flat=True)) == {86_400}
    assert set(StateSample.objects.filter(at__lt=START + timedelta(days=3)).values_list("seconds", flat=True)) == {86_400}
    assert StateSample.objects.filter(seconds=86_400, at__lt=START).count() == counted / len(BUCKETS)


def test_buckets_of_four_hours_begin_with_what_there_is_of_an_hour(dag: DAG, at: Any) -> None:
    for minute in (0, 70, 130, 300):
        at(minute)
        fail(dag, f"T2_XX_{minute % 3}", 8001, times=minute + 1)
        samples_take(transaction.atomic)
    samples_fold(transaction.atomic, at(310))
    made = import_module("dags_app.migrations.0006_samples_of_four_hours").Migration.operations[0].sql

    def rows() -> list[Any]:
        sampled = Sample.objects.filter(seconds=14_400).values_list("at", "by", "site", "code", "campaign", "failures")
        return [*sorted(sampled), *sorted(StateSample.objects.filter(seconds=14_400).values_list("at", "what", "label", "total"))]

    wanted = rows()
    for model in (Sample, StateSample):
        model.objects.filter(seconds=14_400).delete()
    with connection.cursor() as cursor:
        cursor.execute(made)
    assert rows() == wanted
    assert len({row[0] for row in wanted}) == 2


def test_lines_are_rates_and_means_with_gaps_while_nothing_was_looked_at(dag: DAG, at: Any) -> None:
    Site.objects.create(name="T1_US_FNAL", jobs_running=4)
    for minute in (0, 1, 2, 3):
        at(minute)
        DAG.objects.update(nodes_running=6 + minute)
        samples_take(transaction.atomic)
    fail(dag, "T1_US_FNAL", 8001, 2)
    fail(dag, "T2_CH_CERN", 134)
    now = at(20)  # WMS2 did not run for a quarter of an hour
    samples_take(transaction.atomic)
    times, lines = series("running", range_of("6h", now))
    assert times[-4:] == [START + timedelta(minutes=minute) for minute in (0, 5, 10, 15)]
    assert len(times) == 72
    assert lines == {"Running jobs": [*[None] * 68, 7.5, None, None, None]}
    assert known(series("running", range_of("6h", now), by="site")[1]["T1_US_FNAL"]) == [4]
    assert series("failures", range_of("6h", now))[1]["Failed attempts"][-4:] == [36, None, None, None]
    assert list(series("failures", range_of("6h", now), by="code")[1]) == ["8001", "134"]
    narrowed = series("failures", range_of("6h", now), by="code", site="T2_CH_CERN", campaign="Campaign")[1]
    assert {label: known(line) for label, line in narrowed.items()} == {"134": [12]}
    later = at(60 * 24 * 2)  # buckets of five minutes are not kept for so long
    assert series("failures", TimeRange("6h", START - timedelta(hours=5), START + timedelta(hours=1)))[0][1] == START - timedelta(
        hours=4, minutes=50
    )
    assert series("running", range_of("30d", later))[0][1] - series("running", range_of("30d", later))[0][0] == timedelta(hours=4)
    with pytest.raises(UnknownSeries, match="running is not sampled by step"):
        series("running", range_of("6h", now), step="GenSim")


def test_what_is_not_added_up_yet_is_in_the_lines_too_and_small_ones_are_added_to_others(dag: DAG, at: Any) -> None:
    for number in range(12):
        fail(dag, f"T2_XX_{number:02}", 8001, times=12 - number)
    now = at(10)
    with CaptureQueriesContext(connection) as captured:
        _, lines = series("failures", range_of("6h", now), by="site")
    assert len(statements(captured)) == 1
    assert [len(lines), *list(lines)[-2:]] == [9, "T2_XX_07", OTHERS]
    assert sum(sum(known(line)) for line in lines.values()) == 12 * sum(range(1, 13))
    samples_fold(transaction.atomic, now)
    assert series("failures", range_of("6h", now), by="site")[1] == lines


def test_a_line_that_is_called_like_the_rest_stays_by_itself(dag: DAG, at: Any) -> None:
    fail(dag, "others", 1, times=50)
    fail(dag, "not named", 1, times=40)
    fail(dag, "", 1, times=30)
    for number in range(7):
        fail(dag, f"T2_XX_{number}", 1)
    _, lines = series("failures", range_of("6h", at(10)), by="site")
    assert [(name, sum(known(line))) for name, line in lines.items()][:3] == [
        ("others", 600.0), ("not named", 480.0), ("all not named", 360.0),
    ]  # fmt: skip
    assert (list(lines)[-1], sum(known(lines["all others"]))) == ("all others", 24.0)


def test_a_chart_its_json_and_its_csv_have_the_same_numbers(dag: DAG, at: Any, reader: APIClient) -> None:
    for minute in range(0, 30, 5):
        at(minute)
        fail(dag, f"T2_XX_{minute % 3}", 8001, times=minute + 1)
        samples_take(transaction.atomic)
    drawn = chart("failures", range_of("6h", at(40)), by="site")
    body = reader.get(drawn.address).json()
    assert [line["label"] for line in body["lines"]] == [line.label for line in drawn.lines]
    assert [line["values"] for line in body["lines"]] == [line.values for line in drawn.lines]
    answer = reader.get(drawn.csv_address)
    assert answer["Content-Type"].startswith("text/csv")
    head, *rows = csv.reader(answer.content.decode().splitlines())
    assert head[1:] == [line.label for line in drawn.lines]
    table = chart_table(drawn)
    for place, row in enumerate(rows):
        assert [float(cell) if cell else None for cell in row[1:]] == [line.values[place] for line in drawn.lines]
        assert f'<time datetime="{drawn.times[place].isoformat()}">' in table
        assert row[0] == body["times"][place]
    assert max(known(drawn.lines[0].values)) == 12 * 26


def test_no_name_in_the_head_of_a_csv_is_a_formula_to_a_spreadsheet(dag: DAG, at: Any, reader: APIClient) -> None:
    for site in ("=cmd()", "+T2", "T2_OK"):
        fail(dag, site, 8001)
    samples_take(transaction.atomic)
    drawn = chart("failures", range_of("6h", at(40)), by="site")
    head = next(csv.reader(reader.get(drawn.csv_address).content.decode().splitlines()))
    assert sorted(head[1:]) == ["'+T2", "'=cmd()", "T2_OK"]


def test_a_chart_is_read_once_in_a_while_for_all_who_ask_for_the_same(
    dag: DAG, at: Any, reader: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(dag, "T1_US_FNAL", 8001)
    samples_take(transaction.atomic)
    now = at(10)
    monkeypatch.setattr(reading, "CACHED_SECONDS", 600.0)
    first = chart("failures", range_of("6h", now), by="site")
    with CaptureQueriesContext(connection) as found:
        assert chart("failures", range_of("6h", now + timedelta(seconds=1)), by="site").lines == first.lines
        assert not statements(found)
        assert chart("failures", range_of("24h", now), by="site").times != first.times
        assert chart("failures", range_of("6h", now), by="site", site="T2_NONE").lines != first.lines
        assert chart("failures", range_of("6h", now + timedelta(hours=1)), by="site").times != first.times
    assert len(statements(found)) == 3


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ("", "measure"),
        ("measure=jobs", "measure"),
        ("measure=events&range=2d", "range"),
        ("measure=events&by=code", "by"),
        ("measure=running&by=campaign&site=T1_US_FNAL", "by"),
        ("measure=events&step=GenSim", "step"),
        ("measure=events&until=yesterday", "until"),
        ("measure=events&until=0001-01-01T00:00:00Z", "until"),
        ("measure=events&format=xml", "format"),
        ("measure=events&sites=T1", "sites"),
        ("measure=events&site=T1%00", "site"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_its_name(asked: str, field: str, reader: APIClient) -> None:
    answer = reader.get(f"/api/v1/series?{asked}")
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_every_measure_can_be_asked_for_in_every_way_that_it_says(dag: DAG, at: Any, reader: APIClient) -> None:
    fail(dag, "T1_US_FNAL", 8001)
    samples_take(transaction.atomic)
    now = at(10)
    for measure, known_ in reading.MEASURES.items():
        for by in ("", *known_.by):
            for within in ({}, *({name: "x"} for name in known_.within if not (known_.state and by))):
                times, lines = series(measure, range_of("24h", now), by=by, **within)
                assert len(times) == 144
                assert all(len(line) == 144 for line in lines.values())
    assert reader.get("/api/v1/series?measure=requests&by=status&range=365d").status_code == 200
