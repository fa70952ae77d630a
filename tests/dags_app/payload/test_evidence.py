"""What reports say of a failure: CMS's own documents, cut off and damaged ones, and which files count as bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dags_app.payload.contract import codes
from dags_app.payload.contract.rules import RuleBook
from dags_app.payload.post.classify import policy
from dags_app.payload.post.evidence import bad_files, evidence_of_ending, of_own_report, read_report
from tests.support.cases import in_one_test
from tests.support.payload_workbench import LIMITS, shipped_rules

BOOK = RuleBook(shipped_rules(), LIMITS)
SKIPPED = "/store/data/Run2012D/Cosmics/RAW/v1/000/206/379/1ED243E7-A611-E211-A851-0019B9F581C9.root"
#: Every report of the folder: (category, code, action, bad input files).
REAL = {
    "fjr/CMSSWFailReport.xml": ("transient", 8001, "retry", ()),
    "fjr/CMSSWMergeReport2.xml": ("success", 0, "done", ()),
    "fjr/CMSSWProcessingReport.xml": ("success", 0, "done", ()),
    "fjr/CMSSWSkippedNonExistentFile.xml": ("data", codes.INPUT_SKIPPED, "other_site", (SKIPPED,)),
    "fjr/PerformanceReport.xml": ("success", 0, "done", ()),
    "fwjr-json/FailedByAgent.json": ("transient", 71304, "retry", ()),
    "fwjr-json/LogCollectFailedFwjr.json": ("transient", 99999, "retry", ()),
    "fwjr-json/MergeFailedFwjr.json": ("transient", 71304, "retry", ()),
    "fwjr-json/NoJobReportFail.json": ("transient", 99303, "retry", ()),
    "fwjr-json/ProcessingPerformanceFailed.json": ("transient", 50660, "more_memory", ()),
    "fwjr-json/ProductionFailedFwjr.json": ("transient", 8001, "retry", ()),
    "fwjr-json/SkimSuccessFwjr.json": ("success", 0, "done", ()),
}


@in_one_test("name", REAL)
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
ERROR = '<FrameworkError ExitStatus="8021" Type="FileReadError">root://eos//store/data/A.root is truncated</FrameworkError>\n'


def test_a_file_that_the_error_names_by_pfn_is_bad_input(tmp_path: Path) -> None:
    verdict = policy(read_report(fjr(tmp_path, INPUT + ERROR)).evidence, BOOK)
    assert (verdict.category, verdict.code, verdict.bad_input_files) == ("data", 8021, ("/store/data/A.root",))


def test_a_cut_off_report_still_tells_the_error_that_stands_before_the_cut(tmp_path: Path) -> None:
    verdict = policy(read_report(fjr(tmp_path, INPUT + ERROR, "<Perform")).evidence, BOOK)
    assert (verdict.category, verdict.bad_input_files) == ("data", ("/store/data/A.root",))


@in_one_test(
    "exit_code, category, code",
    [
        (None, "transient", codes.REPORT_LOST),
        (0, "transient", codes.REPORT_LOST),
        (65, "transient", codes.REPORT_LOST),
        (137, "transient", 137),
        (50660, "transient", 50660),
        (8009, "permanent", 8009),
    ],
)
@in_one_test("kind", ["cut off", "missing", "empty", "json cut off"])
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


@pytest.mark.parametrize(("code", "expected"), [(85, 8021), (84, 8020), (92, 8028), (1, codes.REPORT_LOST)])
def test_of_a_cut_off_report_8_bits_of_a_reading_error_count_with_the_file_that_stderr_names(
    tmp_path: Path, code: int, expected: int
) -> None:
    reading = read_report(fjr(tmp_path, INPUT, "<Fi"))
    verdict = policy(evidence_of_ending(reading, code, "cannot read root://x//store/data/A.root"), BOOK)
    assert (verdict.code, verdict.bad_input_files) == (expected, ("/store/data/A.root",))
    unnamed = evidence_of_ending(reading, code, "cannot read something")
    assert unnamed is not None and unnamed.code == codes.REPORT_LOST


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


@in_one_test("text", ["[]", "3", '{"a": 1}', '{"schema": "wms2.report/1"}', '{"fwjr": {"steps": {}}}'])
def test_what_is_no_report_has_a_problem_and_is_no_success(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    reading = read_report(path)
    assert reading.problem and reading.evidence is None


WMCORE = {
    "status": 8021,
    "errors": [{"exitCode": "8021", "type": "FileReadError", "details": "/store/data/A.root: no such file"}],
    "input": {"source": [{"lfn": "/store/data/A.root"}]},
}


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "report.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@in_one_test("value", [None, [], {}, "", 0, -1, 3.5, True, "x", [1], [None], [[]], {"a": 1}, "--5", "\u00b2", "1" * 5000])
@in_one_test("field", ["steps", "step", "status", "errors", "error", "exitCode", "input", "source", "lfn", "skippedFiles"])
def test_a_field_of_any_other_type_is_no_traceback_and_no_success(tmp_path: Path, field: str, value: object) -> None:
    step = json.loads(json.dumps(WMCORE))
    report: dict[str, object] = {"steps": {"cmsRun1": step}}
    if field in ("steps", "skippedFiles"):
        report[field] = value
    elif field == "step":
        report["steps"] = {"cmsRun1": value}
    elif field in ("status", "errors", "input"):
        step[field] = value
    elif field in ("error", "exitCode"):
        step["errors"] = [value] if field == "error" else [{"exitCode": value}]
    else:
        step["input"] = {"source": value} if field == "source" else {"source": [{"lfn": value}]}
    found = evidence_of_ending(read_report(written(tmp_path, {"fwjr": report, "jobstate": "jobfailed"})), None)
    assert found is not None and policy(found, BOOK).category != "success"


@in_one_test("value", [None, {}, "x", 3, [1], [None], [{"skipped_files": 1}], [{"input_files": [None, 3]}]])
def test_a_report_of_ours_with_damaged_steps_keeps_its_code(tmp_path: Path, value: object) -> None:
    found = read_report(written(tmp_path, {"schema": "wms2.report/1", "exit_code": 8009, "steps": value})).evidence
    assert found is not None and found.code == 8009


@pytest.mark.parametrize("text", ["[" * 200_000, '{"steps":' * 200_000], ids=["lists", "objects"])
def test_a_report_that_is_nested_without_end_is_damaged(tmp_path: Path, text: str) -> None:
    assert "cut off or damaged" in read_report(written(tmp_path, text)).problem


@pytest.mark.parametrize(
    "steps",
    [
        {"cmsRun1": WMCORE, "stageOut1": {"status": 1, "errors": [{"exitCode": 60307, "type": "x", "details": ""}]}},
        {"stageOut1": {"status": 1, "errors": [{"exitCode": 60307, "type": "x", "details": ""}]}, "cmsRun1": WMCORE},
        [{"name": "cmsRun1", **WMCORE, "input": [{"lfn": "/store/data/A.root"}]}],
    ],
    ids=["with stage-out after it", "told after its stage-out", "in a list"],
)
def test_the_failed_step_counts_and_not_what_came_after_it(tmp_path: Path, steps: object) -> None:
    verdict = policy(read_report(written(tmp_path, {"steps": steps, "meta_data": {"jobstate": "jobfailed"}})).evidence, BOOK)
    assert (verdict.category, verdict.code, verdict.bad_input_files) == ("data", 8021, ("/store/data/A.root",))


def test_a_crash_is_not_hidden_by_the_stage_out_that_had_nothing_to_stage_out(tmp_path: Path) -> None:
    steps = {
        "cmsRun1": {"status": 139, "errors": [{"exitCode": 139}]},
        "stageOut1": {"status": 1, "errors": [{"exitCode": 60307}]},
    }
    assert policy(read_report(written(tmp_path, {"steps": steps})).evidence, BOOK).code == 139


@pytest.mark.parametrize(
    ("steps", "is_success"),
    [
        ({"cmsRun1": {"status": "0"}}, True),
        ({"cmsRun1": {"errors": []}}, False),
        ({"cmsRun1": {"status": 0, "errors": "x"}}, False),
    ],
    ids=["a status as text", "no status", "damaged errors"],
)
def test_a_report_shows_a_success_only_when_it_says_so(tmp_path: Path, steps: object, is_success: bool) -> None:
    assert (evidence_of_ending(read_report(written(tmp_path, {"steps": steps})), 0) is None) is is_success


@pytest.mark.parametrize("status", ["", 'ExitStatus=""', 'ExitStatus="abc"'])
def test_an_error_without_a_code_is_no_success(tmp_path: Path, status: str) -> None:
    reading = read_report(fjr(tmp_path, f'{INPUT}<FrameworkError {status} Type="Odd">text</FrameworkError>'))
    found = evidence_of_ending(reading, 0)
    assert found is not None and found.code == codes.EXIT_CODE_UNKNOWN


ENTITIES = '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + level)} "{f"&{chr(97 + level)};" * 10}">' for level in range(12)
)


@in_one_test(
    "document",
    [
        f"<FrameworkJobReport xmlns='urn:x'>{INPUT}{ERROR}</FrameworkJobReport>",
        f"\ufeff<FrameworkJobReport>{INPUT}{ERROR}</FrameworkJobReport>",
        f'<?xml version="1.0" encoding="UTF-16"?><FrameworkJobReport>{INPUT}{ERROR}</FrameworkJobReport>',
        f"{ENTITIES}]><FrameworkJobReport>{INPUT}{ERROR.replace('Failed', '&m; Failed')}</FrameworkJobReport>",
        f'{ENTITIES}<!ENTITY % f SYSTEM "file:///etc/passwd"> %f;]><FrameworkJobReport>{INPUT}{ERROR}</FrameworkJobReport>',
    ],
)
@in_one_test("encoding", ["utf-8", "utf-16"])
def test_how_a_report_is_written_down_changes_nothing(tmp_path: Path, document: str, encoding: str) -> None:
    path = tmp_path / "report.xml"
    path.write_text(document.lstrip("\ufeff") if encoding == "utf-16" else document, encoding=encoding)
    verdict = policy(read_report(path).evidence, BOOK)
    assert (verdict.code, verdict.bad_input_files) == (8021, ("/store/data/A.root",))


def test_no_file_is_read_because_a_report_names_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    path = tmp_path / "report.xml"
    path.write_text(
        f'<!DOCTYPE r [<!ENTITY e SYSTEM "{secret.as_uri()}">]><FrameworkJobReport>'
        '<FrameworkError ExitStatus="8021" Type="&e;">&e;</FrameworkError></FrameworkJobReport>'
    )
    found = read_report(path).evidence
    assert found is not None and found.code == 8021 and "the secret" not in found.message


@pytest.mark.parametrize(("reported", "code"), [(-9, 137), (-15, 143), (-11, 139), (137, 137)])
def test_a_signal_is_the_same_however_it_is_counted(tmp_path: Path, reported: int, code: int) -> None:
    for report in (tmp_path / "absent", fjr(tmp_path, INPUT)):
        found = evidence_of_ending(read_report(report), reported)
        assert found is not None and found.code == code


def test_a_file_below_a_store_of_the_sites_own_is_known() -> None:
    message = "cannot open root://x//mnt/store/cms/store/data/A.root"
    assert bad_files(message, ["/store/data/A.root"]) == ("/store/data/A.root",)
