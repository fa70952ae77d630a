"""What reports say of a failure: CMS's own documents, cut off and damaged ones, and which files count as bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dags_app.payload import codes
from dags_app.payload.classify import policy
from dags_app.payload.evidence import bad_files, evidence_of_ending, of_own_report, read_report
from dags_app.payload.rules import RuleBook
from tests.payload.workbench import LIMITS, shipped_rules

BOOK = RuleBook(shipped_rules(), LIMITS)
SKIPPED = "/store/data/Run2012D/Cosmics/RAW/v1/000/206/379/1ED243E7-A611-E211-A851-0019B9F581C9.root"
#: Every report of the folder: (category, code, action, bad input files).
REAL = {
    "fjr/CMSSWFailReport.xml": ("transient", 8001, "retry", ()),
    "fjr/CMSSWMergeReport2.xml": ("success", 0, "done", ()),
    "fjr/CMSSWProcessingReport.xml": ("success", 0, "done", ()),
    "fjr/CMSSWSkippedNonExistentFile.xml": ("data", codes.INPUT_SKIPPED, "permanent_failure", (SKIPPED,)),
    "fjr/PerformanceReport.xml": ("success", 0, "done", ()),
    "fwjr-json/FailedByAgent.json": ("transient", 71304, "retry", ()),
    "fwjr-json/LogCollectFailedFwjr.json": ("transient", 99999, "retry", ()),
    "fwjr-json/MergeFailedFwjr.json": ("transient", 71304, "retry", ()),
    "fwjr-json/NoJobReportFail.json": ("transient", 99303, "retry", ()),
    "fwjr-json/ProcessingPerformanceFailed.json": ("transient", 50660, "more_memory", ()),
    "fwjr-json/ProductionFailedFwjr.json": ("transient", 8001, "retry", ()),
    "fwjr-json/SkimSuccessFwjr.json": ("success", 0, "done", ()),
}


@pytest.mark.parametrize("name", REAL)
def test_real_reports_classify_as_the_table_says(real_inputs: Path, name: str) -> None:
    verdict = policy(evidence_of_ending(read_report(real_inputs / name), None), BOOK)
    assert (verdict.category, verdict.code, verdict.action, verdict.bad_input_files) == REAL[name]


def test_the_table_has_every_real_report(real_inputs: Path) -> None:
    found = {str(path.relative_to(real_inputs)) for folder in ("fjr", "fwjr-json") for path in (real_inputs / folder).iterdir()}
    assert found == set(REAL)


def fjr(tmp_path: Path, inside: str, end: str = "</FrameworkJobReport>") -> Path:
    path = tmp_path / "FrameworkJobReport.xml"
    path.write_text(f"<FrameworkJobReport>\n{inside}{end}")
    return path


INPUT = "<InputFile><LFN>/store/data/A.root</LFN><PFN>root://x//store/data/A.root</PFN></InputFile>\n"
ERROR = '<FrameworkError ExitStatus="8021" Type="FileReadError">Failed to read root://eos//store/data/A.root</FrameworkError>\n'


def test_a_file_that_the_error_names_by_pfn_is_bad_input(tmp_path: Path) -> None:
    verdict = policy(read_report(fjr(tmp_path, INPUT + ERROR)).evidence, BOOK)
    assert (verdict.category, verdict.code, verdict.bad_input_files) == ("data", 8021, ("/store/data/A.root",))


def test_a_cut_off_report_still_tells_the_error_that_stands_before_the_cut(tmp_path: Path) -> None:
    verdict = policy(read_report(fjr(tmp_path, INPUT + ERROR, "<Perform")).evidence, BOOK)
    assert (verdict.category, verdict.bad_input_files) == ("data", ("/store/data/A.root",))


@pytest.mark.parametrize(
    ("exit_code", "category", "code"),
    [
        (None, "transient", codes.REPORT_LOST),
        (0, "transient", codes.REPORT_LOST),
        (65, "transient", codes.REPORT_LOST),
        (137, "transient", 137),
        (50660, "transient", 50660),
        (8009, "permanent", 8009),
    ],
    ids=["unknown", "0", "8 bits", "signal", "whole code", "permanent"],
)
@pytest.mark.parametrize("kind", ["cut off", "missing", "empty", "json cut off"])
def test_without_a_usable_report_only_a_sure_exit_code_counts(
    tmp_path: Path, kind: str, exit_code: int | None, category: str, code: int
) -> None:
    path = fjr(tmp_path, INPUT, "<File><LFN>/sto")
    if kind != "cut off":
        path.unlink()
    if kind == "empty":
        path.write_text("")
    if kind == "json cut off":
        path.write_text('{"schema": "wms2.report/1", "exit_co')
    verdict = policy(evidence_of_ending(read_report(path), exit_code), BOOK)
    assert (verdict.category, verdict.code) == (category, code)


def test_stderr_names_the_file_where_the_report_was_cut_off(tmp_path: Path) -> None:
    stderr = "Fatal: cannot read root://x//store/data/A.root and root://x//store/mc/pileup.root"
    found = evidence_of_ending(read_report(fjr(tmp_path, INPUT, "<Fi")), 8021, stderr)
    assert policy(found, BOOK).bad_input_files == ("/store/data/A.root",)


def test_a_report_of_success_is_no_success_when_the_process_failed(tmp_path: Path) -> None:
    reading = read_report(fjr(tmp_path, INPUT))
    assert evidence_of_ending(reading, 0) is None
    found = evidence_of_ending(reading, 1)
    assert found is not None and found.code == codes.ENDINGS_DIFFER


def test_stderr_is_searched_too(tmp_path: Path) -> None:
    found = evidence_of_ending(read_report(tmp_path / "absent"), 1, "write failed: No space left on device")
    assert policy(found, BOOK).rule == "scratch-disk-full"


def test_files_that_are_no_input_of_the_job_are_not_blamed() -> None:
    message = "cannot read /store/mc/minbias.root, then /store/data/A.root, again /store/data/A.root"
    assert bad_files(message, ["/store/data/A.root", "/store/data/B.root"]) == ("/store/data/A.root",)
    assert bad_files(message, []) == ()
    assert bad_files("nothing", ["/store/data/A.root"], ["root://x//store/data/A.root"]) == ("/store/data/A.root",)


def test_wms2s_own_report_names_the_step_and_the_site(tmp_path: Path) -> None:
    report = {
        "schema": "wms2.report/1", "exit_code": 95003, "error_message": "skipped", "exit_step": "Reco", "site": "T2_CH_CERN",
        "steps": [{"skipped_files": ["/store/data/A.root"], "input_files": []}],
    }  # fmt: skip
    path = tmp_path / "proc.report.json"
    path.write_text(json.dumps(report))
    for reading in (of_own_report(report), read_report(path)):
        assert reading.evidence is not None
        assert (reading.evidence.step, reading.evidence.site, reading.evidence.bad_files) == (
            "Reco",
            "T2_CH_CERN",
            ("/store/data/A.root",),
        )


@pytest.mark.parametrize("text", ["[]", "3", '{"a": 1}', '{"schema": "wms2.report/1"}', '{"fwjr": {"steps": {}}}'])
def test_what_is_no_report_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    reading = read_report(path)
    assert reading.problem and not reading.is_success
