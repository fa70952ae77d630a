"""What a POST script does about a failure: cool-off by deferral, more memory, another site, the end of a DAG that fails alike."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from dags_app.payload.contract import codes, files
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.rules import Limits, RuleBook
from dags_app.payload.post.post import run_post
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import shipped_rules
from tests.support.places import ROOT

BAD = "/store/data/A.root"
OPENED = f"Initiating request to open file root://eos//{BAD}\nSuccessfully opened file root://eos//{BAD}"
GONE = f"root://eos//{BAD}: no such file or directory"


@dataclass
class Dag:
    """A DAG directory with nothing in it but what POST scripts read; jobs are told, not run."""

    root: Path
    fence: int = 1
    jobs: int = 100

    def limits(self, **changes: int) -> None:
        values = {"cooloff_seconds": 60, "max_memory_per_core_mb": 3000, "same_error_units": 0, **changes}
        (self.root / "rules.json").write_text(json.dumps(to_json(RuleBook(shipped_rules(), Limits(**values)))))

    def unit(self, index: int = 0, sites: str = "T1_US_FNAL,T2_CH_CERN") -> Path:
        place = self.root / f"mg_{index:06d}"
        if not place.exists():
            place.mkdir()
            lines = [f'VARS landing sites="{sites}"', "JOB proc_000000 ../proc.sub", "JOB proc_000001 ../proc.sub"]
            (place / "group.dag").write_text("\n".join([*lines, "JOB merge ../merge.sub"]) + "\n")
            (place / "memory.inc").write_text("")
            (place / "avoid.inc").write_text("UNIT_AVOID =\n")
            (place / "site.inc").write_text("ELECTED_SITE = T1_US_FNAL\n")
            file = {"lfn": BAD, "size_bytes": 1, "events": 5, "first_event": None, "last_event": None, "parents": []}
            job = {"node": "proc_000000", "events": 5, "generate": None, "files": [file], "mask": None}
            unit = {"schema": "wms2.unit/1", "unit": place.name, "index": index, "jobs": [job]}
            (place / "unit.json").write_text(json.dumps(unit))
        return place

    def fails(self, code: int, attempt: int = 0, unit: int = 0, node: str = "proc_000000", message: str = "no") -> list[int]:
        """A job ends with a report of ``code``; every exit status of its POST script until it stops deferring."""
        self.jobs += 1
        place = self.unit(unit)
        report = {
            "schema": "wms2.report/1", "node": node, "attempt": attempt, "fence": self.fence, "job_id": f"{self.jobs}.0",
            "unit": place.name, "role": "processing", "site": "T1_US_FNAL", "host": "h", "schedd": "s", "exit_code": code,
            "exit_step": "Reco", "error_message": message, "steps": [], "processed": {"events": 0, "lumis": {}, "files": []},
            "outputs": [], "cgroup_peak_mb": None,
        }  # fmt: skip
        (place / f"{node}.{attempt}.report.json").write_text(json.dumps(report))
        return self.post(place, node, code & 0xFF, attempt, f"{self.jobs}.0")

    def post(self, place: Path, node: str, value: int, attempt: int, job_id: str) -> list[int]:
        statuses: list[int] = []
        while not statuses or (statuses[-1] == codes.POST_CALL_AGAIN and len(statuses) < 50):
            statuses.append(run_post(place, node, value, attempt, 3, job_id))
        return statuses

    def record(self, unit: int = 0, node: str = "proc_000000") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.unit(unit) / f"{node}.post.json").read_text())
        validate("post", found)
        return found

    def failures(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.root / "failures.jsonl").read_text().splitlines()]
        for line in lines:
            validate("failure", line)
        return lines


@pytest.fixture
def dag(tmp_path: Path) -> Dag:
    made = Dag(tmp_path)
    made.limits()
    (tmp_path / "avoid.inc").write_text("DAG_AVOID = \n")
    (tmp_path / "fence.dag.inc").write_text('VARS ALL_NODES My.WMS2_Fence="1"\n')
    for name, memory in (("proc", 2000), ("merge", 1000)):
        (tmp_path / f"{name}.sub").write_text(f"request_cpus = 1\nrequest_memory = $(MEMORY_$(JOB):{memory})\n")
    return made


def test_a_transient_failure_cools_off_by_deferral_twice_as_long_each_time(dag: Dag) -> None:
    assert dag.fails(8001, attempt=0) == [44, 1]
    assert dag.fails(8001, attempt=1) == [44, 44, 1]
    assert dag.fails(8001, attempt=2) == [44, 44, 44, 44, 1]
    assert dag.fails(8001, attempt=3) == [1], "nothing follows the last attempt"
    assert [line["final"] for line in dag.failures()] == [False, False, False, True]
    assert dag.record()["final"] is True
    assert not list(dag.unit().glob("*.cooloff.json"))


def test_while_it_cools_off_nothing_is_recorded_again(dag: Dag) -> None:
    dag.fails(8001, attempt=2)
    assert len((dag.unit() / "proc_000000.attempts.jsonl").read_text().splitlines()) == len(dag.failures()) == 1


def test_the_same_job_is_judged_anew_when_its_cool_off_is_over(dag: Dag) -> None:
    """DAGMan in recovery runs a POST script again that had ended."""
    dag.fails(8001)
    assert dag.post(dag.unit(), "proc_000000", 8001 & 0xFF, 0, f"{dag.jobs}.0") == [44, 1]
    assert len(dag.failures()) == 1


def attempts(dag: Dag) -> list[int]:
    return [json.loads(line)["attempt"] for line in (dag.unit() / "proc_000000.attempts.jsonl").read_text().splitlines()]


def raised(dag: Dag) -> str:
    return (dag.unit() / "memory.inc").read_text().strip()


def test_a_post_script_of_an_earlier_attempt_that_comes_late_changes_nothing(dag: Dag) -> None:
    """DAGMan loses the end of a script and runs it again, with the same numbers, minutes later."""
    dag.limits(max_memory_per_core_mb=9000)
    dag.fails(50660, attempt=0)
    dag.fails(50660, attempt=1)
    dag.jobs -= 2
    assert dag.fails(50660, attempt=0) == [1]
    assert raised(dag) == "MEMORY_proc_000000 = 4500"
    assert (attempts(dag), len(dag.failures()), dag.record()["attempt"]) == ([0, 1], 2, 1)


def test_a_node_that_has_done_well_is_not_blamed_by_an_earlier_attempts_late_script(dag: Dag) -> None:
    assert dag.fails(8021, attempt=0, message=GONE) == [42]
    assert dag.fails(0, attempt=1) == [0]
    dag.jobs -= 2
    assert dag.fails(8021, attempt=0, message=GONE) == [42]
    assert (dag.record()["attempt"], dag.record()["classification"]["category"]) == (1, "success")
    assert (attempts(dag), len(dag.failures())) == ([0, 1], 1)


def test_an_attempt_whose_script_never_ran_before_the_next_was_judged_is_counted_and_decides_nothing(dag: Dag) -> None:
    dag.limits(max_memory_per_core_mb=9000)
    dag.jobs += 1
    dag.fails(50660, attempt=1)
    dag.jobs -= 2
    dag.fails(50660, attempt=0)
    assert (attempts(dag), len(dag.failures()), dag.record()["attempt"]) == ([1, 0], 2, 1)
    assert raised(dag) == "MEMORY_proc_000000 = 3000"
    dag.jobs -= 1
    dag.fails(50660, attempt=0)
    assert (attempts(dag), dag.record()["attempt"]) == ([1, 0], 1), "again"


def test_an_attempt_that_was_never_submitted_is_not_judged_again_after_a_later_one(dag: Dag) -> None:
    assert dag.post(dag.unit(), "proc_000000", -1001, 0, "-1.0") == [44, 1]
    dag.fails(0, attempt=1)
    assert dag.post(dag.unit(), "proc_000000", -1001, 0, "-1.0") == [1]
    assert (dag.record()["classification"]["category"], attempts(dag), len(dag.failures())) == ("success", [0, 1], 1)
    (dag.unit() / "proc_000000.post.json").unlink()  # the unit has left its site: attempts begin anew
    assert dag.post(dag.unit(), "proc_000000", -1001, 0, "-1.0") == [44, 1]
    assert (dag.record()["attempt"], attempts(dag)) == (0, [0, 1, 0])


def test_after_a_rescue_attempts_count_from_0_again_and_are_judged(dag: Dag) -> None:
    dag.fails(8001, attempt=0)
    dag.fails(8001, attempt=1)
    dag.fence = 2
    (dag.root / "fence.dag.inc").write_text('VARS ALL_NODES My.WMS2_Fence="2"\n')
    dag.jobs = 5  # at another schedd, whose numbers are lower
    assert dag.fails(8001, attempt=0) == [44, 1]
    assert (attempts(dag), dag.record()["fence"]) == ([0, 1, 0], 2)


def test_a_job_whose_number_another_queue_had_given_to_an_attempt_before_is_judged_by_itself(dag: Dag) -> None:
    assert dag.fails(8021, attempt=0, message=GONE) == [42]
    dag.fails(8001, attempt=1)
    dag.fence = 2
    (dag.root / "fence.dag.inc").write_text('VARS ALL_NODES My.WMS2_Fence="2"\n')
    dag.jobs -= 2
    assert dag.fails(0, attempt=0) == [0]
    assert (attempts(dag), dag.record()["fence"], dag.record()["classification"]["category"]) == ([0, 1, 0], 2, "success")


def test_scripts_of_one_attempt_side_by_side_record_it_once(dag: Dag) -> None:
    dag.limits(max_memory_per_core_mb=9000)
    dag.fails(50660, attempt=0)
    for path in (*dag.unit().glob("*.jsonl"), *dag.unit().glob("*.post.json"), dag.root / "failures.jsonl"):
        path.unlink()
    (dag.unit() / "memory.inc").write_text("")
    with ProcessPoolExecutor(3, get_context("fork")) as pool:
        asked = [pool.submit(dag.post, dag.unit(), "proc_000000", 50660 & 0xFF, 0, f"{dag.jobs}.0") for _ in range(3)]
    assert [each.result() for each in asked] == [[1]] * 3
    assert (attempts(dag), len(dag.failures()), raised(dag)) == ([0], 1, "MEMORY_proc_000000 = 3000")


@pytest.mark.parametrize(
    ("said", "category"),
    [("[FATAL] Auth failed", "infrastructure"), ("[ERROR] Server responded with an error: [3011] No such file", "data")],
)
def test_what_a_storage_said_in_stderr_alone_decides_about_the_file(dag: Dag, said: str, category: str) -> None:
    (dag.unit() / "proc_000000.0.err").write_text(f"Begin processing\n[Error  ][XRootD] root://x/{BAD}: {said}\n")
    dag.fails(8028, message=f"FallbackFileOpenError: Failed to open the file 'root://x/{BAD}'")
    verdict = dag.record()["classification"]
    assert (verdict["category"], verdict["bad_input_files"]) == (category, [BAD])
    assert said in verdict["reason"]


@pytest.mark.parametrize("inside", ["", "Failed to open the file 'root://eos//store/mc/pileup.root': [3011] No such file"])
def test_an_input_that_was_opened_well_is_not_to_blame_for_pileup(dag: Dag, inside: str) -> None:
    gone = "Fatal: root://eos//store/mc/pileup.root: [3011] No such file"
    (dag.unit() / "proc_000000.0.err").write_text(f"{OPENED}\n{gone}\n")
    assert dag.fails(8020, message=f"FileOpenError: {inside}") == [44, 1]
    verdict = dag.record()["classification"]
    assert (verdict["code"], verdict["bad_input_files"], verdict["action"]) == (8020, [], "retry")


@pytest.mark.parametrize("code", [65, 8009, codes.INVALID_DOCUMENT])
def test_a_permanent_failure_stops_the_node_at_once(dag: Dag, code: int) -> None:
    assert dag.fails(code) == [42]
    assert (dag.record()["final"], dag.record()["classification"]["category"]) == (True, "permanent")


def test_bad_input_stops_the_node_and_is_recorded_by_name(dag: Dag) -> None:
    assert dag.fails(8021, message=f"root://eos//{BAD} is not a ROOT file, nor is /store/mc/pileup.root") == [42]
    assert dag.record()["classification"]["bad_input_files"] == [BAD]
    assert dag.failures()[0]["bad_input_files"] == [BAD]


def test_a_file_that_cannot_be_read_here_is_read_at_another_site_at_once(dag: Dag) -> None:
    assert dag.fails(8021, message=GONE) == [42]
    verdict = dag.record()["classification"]
    assert (verdict["category"], verdict["action"], verdict["bad_input_files"]) == ("data", "other_site", [BAD])
    assert (dag.unit() / "avoid.inc").read_text() == "UNIT_AVOID = T1_US_FNAL\n"


def test_a_file_that_cannot_be_read_at_the_only_site_ends_the_node(dag: Dag) -> None:
    dag.unit(sites="T1_US_FNAL")
    assert dag.fails(8021, message=GONE) == [42]
    assert dag.record()["classification"]["action"] == "permanent_failure"
    assert (dag.unit() / "avoid.inc").read_text() == "UNIT_AVOID =\n"


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (f"Fatal: root://eos//{BAD} is not a ROOT file", ([42], 8021, [BAD])),
        ("Fatal: cannot read root://eos//store/mc/pileup.root", ([44, 1], codes.REPORT_LOST, [])),
        (f"{OPENED}\nFatal: root://eos//store/mc/pileup.root: no such file", ([44, 1], codes.REPORT_LOST, [])),
    ],
    ids=["its input", "pileup", "pileup, and its input was opened"],
)
def test_of_a_report_that_was_cut_off_the_8_bits_count_where_stderr_names_an_input_file(
    dag: Dag, stderr: str, expected: tuple[list[int], int, list[str]]
) -> None:
    place = dag.unit()
    members = {"step1_Reco/FrameworkJobReport.xml": "<FrameworkJobReport>\n<InputFi", "step1_Reco/cmsRun.stderr": stderr}
    packed_logs(place, "7.0", members)
    statuses = dag.post(place, "proc_000000", 8021 & 0xFF, 0, "7.0")
    verdict = dag.record()["classification"]
    assert (statuses, verdict["code"], verdict["bad_input_files"]) == expected


def test_packed_logs_that_unpack_to_more_than_a_job_packs_are_read_no_further(dag: Dag) -> None:
    place = dag.unit()
    packed_logs(place, "7.0", {"bomb": "0" * 48 * 1024 * 1024, "step1_Gen/FrameworkJobReport.xml": REPORT})
    assert (place / "proc_000000.0.7.0.logs.tar.gz").stat().st_size < 1024 * 1024
    assert dag.post(place, "proc_000000", 73, 0, "7.0") == [44, 1]
    assert dag.record()["classification"]["code"] == codes.REPORT_LOST, "as if the archive ended there"


@pytest.mark.parametrize(("code", "category", "statuses"), [(77777, "transient", [44, 1]), (8009, "permanent", [42])])
def test_the_reports_code_counts_although_the_process_ended_with_0(
    dag: Dag, code: int, category: str, statuses: list[int]
) -> None:
    """Error-handling 2.4: the wrapper succeeded, CMSSW failed."""
    dag.fails(0)
    report = dag.unit() / "proc_000000.0.report.json"
    report.write_text(report.read_text().replace('"exit_code": 0', f'"exit_code": {code}'))
    assert dag.post(dag.unit(), "proc_000000", 0, 0, f"{dag.jobs}.0") == statuses
    assert (dag.record()["classification"]["category"], dag.record()["classification"]["code"]) == (category, code)


def test_a_job_without_a_job_is_retried_and_blames_no_site(dag: Dag) -> None:
    assert dag.post(dag.unit(), "proc_000000", -1001, 0, "-1.-1") == [44, 1]
    assert dag.post(dag.unit(), "proc_000000", -1001, 1, "-1.-1") == [44, 44, 1]
    assert dag.record()["classification"]["category"] == "infrastructure"
    assert (dag.unit() / "avoid.inc").read_text() == "UNIT_AVOID =\n"


def test_a_submission_that_fails_again_after_a_rescue_is_recorded_again(dag: Dag) -> None:
    """Jobs that were never submitted all have one id; the first one's cool-off was cut short by a stop."""
    place = dag.unit()
    assert run_post(place, "proc_000000", -1001, 0, 3, "-1.-1") == 44
    (dag.root / "fence.dag.inc").write_text('VARS ALL_NODES My.WMS2_Fence="2"\n')
    assert dag.post(place, "proc_000000", -1001, 0, "-1.-1") == [44, 1]
    assert [line["fence"] for line in dag.failures()] == [1, 2]
    assert dag.record()["fence"] == 2


