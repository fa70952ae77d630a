"""Failures as rows: the failure log is read on from where it was read to, counted by group, and kept bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Sum

from dags_app.models import DAG, FailedInputFile, FailureGroup, FailureLog, FailureSample, Sample, WorkUnit
from dags_app.services import failures
from dags_app.services.failures import failures_sweep, failures_without_success
from dags_app.services.units import units_fail
from requests_app.models import RequestStatus
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from tests.support.scene_failures import line

pytestmark = pytest.mark.django_db


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    return dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), submit_dir=str(tmp_path), fence=1)


def log(dag: DAG) -> Path:
    return Path(dag.submit_dir) / "failures.jsonl"


def write(dag: DAG, *lines: dict[str, Any] | str) -> None:
    with log(dag).open("a") as stream:
        for one in lines:
            stream.write(one if isinstance(one, str) else json.dumps(one) + "\n")


def groups() -> list[tuple[Any, ...]]:
    return list(FailureGroup.objects.order_by("id").values_list("category", "code", "site", "step", "attempts", "given_up"))


def test_without_a_log_nothing_has_failed(dag: DAG) -> None:
    assert failures_sweep(dag) == 0
    assert not FailureLog.objects.exists()


def test_like_failures_are_one_group_and_each_is_counted_once(dag: DAG) -> None:
    write(dag, line(), line(attempt=1, final=True), line(site="T2_CH_CERN"), line(category="data", code=8021))
    assert failures_sweep(dag) == 4
    assert failures_sweep(dag) == 0
    write(dag, line(node="proc_000001"))
    assert failures_sweep(dag) == 1
    assert groups() == [
        ("transient", 8001, "T1_US_FNAL", "Gen", 3, 1),
        ("transient", 8001, "T2_CH_CERN", "Gen", 1, 0),
        ("data", 8021, "T1_US_FNAL", "Gen", 1, 0),
    ]
    assert FailureLog.objects.get().attempts == 5
    sampled = Sample.objects.order_by().values_list("code", "site", "campaign").annotate(Sum("failures"))
    assert sorted(sampled) == [
        (8001, "T1_US_FNAL", "Campaign", 3), (8001, "T2_CH_CERN", "Campaign", 1), (8021, "T1_US_FNAL", "Campaign", 1),
    ]  # fmt: skip


def test_what_was_done_after_each_attempt_is_counted_as_recorded(dag: DAG) -> None:
    gone = line(action="other_site", attempt=2, final=True)
    write(dag, line(), line(attempt=1), gone, line(node="proc_000001", attempt=3, final=True))
    failures_sweep(dag)
    assert FailureGroup.objects.get().actions == {"retry": 2, "other_site": 1, "used_up": 1}


def test_a_unit_that_gives_up_has_the_cause_of_it_and_keeps_it_when_its_round_ends(dag: DAG) -> None:
    unit, other = unit_row(dag, 0), unit_row(dag, 1)
    write(dag, line(unit=unit.name), line(unit=unit.name, attempt=1, final=True, reason="exit code 8001 in Gen: no such field"))
    failures_sweep(dag)
    units_fail(units=[unit, other], problem="rescue attempts used up")
    assert list(WorkUnit.objects.order_by("index").values_list("problem", flat=True)) == [
        "exit code 8001 in Gen: no such field; rescue attempts used up",
        "rescue attempts used up",
    ]


def test_a_line_that_is_still_being_written_waits_for_the_next_sweep(dag: DAG) -> None:
    whole = json.dumps(line()) + "\n"
    write(dag, whole[:40])
    assert failures_sweep(dag) == 0
    write(dag, whole[40:])
    assert failures_sweep(dag) == 1


def test_the_three_newest_failures_of_a_group_are_kept_with_their_logs(dag: DAG) -> None:
    for number in range(7):
        write(dag, line(job_id=f"{number}.0", log_tail=f"end {number}\x00"))
        if number % 2:
            failures_sweep(dag)
    failures_sweep(dag)
    assert list(FailureSample.objects.order_by("id").values_list("job_id", "log_tail")) == [
        ("4.0", "end 4"),
        ("5.0", "end 5"),
        ("6.0", "end 6"),
    ]


def test_a_damaged_line_is_told_and_the_others_are_counted(dag: DAG) -> None:
    write(dag, line(), "{not json\n", json.dumps(line() | {"category": "odd"}) + "\n", line(attempt=1))
    assert failures_sweep(dag) == 2
    assert groups()[0][4] == 2
    assert "cannot be read" in FailureLog.objects.get().problem


def test_what_the_database_cannot_hold_does_not_stop_the_counting(dag: DAG) -> None:
    odd = "a\x00b\ud800"
    write(dag, line(reason=odd, message=odd, step=odd, site=odd, rule=odd, log_tail=odd), line(code=2**40), line(code=8002))
    assert failures_sweep(dag) == 2
    assert [group[:4] for group in groups()] == [("transient", 8001, "ab?", "ab?"), ("transient", 8002, "T1_US_FNAL", "Gen")]
    assert "code" in FailureLog.objects.get().problem


def test_a_file_or_a_site_that_is_none_does_not_stop_the_counting(dag: DAG) -> None:
    names = ["/store/a.root", "/store/b\x00.root", f"/store/{'x' * 800}.root"]
    write(dag, line(category="data", code=8021, site="T2\x00\ud800", bad_input_files=names))
    assert failures_sweep(dag) == 1
    assert set(FailedInputFile.objects.values_list("lfn", "site")) == {("/store/a.root", "T2?"), ("/store/b.root", "T2?")}


def test_a_log_that_became_shorter_is_told_and_not_counted_again(dag: DAG) -> None:
    write(dag, line(), line(attempt=1))
    failures_sweep(dag)
    log(dag).write_text(json.dumps(line()) + "\n")
    assert failures_sweep(dag) == 0
    assert groups()[0][4] == 2
    assert "replaced or cut" in FailureLog.objects.get().problem


def test_a_large_log_is_read_in_portions(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(json.dumps(line())) + 1
    monkeypatch.setattr(failures, "PORTION_BYTES", 2 * size + 10)
    write(dag, *(line() for _ in range(5)))
    assert [failures_sweep(dag) for _ in range(4)] == [2, 2, 1, 0]


def test_a_rescue_goes_on_in_the_same_log_and_its_failures_are_its_own(dag: DAG) -> None:
    write(dag, line())
    failures_sweep(dag)
    DAG.objects.filter(pk=dag.pk).update(status="partial")
    rescue = dag_row(
        dag.workflow, kind="failure_rescue", parent_dag=dag, round=dag.round, directory_id=dag.directory_id,
        submit_dir=dag.submit_dir, fence=2,
    )  # fmt: skip
    write(dag, line(fence=2, job_id="9.0"))
    assert failures_sweep(rescue) == 1
    assert dict(FailureSample.objects.values_list("job_id", "dag_id")) == {"7.0": dag.pk, "9.0": rescue.pk}


def test_bad_input_files_are_kept_once_with_the_newest_failure(dag: DAG) -> None:
    bad = {"category": "data", "code": 8021, "bad_input_files": ["/store/a.root", "/store/b.root"]}
    write(dag, line(**bad), line(**bad | {"bad_input_files": ["/store/a.root"], "site": "T2_CH_CERN"}))
    failures_sweep(dag)
    assert list(FailedInputFile.objects.values_list("lfn", "attempts", "site")) == [
        ("/store/a.root", 2, "T2_CH_CERN"),
        ("/store/b.root", 1, "T1_US_FNAL"),
    ]


def test_more_kinds_of_failures_than_are_kept_apart_are_counted_together(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_GROUPS", 3)
    write(dag, *(line(step=f"Step{number}") for number in range(6)))
    failures_sweep(dag)
    assert [group[3:5] for group in groups()] == [("Step0", 1), ("Step1", 1), ("Step2", 1), ("", 3)]


def test_attempts_that_only_waited_are_no_failures_of_all(dag: DAG) -> None:
    write(dag, line(category="infrastructure", code=95103, rule="held-idle"), line(), line(fence=2))
    assert failures_without_success(dag) == 1
