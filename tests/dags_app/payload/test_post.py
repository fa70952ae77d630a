"""The POST script: its verdicts, its side files, and what collect takes from them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dags_app.payload.contract.failure_log import read_failures
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import Attempt, Workbench

FAIL = "exitCode=8001"


def failing(bench: Workbench, attempt: int, effect_request: str) -> Attempt:
    bench.variables["CMSSIM_FAIL"] = effect_request
    return bench.run("job", "proc_000000", attempt)


def test_a_failed_attempt_is_recorded_with_the_whole_code_and_retried(one_step: Workbench) -> None:
    done = failing(one_step, 0, "exitCode=8021,untilAttempt=1")
    assert done.value == 8021 % 256
    assert one_step.post(done) == 1
    post = one_step.read("proc_000000.post.json")
    validate("post", post)
    assert (post["attempt"], post["final"], post["fence"], post["job_id"]) == (0, False, 1, f"{done.cluster}.0")
    assert (post["job"]["exit_code"], post["job"]["return_value"], post["job"]["site"]) == (8021, 85, "T1_US_FNAL")
    assert (post["job"]["wall_time_sec"], post["job"]["cpu_time_sec"], post["job"]["memory_mb"]) == (7.0, 3.0, 44)
    assert post["cmssw"]["steps"] == {"Gen": {"status": 1, "exit_code": 8021}}
    assert "SimulatedFailure" in post["cmssw"]["error_message"]
    assert post["classification"]["action"] == "retry"

    again = one_step.run("job", "proc_000000", 1)
    assert one_step.post(again) == 0
    lines = [json.loads(line) for line in (one_step.place / "proc_000000.attempts.jsonl").read_text().splitlines()]
    assert [(line["attempt"], line["classification"]["category"], line["final"]) for line in lines] == [
        (0, "infrastructure", False),
        (1, "success", True),
    ]
    for line in lines:
        validate("post", line)


def test_the_last_attempt_is_final_and_a_post_that_runs_twice_is_recorded_once(one_step: Workbench) -> None:
    done = failing(one_step, 3, FAIL)
    assert [one_step.post(done), one_step.post(done)] == [1, 1]
    assert one_step.read("proc_000000.post.json")["final"] is True
    assert len((one_step.place / "proc_000000.attempts.jsonl").read_text().splitlines()) == 1


def test_an_error_that_no_repetition_changes_stops_the_node(one_step: Workbench) -> None:
    (one_step.dag / "job.json").write_text((one_step.dag / "job.json").read_text().replace("step1_Gen.py", "absent.py"))
    done = one_step.run("job", "proc_000000")
    assert one_step.post(done) == 42
    post = one_step.read("proc_000000.post.json")
    assert (post["final"], post["classification"]["category"], post["job"]["exit_code"]) == (True, "permanent", 7001)


def test_the_end_of_stderr_is_kept(one_step: Workbench) -> None:
    done = failing(one_step, 0, FAIL)
    (one_step.place / "proc_000000.0.err").write_text("\n".join(f"line {number}" for number in range(1000)))
    one_step.post(done)
    tail = one_step.read("proc_000000.post.json")["log_tail"].splitlines()
    assert (len(tail), tail[-1]) == (200, "line 999")


def judge_again(unit: Workbench, job_id: str | None = None) -> tuple[int, dict[str, Any]]:
    """POST of the first node's attempt once more, as if the job ended with 0; its status and post.json."""
    status = unit.settled("post", "proc_000000", 0, 0, 3, job_id or unit.read("proc_000000.post.json")["job_id"])
    return status, unit.read("proc_000000.post.json")


def test_a_job_without_a_report_is_no_success(done_unit: Workbench) -> None:
    (done_unit.place / "proc_000000.0.report.json").unlink()
    status, post = judge_again(done_unit)
    assert status == 1
    assert post["report"] is None and post["cmssw"] is None and "no usable report" in post["classification"]["reason"]
    validate("post", post)


def test_a_torn_report_is_no_success(done_unit: Workbench) -> None:
    path = done_unit.place / "proc_000000.0.report.json"
    path.write_text(path.read_text()[:200])
    assert judge_again(done_unit)[0] == 1


def test_the_report_of_an_earlier_job_with_the_same_attempt_number_does_not_count(done_unit: Workbench) -> None:
    """After a rescue DAGMan counts from 0 again; here the new job left no report."""
    earlier = done_unit.read("proc_000000.post.json")["job_id"]
    status, post = judge_again(done_unit, "999.0")
    assert status == 1
    assert f"is of job {earlier}" in post["classification"]["reason"]