def test_out_of_memory_raises_the_memory_of_this_node_only_up_to_the_window(dag: Dag) -> None:
    assert dag.fails(50660, attempt=0) == [1], "more memory needs no waiting"
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\n"
    assert (dag.record()["job"]["request_memory_mb"], dag.record()["classification"]["memory_mb"]) == (2000, 3000)
    assert dag.fails(50660, attempt=1) == [42]
    assert dag.record()["classification"]["category"] == "permanent"
    assert dag.record()["job"]["request_memory_mb"] == 3000
    assert dag.fails(50660, attempt=0, node="proc_000001") == [1]
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\nMEMORY_proc_000001 = 3000\n"


def test_a_script_that_runs_twice_raises_the_memory_once(dag: Dag) -> None:
    dag.limits(max_memory_per_core_mb=9000)
    dag.fails(50660)
    dag.post(dag.unit(), "proc_000000", 50660 & 0xFF, 0, f"{dag.jobs}.0")
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\n"


def test_a_divided_step_at_the_window_is_given_up_only_as_one_process(dag: Dag) -> None:
    dag.limits(max_memory_per_core_mb=2000)
    profile = {"schema": "wms2.step_profile/1", "version": 1, "steps": {"Reco": {"processes": 3, "threads": 1, "rss_mb": 600}}}
    (dag.unit().parent / "step_profile.json").write_text(json.dumps(profile))
    assert dag.fails(50660, attempt=0)[-1] == 1
    assert dag.fails(50660, attempt=1)[-1] == 42


