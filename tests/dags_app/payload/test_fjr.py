"""Framework job reports: those that cmsRun wrote, whole and cut at any place, and damaged ones."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dags_app.payload.contract import codes
from dags_app.payload.run.fjr import FrameworkReport, parse_framework_report, parse_framework_stream, read_framework_report
from dags_app.payload.run.processes import Finished
from dags_app.payload.run.steps import exit_code_of
from tests.support.cases import in_one_test

SMALL = """<FrameworkJobReport>
<InputFile>
<LFN>/store/a.root</LFN><PFN>root://door//a.root?svcClass=x&path=y</PFN>
<InputType>primaryFiles</InputType>
<EventsRead>7</EventsRead>
<Runs><Run ID="3">
   <LumiSection ID="1"/>
   <LumiSection ID="2"/>
</Run></Runs>
</InputFile>
<File>
<LFN></LFN><PFN>out.root</PFN><ModuleLabel>out</ModuleLabel><TotalEvents>5</TotalEvents>
<Runs><Run ID="3">
   <LumiSection ID="1" NEvents="5"/>
   <LumiSection ID="2" NEvents="0"/>
</Run></Runs>
<Inputs><Input><LFN>/store/a.root</LFN></Input></Inputs>
</File>
<FrameworkError ExitStatus="8021" Type="FileReadError" ><![CDATA[
bad & broken \x01 text
]]></FrameworkError>
</FrameworkJobReport>
"""


@pytest.mark.parametrize("text", ["<html><body>Sign in</body></html>", "<FrameworkJobReports/>"])
def test_another_document_is_no_report_of_a_success(text: str) -> None:
    report = parse_framework_report(text)
    assert (report.complete, report.outputs, report.errors) == (False, (), ())
    assert "no FrameworkJobReport: its first element is" in report.problem


def test_a_merge_report_gives_events_of_every_lumi_and_finite_metrics_only(real_inputs: Path) -> None:
    report = read_framework_report(real_inputs / "fjr" / "CMSSWMergeReport2.xml")
    merged = report.output("Merged")
    assert report.complete and merged is not None
    assert merged.lumis == {352572: dict.fromkeys(range(1, 119), 0)}
    assert report.metric("ApplicationMemory", "AverageGrowthRateRss") is None, "cmsRun wrote -nan"
    assert report.metric("Timing", "TotalJobCPU") == 52.5991
    assert report.metric("Timing", "NoSuchMetric") is None


def test_a_failed_run_names_the_whole_exit_code(real_inputs: Path) -> None:
    report = read_framework_report(real_inputs / "fjr" / "CMSSWFailReport.xml")
    assert [(error.exit_status, error.kind) for error in report.errors] == [(8001, "CMSException")]
    assert "CastorDbRecord" in report.errors[0].text


def test_a_skipped_file_is_seen_although_the_run_ended_well(real_inputs: Path) -> None:
    report = read_framework_report(real_inputs / "fjr" / "CMSSWSkippedNonExistentFile.xml")
    assert report.skipped_files == ("/store/data/Run2012D/Cosmics/RAW/v1/000/206/379/1ED243E7-A611-E211-A851-0019B9F581C9.root",)
    assert not report.errors and [file.events_read for file in report.primary_inputs] == [5]


def test_reports_of_older_releases_have_lumis_without_event_counts(real_inputs: Path) -> None:
    report = read_framework_report(real_inputs / "fjr" / "CMSSWProcessingReport.xml")
    assert [(file.module, file.events) for file in report.outputs] == [("outputRECORECO", 2), ("outputALCARECORECO", 2)]
    assert set(next(iter(report.outputs[0].lumis.values())).values()) == {None}


def test_peak_memory_is_read_from_the_performance_report(real_inputs: Path) -> None:
    report = read_framework_report(real_inputs / "fjr" / "PerformanceReport.xml")
    assert report.metric("ApplicationMemory", "PeakValueRss") == 492.293


@pytest.mark.parametrize("name", ["CMSSWFailReport.xml", "CMSSWMergeReport2.xml", "CMSSWSkippedNonExistentFile.xml"])
def test_a_report_cut_anywhere_keeps_what_came_before_the_cut(real_inputs: Path, name: str) -> None:
    text = (real_inputs / "fjr" / name).read_text()
    whole = parse_framework_report(text)
    for part in range(1, 20):
        cut = parse_framework_report(text[: len(text) * part // 20])
        assert not cut.complete and cut.problem
        assert cut.inputs == whole.inputs[: len(cut.inputs)] and cut.outputs == whole.outputs[: len(cut.outputs)]


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=len(SMALL.rstrip()) - 1))
def test_no_cut_of_a_report_is_taken_for_a_whole_one(length: int) -> None:
    report = parse_framework_report(SMALL[:length])
    assert not report.complete
    assert (report.inputs != ()) == (SMALL.index("</InputFile>") + len("</InputFile>") <= length)


def test_bare_ampersands_and_control_characters_do_no_harm() -> None:
    report = parse_framework_report(SMALL)
    assert report.complete
    assert report.inputs[0].pfn == "root://door//a.root?svcClass=x&path=y"
    assert report.errors[0].text == "bad & broken  text"
    assert report.outputs[0].lumis == {3: {1: 5, 2: 0}}


def test_the_end_that_cmsrun_writes_in_advance_is_the_end_of_a_report_that_was_cut_off(tmp_path: Path) -> None:
    """CMSSW 12 on: whole XML at any time, with this error until the run has ended or has told another."""
    path = tmp_path / "FrameworkJobReport.xml"
    cut = SMALL[: SMALL.index("<FrameworkError")]
    path.write_text(f'{cut}<FrameworkError ExitStatus="8901" Type="UnexpectedJobTermination"/>\n</FrameworkJobReport>\n')
    report = read_framework_report(path)
    assert not report.complete and report.errors == () and "ended before its report" in report.problem
    assert report.inputs and exit_code_of(Finished(137, 1.0, 1.0, 1.0), report) == 137
    assert exit_code_of(Finished(0, 1.0, 1.0, 1.0), report) == codes.NO_FRAMEWORK_REPORT


def test_a_lumi_whose_events_were_not_counted_twice_has_no_count() -> None:
    """Modules that do not count say 2^64-1, which is left out, for a lumi written once; twice makes the sum of these."""
    report = parse_framework_report(SMALL.replace('NEvents="5"', 'NEvents="18446744073709551614"'))
    assert report.outputs[0].lumis == {3: {1: None, 2: 0}}


def test_a_missing_and_an_empty_report_say_so(tmp_path: Path) -> None:
    missing = read_framework_report(tmp_path / "none.xml")
    (tmp_path / "empty.xml").write_text("")
    assert missing == FrameworkReport(problem="none.xml was not written", written=False)
    assert read_framework_report(tmp_path / "empty.xml").problem == "empty.xml is empty"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_in_whatever_portions_a_report_comes_it_says_the_same(sizes: list[int]) -> None:
    text = SMALL.replace("&path", "&amp;path&#38;more&").replace("broken", "&lt; ]] <broken")
    portions, at = [], 0
    for size in sizes * len(text):
        if at >= len(text):
            break
        portions.append(text[at : at + size])
        at += size
    report = parse_framework_stream(portions)
    assert report == parse_framework_report(text)
    assert report is not None and report.complete
    assert report.inputs[0].pfn.endswith("x&path&more&=y")
    assert report.errors[0].text == "bad & &lt; ]] <broken  text"


def test_a_large_report_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path, element = (
        tmp_path / "large.xml",
        "<MixingFile><LFN>/store/mc/pileup.root</LFN><Noise>" + "x" * 10_000 + "</Noise></MixingFile>\n",
    )
    with path.open("w") as out:
        out.write(SMALL[: SMALL.index("<FrameworkError")])
        for _ in range(3000):  # 30 MB
            out.write(element)
        out.write(SMALL[SMALL.index("<FrameworkError") :])
    tracemalloc.start()
    report = read_framework_report(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report == parse_framework_report(SMALL)
    assert peak < 8 * 1024 * 1024, f"{peak} bytes for a file of {path.stat().st_size}"


TAG = '<FrameworkError ExitStatus="8009" Type="Configuration">'


@in_one_test(
    "inside, said",
    [
        (f"{TAG}\n<![CDATA[\nformula a[b[0]]>5 is invalid\n]]>\n</FrameworkError>", "formula a[b[0]]>5 is invalid"),
        (f"{TAG}\n<![CDATA[\na[b[0]]> \n 5]]>\n</FrameworkError>", "a[b[0]]> \n 5"),
        (f"{TAG}<![CDATA[\nx]]><y>\n]]>\n</FrameworkError>", "x<y>"),
        (f"{TAG}a < b</FrameworkError>", "a < b"),
        (f"{TAG}<![CDATA[cut in the mid", "cut in the mid"),
        (f"{TAG}scrambled <InputFile><LFN>/store/a.r</FrameworkError>", "scrambled"),
        (f"{TAG}<![CDATA[not \ufffe a \uffff character]]></FrameworkError>", "not  a  character"),
        (f"{TAG}nor &#0; this</FrameworkError>", "nor &#0; this"),
        ('<FrameworkError ExitStatus="8009" Type="a<b">x</FrameworkError>', "x"),
        ("<FrameworkError ExitStatus='8009' Type='a>b'>x</Framew", "x"),
        ('<FrameworkError ExitStatus="8009" Type="torn', ""),
    ],
)
@in_one_test("portion", [1, 7, 10_000])
def test_what_an_error_says_does_not_cost_its_code(inside: str, said: str, portion: int) -> None:
    """cmsRun writes its report by hand: what a message holds may break the XML."""
    text = f"<FrameworkJobReport>\n{inside}\n</FrameworkJobReport>"
    report = parse_framework_stream(text[at : at + portion] for at in range(0, len(text), portion))
    assert report is not None
    assert [error.exit_status for error in report.errors] == [8009]
    assert said in report.errors[0].text


def test_of_several_errors_each_is_told_once(tmp_path: Path) -> None:
    text = f"<FrameworkJobReport>{TAG}one</FrameworkError>{TAG}t]]>wo</FrameworkError>{TAG}three</FrameworkError>"
    assert [error.text for error in parse_framework_report(text).errors] == ["one", "two", "three"]


def test_the_end_that_is_written_in_advance_is_no_error_of_a_damaged_report_either() -> None:
    report = parse_framework_report('<FrameworkJobReport><FrameworkError ExitStatus="8901" Type="Un<finished">x</FrameworkError>')
    assert (report.errors, report.complete) == ((), False)


@pytest.mark.parametrize("cut", ['ExitStatus="80', "ExitStatus='8", 'ExitStatus="-', 'ExitStatus="'])
def test_a_code_that_was_cut_off_is_not_another_code(cut: str) -> None:
    assert parse_framework_report(f"<FrameworkJobReport><FrameworkError {cut}").errors == ()


def test_of_a_message_without_end_its_beginning_is_kept() -> None:
    many = ["<FrameworkJobReport><FrameworkError ExitStatus='8009' Type='C'><![CDATA[", *["many words and ]]" * 9999] * 40]
    report = parse_framework_stream([*many, "]]></FrameworkError></FrameworkJobReport>"])
    assert report is not None and report.complete
    assert [(error.exit_status, error.text[:10], len(error.text) < 100_000) for error in report.errors] == [
        (8009, "many words", True)
    ]