def test_a_job_that_was_never_submitted_is_recorded_and_retried(one_step: Workbench) -> None:
    assert one_step.settled("post", "proc_000000", -1001, 0, 3, "-1.-1") == 1
    post = one_step.read("proc_000000.post.json")
    validate("post", post)
    assert post["job"]["return_value"] == -1001
    assert post["classification"]["category"] == "infrastructure" and "no job was submitted" in post["classification"]["reason"]


def test_a_verdict_that_no_rules_are_there_for_is_told_in_the_failure_log(one_step: Workbench) -> None:
    done = failing(one_step, 0, FAIL)
    (one_step.dag / "rules.json").write_text('{"schema": "wms2.rul')
    assert one_step.post(done) == 1
    (reported,) = read_failures(one_step.dag / "failures.jsonl")
    assert (reported["unit"], reported["node"]) == ("mg_000000", "proc_000000") and "rules.json" in reported["message"]


@pytest.fixture
def unit(done_unit: Workbench) -> Workbench:
    """A unit whose two processing nodes are done."""
    return done_unit


def test_collect_gathers_the_accepted_report_of_every_node(unit: Workbench) -> None:
    assert unit.script("collect") == 0
    document = unit.read("merge_input.json")
    validate("merge_input", document)
    assert [report["node"] for report in document["reports"]] == ["proc_000000", "proc_000001"]


def test_collect_takes_the_attempt_that_post_accepted_and_not_the_highest_number(unit: Workbench) -> None:
    stale = unit.read("proc_000000.0.report.json") | {"attempt": 2, "job_id": "1.0"}
    (unit.place / "proc_000000.2.report.json").write_text(json.dumps(stale))
    assert unit.script("collect") == 0
    assert unit.read("merge_input.json")["reports"][0]["attempt"] == 0


def other_job(unit: Workbench) -> None:
    late = unit.read("proc_000000.0.report.json") | {"job_id": "1.0"}
    (unit.place / "proc_000000.0.report.json").write_text(json.dumps(late))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda unit: (unit.place / "proc_000001.post.json").unlink(), "proc_000001.post.json: no such file"),
        (lambda unit: (unit.place / "proc_000001.0.report.json").unlink(), "proc_000001.0.report.json: no such file"),
        (lambda unit: (unit.place / "site.inc").write_text("ELECTED_SITE = T2_CH_CERN\n"), "but the unit is at T2_CH_CERN"),
        (lambda unit: unit.post(failing(unit, 0, FAIL)), "proc_000000: its last attempt did not end well"),
        (other_job, "expected 101.0, the job whose end proc_000000.post.json judges"),
    ],
    ids=["no verdict", "no report", "other site", "failed", "another job's report"],
)
def test_collect_fails_clearly(unit: Workbench, spoil: Any, message: str) -> None:
    spoil(unit)
    assert unit.script("collect") == 1
    assert message in (unit.place / "scripts.log").read_text()
    assert not (unit.place / "merge_input.json").exists()
    reported = list(read_failures(unit.dag / "failures.jsonl"))[-1]
    validate("failure", reported)
    assert (reported["node"], reported["role"], reported["step"]) == ("merge", "merge", "collect")
    assert message in reported["message"], "DAGMan runs no POST script after a PRE script that failed"


def test_a_merge_counts_only_with_the_manifest_it_wrote_in_this_submission(unit: Workbench) -> None:
    assert unit.script("collect") == 0
    unit.process("merge", "merge")
    first = (unit.place / "merge_output.json").read_text()

    unit.stamp(2)
    done = unit.run("merge", "merge")
    second = (unit.place / "merge_output.json").read_text()
    (unit.place / "merge_output.json").write_text(first)
    assert unit.post(done) == 1
    assert "not of this merge job" in unit.read("merge.post.json")["classification"]["reason"]

    (unit.place / "merge_output.json").unlink()
    assert unit.post(done) == 1
    (unit.place / "merge_output.json").write_text(second[:300])
    assert unit.post(done) == 1

    (unit.place / "merge_output.json").write_text(second)
    unit.stamp(3)
    assert unit.post(done) == 1
    assert "fence 2, the current submission has 3" in unit.read("merge.post.json")["classification"]["reason"]
    unit.stamp(2)
    assert unit.post(done) == 0


def test_a_defect_in_a_script_leaves_its_traceback(done_unit: Workbench) -> None:
    (done_unit.place / "cluster.log").unlink()
    (done_unit.place / "cluster.log").mkdir()
    assert done_unit.script("post", "proc_000000", 0, 0, 3, "1.0") == 1
    assert "Traceback" in (done_unit.place / "scripts.log").read_text()