class Killed(BaseException):
    """In place of SIGKILL: nothing in the payload catches it."""


@pytest.mark.parametrize("most_memory_mb", [3000, 9000], ids=["up to the window", "with room above"])
@pytest.mark.parametrize("writes", range(1, 5))
def test_a_script_that_is_killed_after_any_of_its_writes_does_the_same_again(
    dag: Dag, monkeypatch: pytest.MonkeyPatch, writes: int, most_memory_mb: int
) -> None:
    dag.limits(max_memory_per_core_mb=most_memory_mb)
    done = 0

    def then_die(write: Any) -> Any:
        def called(*arguments: Any) -> None:
            nonlocal done
            write(*arguments)
            done += 1
            if done == writes:
                raise Killed

        return called

    with monkeypatch.context() as patch:
        for name in ("append_line", "write_atomic"):
            patch.setattr(files, name, then_die(getattr(files, name)))
        with pytest.raises(Killed):
            dag.fails(50660)
    assert dag.post(dag.unit(), "proc_000000", 50660 & 0xFF, 0, f"{dag.jobs}.0") == [1]
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\n"
    assert (dag.record()["job"]["request_memory_mb"], dag.record()["classification"]["memory_mb"]) == (2000, 3000)
    assert len((dag.unit() / "proc_000000.attempts.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("steps", [{"name": "Gen"}]), ("steps", 3), ("processed", []), ("outputs", [{}]), ("site", None), ("exit_step", [])],
)
@pytest.mark.parametrize("code", [0, 8009])
def test_a_report_without_its_fields_is_no_report(dag: Dag, code: int, field: str, value: object) -> None:
    dag.fails(code)
    path = dag.unit() / "proc_000000.0.report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    assert dag.post(dag.unit(), "proc_000000", code & 0xFF, 0, f"{dag.jobs}.0") == [44, 1]
    assert dag.record()["classification"]["code"] == codes.REPORT_LOST
    assert field in dag.record()["classification"]["reason"]


def test_a_kill_that_a_container_hands_on_as_an_exit_code_is_a_kill(dag: Dag) -> None:
    assert dag.post(dag.unit(), "proc_000000", 137, 0, "7.0") == [44, 1]
    assert dag.record()["classification"]["code"] == 137
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\n"


def test_memory_given_by_a_macro_of_the_node_is_understood(dag: Dag) -> None:
    (dag.root / "proc.sub").write_text("request_cpus = $(cores)\nrequest_memory = $(MEMORY_$(JOB):$(memory_mb))\n")
    place = dag.unit()
    with (place / "group.dag").open("a") as stream:
        stream.write('VARS proc_000000 disk_kb="1" cores="2" memory_mb="3800"\n')
    assert dag.fails(50660) == [1]
    assert (place / "memory.inc").read_text() == "MEMORY_proc_000000 = 5700\n"


def test_memory_that_a_submission_of_the_dag_brought_is_understood(dag: Dag) -> None:
    (dag.root / "proc.sub").write_text("request_cpus = 2\nrequest_memory = $(MEMORY_$(JOB):$(TASK_1_MEMORY_MB))\n")
    (dag.root / "sizes.inc").write_text("TASK_1_MEMORY_MB = 3800\nTASK_2_MEMORY_MB = 1\n")
    assert dag.fails(50660) == [1]
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 5700\n"


EVENT = "{number:03d} ({cluster}.000.000) 2026-11-21 10:00:{second:02d} {title}\n{body}...\n"


def ends(dag: Dag, *events: tuple[int, str, str]) -> list[int]:
    """A job that leaves no report: its events, then its POST script."""
    dag.jobs += 1
    place = dag.unit()
    with (place / "cluster.log").open("a") as stream:
        for second, (number, title, body) in enumerate(((1, "Job executing", '\tGLIDEIN_CMSSite = "T1_US_FNAL"\n'), *events)):
            stream.write(EVENT.format(number=number, cluster=dag.jobs, second=second, title=title, body=body))
    return dag.post(place, "proc_000000", -1002, 0, f"{dag.jobs}.0")


def test_a_kill_is_retried_with_more_memory(dag: Dag) -> None:
    assert ends(dag, (5, "Job terminated.", "\t(0) Abnormal termination (signal 9)\n")) == [44, 1]
    assert dag.record()["classification"]["code"] == 137
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\n"


def test_a_hold_for_memory_is_retried_with_more_memory(dag: Dag) -> None:
    hold = (
        12,
        "Job was held.",
        "\tJob has gone over its cgroup memory limit.\n\tCode 34 Subcode 102\n",
    )
    assert ends(dag, hold, (9, "Job was aborted.", "\tPeriodicRemove\n")) == [1]
    found = dag.record()
    assert (found["classification"]["code"], found["job"]["hold_code"]) == (95134, 34)
    assert found["classification"]["memory_mb"] == 3000


def test_a_job_that_hung_is_the_sites_fault(dag: Dag) -> None:
    hold = (12, "Job was held.", "\tWMS2: no CPU used in 7200 s\n\tCode 3 Subcode 0\n")
    assert ends(dag, hold, (9, "Job was aborted.", "\tPeriodicRemove\n")) == [44, 1]
    assert (dag.record()["classification"]["rule"], dag.record()["job"]["site"]) == ("held-no-cpu", "T1_US_FNAL")


def hanging(dag: Dag, *words: str) -> int:
    """A script with a time limit of half a second; its exit status."""
    limits = "cli.SCRIPT_SECONDS, cli._LOG_SECONDS = 0.5, 0.5"
    program = f"import sys; from dags_app.payload import cli; {limits}; sys.exit(cli.main({list(words)}))"
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=dag.unit(), env=environment, timeout=60, check=False).returncode


