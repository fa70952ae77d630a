"""The merge command: which tool it calls, what it refuses, and what a killed merge leaves for the next."""

from __future__ import annotations

import json

import pytest

from tests.payload.schemas import validate
from tests.payload.workbench import Workbench


@pytest.fixture
def unit(done_unit: Workbench) -> Workbench:
    """A unit whose processing nodes are done and collected."""
    assert done_unit.script("collect") == 0
    return done_unit


def merged(bench: Workbench) -> list[tuple[int, dict[str, list[list[int]]]]]:
    (output,) = bench.read("merge_output.json")["outputs"]
    return [(file["events"], file["lumis"]) for file in output["files"]]


WHOLE = [(40, {"1": [[1, 10], [2, 10], [3, 10], [4, 10]]})]


@pytest.mark.parametrize("command", ["hadd", "cmsRun", "hadd -v 0"])
def test_each_merge_command_gives_the_same_content(unit: Workbench, command: str) -> None:
    unit.variables["WMS2_MERGE_COMMAND"] = command
    done = unit.process("merge", "merge")
    validate("manifest", unit.read("merge_output.json"))
    validate("report", done.report)
    assert merged(unit) == WHOLE


def wrapped_hadd(bench: Workbench, script: str) -> None:
    path = bench.root / "wrapped_hadd"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    bench.variables["WMS2_MERGE_COMMAND"] = str(path)


def test_a_merge_command_without_a_report_is_taken_to_merge_all_its_inputs(unit: Workbench) -> None:
    wrapped_hadd(unit, f'unset WMS2_MERGE_REPORT; exec "{unit.programs}/hadd" "$@"')
    unit.process("merge", "merge")
    assert merged(unit) == WHOLE


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ('echo "disk full" >&2; exit 3', 95004, "ended with 3\ndisk full"),
        ("exit 0", 95004, "ended with 0"),
        ('hadd "$1" "$2" "$3"', 95005, "holds 20 events, its inputs hold 40"),
    ],
    ids=["fails", "writes nothing", "loses an input"],
)
def test_a_merge_that_does_not_do_its_work_leaves_no_manifest(unit: Workbench, script: str, code: int, message: str) -> None:
    wrapped_hadd(unit, script)
    done = unit.run("merge", "merge")
    assert done.value == code % 256
    assert done.report["exit_code"] == code and message in done.report["error_message"]
    assert not (unit.place / "merge_output.json").exists() and not list((unit.storage() / "store").glob("mc/**/*.root"))
    assert unit.post(done) == 1


def test_a_missing_unmerged_file_is_named(unit: Workbench) -> None:
    lfn = unit.read("proc_000001.0.report.json")["outputs"][0]["lfn"]
    unit.stored(lfn).unlink()
    report = unit.run("merge", "merge").report
    assert report["exit_code"] == 8020 and lfn in report["error_message"]


def test_an_unmerged_file_of_another_size_is_refused(unit: Workbench) -> None:
    lfn = unit.read("proc_000001.0.report.json")["outputs"][0]["lfn"]
    with unit.stored(lfn).open("ab") as stream:
        stream.write(b"what a lost attempt wrote")
    done = unit.run("merge", "merge")
    assert done.report["exit_code"] == 8020 and "proc_000001 staged out" in done.report["error_message"]
    assert not (unit.place / "merge_output.json").exists()


def test_a_file_that_two_reports_have_is_not_merged_twice(unit: Workbench) -> None:
    given = unit.read("merge_input.json")
    first, second = given["reports"]
    second["outputs"] = first["outputs"]
    (unit.place / "merge_input.json").write_text(json.dumps(given))
    done = unit.run("merge", "merge")
    assert done.report["exit_code"] == 95001 and "two reports have the file /store/unmerged" in done.report["error_message"]


def test_the_journal_says_what_will_be_written_before_it_is(unit: Workbench) -> None:
    wrapped_hadd(unit, "exit 9")
    unit.run("merge", "merge")
    (journal,) = (unit.storage() / "store/unmerged").rglob("*.merge_journal.json")
    document = json.loads(journal.read_text())
    validate("merge_journal", document)
    del unit.variables["WMS2_MERGE_COMMAND"]
    unit.process("merge", "merge", attempt=1)
    assert [file["lfn"] for file in unit.read("merge_output.json")["outputs"][0]["files"]] == document["merged"]


def test_a_merge_of_another_set_of_reports_is_refused(unit: Workbench) -> None:
    document = unit.read("merge_input.json")
    (unit.place / "merge_input.json").write_text(json.dumps({**document, "reports": document["reports"][:1]}))
    report = unit.run("merge", "merge").report
    assert report["exit_code"] == 95001 and "no report of ['proc_000001']" in report["error_message"]