def test_a_post_script_that_hangs_is_ended_and_called_again(dag: Dag) -> None:
    place = dag.unit()
    with files.locked(place / ".post.lock"):
        assert hanging(dag, "post", "proc_000000", "0", "0", "3", "7.0") == codes.POST_CALL_AGAIN
    assert "post: not done after 0.5 s, ended with 44" in (place / "scripts.log").read_text()
    assert not (place / "proc_000000.attempts.jsonl").exists(), "nothing is judged"


def test_a_script_before_a_node_that_hangs_is_ended_and_told(dag: Dag) -> None:
    place = dag.unit()
    (place / "unit.json").unlink()
    os.mkfifo(place / "unit.json")  # as a file system that does not answer
    assert hanging(dag, "collect") == 1
    (failure,) = dag.failures()
    assert (failure["node"], failure["code"]) == ("merge", codes.UNEXPECTED) and "not done after 0.5 s" in failure["reason"]


EVICTION = (4, "Job was evicted.", "\t(0) CPU times\n"), (1, "Job executing", '\tGLIDEIN_CMSSite = "T1_US_FNAL"\n')
REMOVED = (9, "Job was aborted.", "\tPeriodicRemove\n")


def watchdog(text: str) -> tuple[int, str, str]:
    return (12, "Job was held.", f"\tThe job attribute PeriodicHold evaluated to TRUE: WMS2: {text}\n\tCode 3 Subcode 0\n")


def test_a_job_that_is_evicted_without_end_goes_elsewhere_with_more_memory(dag: Dag) -> None:
    assert ends(dag, *EVICTION * 4, EVICTION[0], watchdog("started 5 times"), REMOVED) == [42]
    found = dag.record()
    assert (found["job"]["starts"], found["job"]["evictions"]) == (5, 5)
    assert (found["classification"]["rule"], found["classification"]["action"]) == ("held-started-too-often", "other_site")
    assert "evicted 5 times" in dag.failures()[0]["reason"]
    assert (dag.unit() / "avoid.inc").read_text() == "UNIT_AVOID = T1_US_FNAL\n"
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\n"


def test_without_another_site_it_is_started_again_here_with_more_memory(dag: Dag) -> None:
    dag.unit(sites="T1_US_FNAL")
    assert ends(dag, *EVICTION * 4, EVICTION[0], watchdog("started 5 times"), REMOVED) == [44, 1]
    assert (dag.unit() / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\n"


def test_a_job_that_waits_for_days_for_its_site_goes_elsewhere(dag: Dag) -> None:
    assert ends(dag, EVICTION[0], watchdog("idle for 432000 s"), REMOVED) == [42]
    found = dag.record()
    assert (found["classification"]["rule"], found["classification"]["memory_mb"]) == ("held-idle", None)
    assert found["job"]["wall_time_sec"] == 1, "waiting is no time that it ran"
    assert (dag.unit() / "avoid.inc").read_text() == "UNIT_AVOID = T1_US_FNAL\n"


def test_a_job_that_did_well_after_evictions_has_them_counted(dag: Dag) -> None:
    place = dag.unit()
    with (place / "cluster.log").open("a") as stream:
        for number, title, body in (EVICTION[1], *EVICTION * 2):
            stream.write(EVENT.format(number=number, cluster=101, second=1, title=title, body=body))
    assert dag.fails(0) == [0]
    assert (dag.record()["job"]["starts"], dag.record()["job"]["evictions"]) == (3, 2)


def test_wall_time_that_was_not_enough_is_four_times_as_much_each_time(dag: Dag) -> None:
    assert dag.fails(50664, attempt=0) == [44, 1]
    assert dag.post(dag.unit(), "proc_000000", 50664 & 0xFF, 0, f"{dag.jobs}.0") == [44, 1], "its script runs again"
    assert dag.fails(50664, attempt=1) == [44, 44, 1]
    assert (dag.unit() / "memory.inc").read_text() == "WALL_proc_000000 = 32\n"


def test_a_job_that_a_person_removed_from_hold_is_merely_removed(dag: Dag) -> None:
    hold = (12, "Job was held.", "\tvia condor_hold (by user ops)\n\tCode 1 Subcode 0\n")
    ends(dag, hold, (9, "Job was aborted.", "\tvia condor_rm (by user ops)\n"))
    assert dag.record()["classification"]["rule"] == "removed"


def test_a_fault_of_the_site_is_retried_there_once_and_then_the_unit_leaves(dag: Dag) -> None:
    assert dag.fails(60311, attempt=0) == [44, 1]
    assert dag.fails(60311, attempt=1) == [42]
    assert dag.record()["classification"]["action"] == "other_site"
    assert (dag.unit() / "avoid.inc").read_text() == "UNIT_AVOID = T1_US_FNAL\n"


def test_a_fault_before_a_rescue_does_not_count_in_the_next_submission(dag: Dag) -> None:
    dag.fails(60311)
    dag.fence = 2
    (dag.root / "fence.dag.inc").write_text('VARS ALL_NODES My.WMS2_Fence="2"\n')
    assert dag.fails(60311) == [44, 1]


@pytest.mark.parametrize("banned", ["its only site", "all others are avoided"])
def test_a_unit_with_no_other_site_stays_and_uses_its_retries(dag: Dag, banned: str) -> None:
    if banned == "its only site":
        dag.unit(sites="T1_US_FNAL")
    else:
        (dag.root / "avoid.inc").write_text("DAG_AVOID = T2_CH_CERN\n")
    assert [dag.fails(60311, attempt=attempt)[-1] for attempt in range(4)] == [1, 1, 1, 1]
    assert (dag.unit() / "avoid.inc").read_text() == "UNIT_AVOID =\n"


def test_a_dag_that_fails_with_one_error_everywhere_is_aborted(dag: Dag) -> None:
    dag.limits(same_error_units=3)
    assert [dag.fails(8009, unit=unit) for unit in (0, 1)] == [[42], [42]]
    assert dag.fails(8009, unit=1, node="proc_000001") == [42], "a second node of the same unit is no third unit"
    assert dag.fails(8009, unit=2) == [43]
    assert dag.record(2)["classification"]["action"] == "abort_dag"
    assert dag.failures()[-1]["final"] is True


def test_a_verdict_that_becomes_an_abort_when_it_is_given_again_is_one_attempt(dag: Dag) -> None:
    dag.limits(same_error_units=3)
    assert dag.fails(8009, unit=0) == [42]
    first = dag.jobs
    assert [dag.fails(8009, unit=unit) for unit in (1, 2)] == [[42], [43]]
    assert dag.post(dag.unit(0), "proc_000000", 8009 & 0xFF, 0, f"{first}.0") == [43]
    assert len((dag.unit(0) / "proc_000000.attempts.jsonl").read_text().splitlines()) == 1
    assert len(dag.failures()) == 3


def test_an_exhausted_transient_error_everywhere_aborts_too(dag: Dag) -> None:
    dag.limits(same_error_units=2)
    assert [dag.fails(8001, unit=unit, attempt=3) for unit in (0, 1)] == [[1], [43]]


@pytest.mark.parametrize("meanwhile", ["a node did well", "another error", "another step"])
def test_a_dag_in_which_anything_else_ended_is_not_aborted(dag: Dag, meanwhile: str) -> None:
    dag.limits(same_error_units=2)
    dag.fails(8009, unit=0)
    if meanwhile == "a node did well":
        assert dag.fails(0, unit=5) == [0]
    else:
        dag.fails(8006 if meanwhile == "another error" else 8009, unit=5)
        lines = (dag.root / "failures.jsonl").read_text()
        (dag.root / "failures.jsonl").write_text(lines.replace('"step": "Reco"', '"step": "Gen"', 1))
    assert dag.fails(8009, unit=1) == [42]


def test_faults_of_sites_and_bad_files_never_abort_a_dag(dag: Dag) -> None:
    dag.limits(same_error_units=2)
    assert [dag.fails(8021, unit=unit, message=GONE) for unit in range(3)] == [[42], [42], [42]]
    assert [dag.fails(60311, unit=unit, attempt=3) for unit in range(4, 7)] == [[42], [42], [42]]


def test_failures_of_an_earlier_submission_do_not_abort_the_next(dag: Dag) -> None:
    dag.limits(same_error_units=2)
    dag.fails(8009, unit=0)
    dag.fence = 2
    (dag.root / "fence.dag.inc").write_text('VARS ALL_NODES My.WMS2_Fence="2"\n')
    assert dag.fails(8009, unit=1) == [42]
    assert dag.fails(8009, unit=2) == [43]


def packed_logs(place: Path, job_id: str, members: dict[str, str]) -> None:
    cluster, proc = job_id.split(".")
    members = {"job.ad": f"ClusterId = {cluster}\nProcId = {proc}\n", **members}
    with tarfile.open(place / f"proc_000000.0.{job_id}.logs.tar.gz", "w:gz") as archive:
        for name, text in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


REPORT = '<FrameworkJobReport>\n<FrameworkError ExitStatus="8009" Type="Configuration">wrong</FrameworkError>\n<Perf'


@pytest.mark.parametrize(
    ("owner", "expected"), [("7.0", ([42], 8009)), ("6.0", ([44, 1], 99303))], ids=["its own", "another job's"]
)
def test_without_a_report_the_framework_report_in_the_jobs_own_logs_counts(
    dag: Dag, owner: str, expected: tuple[list[int], int]
) -> None:
    place = dag.unit()
    (place / "proc_000000.0.report.json").write_text('{"schema": "wms2.rep')
    packed_logs(place, owner, {"step1_Gen/FrameworkJobReport.xml": REPORT})
    statuses = dag.post(place, "proc_000000", 73, 0, "7.0")
    assert (statuses, dag.record()["classification"]["code"]) == expected


def test_the_log_tail_begins_with_what_the_failed_program_wrote(dag: Dag) -> None:
    place = dag.unit()
    packed_logs(place, f"{dag.jobs + 1}.0", {"step1_Gen/cmsRun.stderr": "Begin Fatal Exception\n"})
    (place / "proc_000000.0.err").write_text("wrapper\n")
    dag.fails(8001)
    assert dag.record()["log_tail"].splitlines() == ["Begin Fatal Exception", "wrapper"]
    assert dag.failures()[0]["log_tail"].splitlines() == ["Begin Fatal Exception", "wrapper"]


def test_a_line_of_the_failure_log_is_bounded(dag: Dag) -> None:
    (dag.unit() / "proc_000000.0.err").write_text("x" * 300_000)
    dag.fails(8001, message="y" * 100_000)
    (line,) = (dag.root / "failures.jsonl").read_text().splitlines()
    assert len(line) < 10_000


def test_a_dag_without_rules_is_told_and_fails(dag: Dag) -> None:
    from dags_app.payload.contract.codes import PayloadError

    (dag.root / "rules.json").unlink()
    with pytest.raises(PayloadError, match=r"rules\.json: no such file"):
        dag.fails(8001)
