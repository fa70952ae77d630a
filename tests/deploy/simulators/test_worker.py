"""The simulated cmsRun and hadd: command lines, configurations, reports, failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import uproot

from dags_app.payload.run.fjr import FrameworkReport, read_framework_report
from deploy.simulators.worker.install import install
from deploy.simulators.worker.rootfiles import EventTable, read_guid, write_events

HERE = "tests/deploy/simulators/test_worker.py"
SELECTS = pytest.mark.deep(f"{HERE}::test_reading_selects_lumis_and_events")
CONFIGURATION = """
import FWCore.ParameterSet.Config as cms
process = cms.Process("TEST")
process.source = cms.Source("EmptySource",
    firstEvent = cms.untracked.uint64({first_event}),
    firstLuminosityBlock = cms.untracked.uint32(7),
    numberEventsInLuminosityBlock = cms.untracked.uint32(10)
)
process.maxEvents.input = 25
process.simulation = cms.untracked.PSet({simulation})
process.out = cms.OutputModule("PoolOutputModule", fileName = cms.untracked.string("out.root"))
process.small = cms.OutputModule("PoolOutputModule", fileName = cms.untracked.string("file:small.root"))
{more}
"""
READ = """
process.source = cms.Source("PoolSource", fileNames = cms.untracked.vstring({files}), {parameters})
process.maxEvents.input = {events}
"""


@dataclass(frozen=True)
class Programs:
    """The launchers, run in a directory of their own."""

    bin: Path
    here: Path

    def cmsrun(self, text: str, **environment: str) -> tuple[int, FrameworkReport]:
        """Exit status and report of a run of the configuration ``text``."""
        (self.here / "pset.py").write_text(text)
        done = self.run("cmsRun", "-j", "report.xml", "pset.py", **environment)
        return done.returncode, read_framework_report(self.here / "report.xml")

    def run(self, program: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / program), *words],
            cwd=self.here,
            env={"PATH": "/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bin")
    install(directory, Path(sys.executable))
    return directory


@pytest.fixture
def programs(launchers: Path, tmp_path: Path) -> Programs:
    return Programs(launchers, tmp_path)


def configuration(simulation: str = "", more: str = "", first_event: int = 1) -> str:
    return CONFIGURATION.format(simulation=simulation, more=more, first_event=first_event)


def events(path: Path) -> list[tuple[int, int]]:
    with uproot.open(path) as file:
        columns = file["Events"].arrays(["luminosityBlock", "event"], library="np")
    return [(int(lumi), int(event)) for lumi, event in zip(columns["luminosityBlock"], columns["event"], strict=True)]


def test_generation_numbers_events_and_lumis_beyond_32_bits(programs: Programs) -> None:
    status, report = programs.cmsrun(configuration(first_event=2**40))
    assert status == 0 and report.complete
    assert events(programs.here / "out.root") == [(7 + n // 10, 2**40 + n) for n in range(25)]
    written = report.output("out")
    assert written is not None and written.lumis == {1: {7: 10, 8: 10, 9: 5}}
    assert report.metric("ProcessingSummary", "NumberEvents") == 25


def test_a_filter_thins_events_the_same_way_each_time_and_keeps_all_lumis(programs: Programs) -> None:
    text = configuration("filterEfficiency = cms.untracked.double(0.4)")
    _, report = programs.cmsrun(text)
    first = events(programs.here / "out.root")
    programs.cmsrun(text)
    assert events(programs.here / "out.root") == first and 0 < len(first) < 25
    written = report.output("out")
    assert written is not None and set(written.lumis[1]) == {7, 8, 9} and written.events == len(first)
    assert report.metric("ProcessingSummary", "NumberEvents") == 25, "events before the filter"


@pytest.fixture
def made(programs: Programs) -> Programs:
    """A directory with ``out.root``: events 1-25, lumis 7-9."""
    assert programs.cmsrun(configuration())[0] == 0
    return programs


@pytest.mark.parametrize(
    ("skip", "limit", "lumis"),
    [
        (0, 40, [1, 2, 3, 4, 5]),
        (0, 21, [1, 2, 3, 4]),
        (20, -1, [4, 5, 6]),
    ],
)
def test_lumis_without_events_are_read_on_the_way_and_not_behind_the_last_event(
    programs: Programs, skip: int, limit: int, lumis: list[int]
) -> None:
    """CMSSW stops at the event that reaches maxEvents, and begins with the lumi of the first that it does not skip."""
    held = np.repeat(np.array([1, 2, 4, 5], "u4"), 10)
    table = EventTable(np.ones(40, "u4"), held, np.arange(1, 41, dtype="u8"))
    write_events(programs.here / "in.root", table, [(1, lumi) for lumi in range(1, 7)], 100, seed=1)
    parameters = f"skipEvents = cms.untracked.uint32({skip})" if skip else ""
    more = READ.format(files='"file:in.root"', parameters=parameters, events=limit)
    status, report = programs.cmsrun(configuration(more=more))
    assert (status, sorted(report.inputs[0].lumis[1])) == (0, lumis)


@pytest.mark.parametrize(
    ("parameters", "limit", "wanted", "lumis"),
    [
        pytest.param("", -1, range(1, 26), {7, 8, 9}, marks=SELECTS),
        pytest.param('lumisToProcess = cms.untracked.VLuminosityBlockRange("1:8-1:9")', -1, range(11, 26), {8, 9}, marks=SELECTS),
        ('lumisToProcess = cms.untracked.VLuminosityBlockRange("1:7", "1:9-1:9")', -1, [*range(1, 11), *range(21, 26)], {7, 9}),
        ("skipEvents = cms.untracked.uint32(5)", 8, range(6, 14), {7, 8}),
        pytest.param("", 3, range(1, 4), {7}, marks=SELECTS),
    ],
    ids=["all", "lumis", "two ranges", "skip and limit", "limit"],
)
def test_reading_selects_lumis_and_events(
    made: Programs, parameters: str, limit: int, wanted: list[int], lumis: set[int]
) -> None:
    (made.here / "out.root").rename(made.here / "in.root")
    status, report = made.cmsrun(configuration(more=READ.format(files='"file:in.root"', parameters=parameters, events=limit)))
    assert status == 0
    assert [event for _, event in events(made.here / "out.root")] == list(wanted)
    assert report.inputs[0].events_read == len(wanted) and set(report.inputs[0].lumis[1]) == lumis


def test_a_missing_file_is_an_error_or_skipped_as_the_source_says(made: Programs) -> None:
    (made.here / "out.root").rename(made.here / "in.root")
    files = '"file:gone.root", "file:in.root"'
    status, report = made.cmsrun(configuration(more=READ.format(files=files, parameters="", events=-1)))
    assert status == 8020 % 256 and report.errors[0].exit_status == 8020
    skip = "skipBadFiles = cms.untracked.bool(True)"
    status, report = made.cmsrun(configuration(more=READ.format(files=files, parameters=skip, events=-1)))
    assert status == 0 and report.skipped_files == ("file:gone.root",)


def test_each_file_has_a_guid_of_its_own_which_a_source_may_demand_of_its_name(made: Programs) -> None:
    before = read_guid(made.here / "out.root")
    _, report = made.cmsrun(configuration())
    guids = [file.guid for file in report.outputs]
    assert guids == [read_guid(made.here / f"{name}.root") for name in ("out", "small")]
    assert len({before, *guids}) == 3, "another start, another file"
    enforced = "enforceGUIDInFileName = cms.untracked.bool(True), skipBadFiles = cms.untracked.bool(True),"
    for name, status in ((f"{guids[0]}.root", 0), (f"{guids[0]}_1.root", 8034), (f"{guids[1]}.root", 8034)):
        (made.here / name).write_bytes((made.here / "out.root").read_bytes())
        read = READ.format(files=f'"file:{name}"', parameters=enforced, events=-1)
        ended, said = made.cmsrun(configuration(more=read))
        assert (ended, [error.exit_status for error in said.errors]) == (status & 0xFF, [status] if status else [])
    nano = read.replace("PoolSource", "NanoAODSource")
    assert made.cmsrun(configuration(more=nano))[0] == 8009 & 0xFF, "it does not know the parameter"


def test_hadd_merges_in_the_order_given_and_reports_what_it_merged(made: Programs) -> None:
    programs = made
    (programs.here / "out.root").rename(programs.here / "a.root")
    programs.cmsrun(configuration(first_event=101).replace("uint32(7)", "uint32(20)"))
    done = programs.run("hadd", "-f", "all.root", "out.root", "a.root", WMS2_MERGE_REPORT="merged.json")
    assert done.returncode == 0, done.stderr
    assert [event for _, event in events(programs.here / "all.root")] == [*range(101, 126), *range(1, 26)]
    report = json.loads((programs.here / "merged.json").read_text())
    assert report == {"events": 50, "lumis": {"1": [[7, 10], [8, 10], [9, 5], [20, 10], [21, 10], [22, 5]]}}


def test_hadd_refuses_what_the_real_one_refuses(made: Programs) -> None:
    assert made.run("hadd", "out.root", "small.root").returncode == 1, "the target exists and there is no -f"
    assert made.run("hadd", "-f", "all.root", "gone.root").returncode == 1
    assert made.run("hadd", "all.root").returncode == 1


def test_time_and_cpu_follow_the_profile_and_the_speed(programs: Programs) -> None:
    values = {"timePerEvent": 0.2, "cpuEfficiency": 0.25, "memoryMB": 700}
    profile = ", ".join(f"{name} = cms.untracked.double({value})" for name, value in values.items())
    threads = "process.options.numberOfThreads = cms.untracked.uint32(2)"
    _, report = programs.cmsrun(configuration(profile, threads), CMSSIM_SPEED="10")
    wall = report.metric("Timing", "TotalLoopTime")
    cpu = report.metric("Timing", "TotalLoopCPU")
    assert wall is not None and cpu is not None
    assert wall >= 25 * 0.2 / 2 / 10, "events x seconds / threads / speed"
    assert cpu == pytest.approx(wall * 2 * 0.25, rel=0.01)
    assert report.metric("ApplicationMemory", "PeakValueRss") == 700


def measured(programs: Programs, profile: dict[str, float], threads: int = 1, **environment: str) -> tuple[float, float, float]:
    """Wall and CPU seconds of the event loop and memory in MB of 25 events, by the simulated clock."""
    (programs.here / "profile.json").write_text(json.dumps({"*": profile}))
    more = f"process.options.numberOfThreads = cms.untracked.uint32({threads})"
    clock = {"CMSSIM_CLOCK": "simulated", "CMSSIM_SPEED": "1e9", "CMSSIM_PROFILE_FILE": str(programs.here / "profile.json")}
    status, report = programs.cmsrun(configuration("memoryMB = cms.untracked.double(1)", more), **clock, **environment)
    assert status == 0, report.errors
    found = report.metric("Timing", "TotalLoopTime"), report.metric("Timing", "TotalLoopCPU")
    assert None not in found
    return (*found, report.metric("ApplicationMemory", "PeakValueRss"))  # type: ignore[return-value]


def machine(programs: Programs, **values: int) -> dict[str, str]:
    (programs.here / "machine.ad").write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    return {"_CONDOR_MACHINE_AD": str(programs.here / "machine.ad")}


@pytest.mark.deep(f"{HERE}::test_time_and_cpu_follow_the_profile_and_the_speed")
def test_threads_divide_all_but_the_serial_part_and_the_cpu_time_stays(programs: Programs) -> None:
    profile = {"timePerEvent": 1000, "serialFraction": 0.2, "cpuEfficiency": 1.0}
    assert [measured(programs, profile, threads)[:2] for threads in (1, 4, 8)] == [
        (25000, 25000),
        (10000, 25000),
        (7500, 25000),
    ]


@pytest.mark.deep(f"{HERE}::test_time_and_cpu_follow_the_profile_and_the_speed")
def test_more_threads_than_cores_gain_only_what_the_others_wait(programs: Programs) -> None:
    profile, slot = {"timePerEvent": 1000, "cpuEfficiency": 0.5}, machine(programs, Cpus=4)
    walls = [measured(programs, profile, threads, **slot)[0] for threads in (4, 8, 16)]
    assert walls == [6250, 3125, 3125]
    assert measured(programs, profile, 4, WMS2_PROCESSES="4", **slot)[0] == 12500, "one core for each of four processes"


def test_memory_grows_with_threads_and_hours(programs: Programs) -> None:
    profile = {"memoryMB": 500, "memoryPerThreadMB": 100, "leakPerHourMB": 10, "timePerEvent": 288}
    assert measured(programs, profile, 2)[2] == 500 + 2 * 100 + 10


@pytest.mark.deep(f"{HERE}::test_memory_grows_with_threads_and_hours")
def test_jobs_spread_and_each_is_the_same_again(programs: Programs) -> None:
    profile = {"timePerEvent": 100, "timeSpread": 0.3, "timeTailShare": 0.5, "memoryMB": 1000, "memorySpread": 0.2}
    runs = [[measured(programs, profile, WMS2_NODE=f"proc_{n}") for n in range(4)] for _ in range(2)]
    assert runs[0] == runs[1]
    assert len({wall for wall, *_ in runs[0]}) == len({memory for *_, memory in runs[0]}) == 4


def test_a_run_over_the_slots_memory_is_killed_when_it_is_to_be(programs: Programs) -> None:
    text, slot = configuration("memoryMB = cms.untracked.double(600)"), machine(programs, Memory=1000)
    assert programs.cmsrun(text, **slot)[0] == 0
    limit = {"CMSSIM_KILL_OVER_MEMORY": "1", **slot}
    assert programs.cmsrun(text, **limit)[0] == 0
    assert programs.cmsrun(text, WMS2_PROCESSES="2", **limit)[0] == -9


def test_a_file_beside_the_programs_sets_their_variables_while_a_pool_runs(programs: Programs, tmp_path: Path) -> None:
    own = Programs(tmp_path / "bin", programs.here)
    install(own.bin, Path(sys.executable))
    (own.bin / "cmssim.env").write_text("CMSSIM_CLOCK=simulated\nCMSSIM_SPEED=1e9\n")
    _, report = own.cmsrun(configuration("timePerEvent = cms.untracked.double(3600)"))
    assert report.metric("Timing", "TotalLoopTime") == 25 * 3600


def test_a_hidden_profile_goes_by_step_and_is_refused_when_it_says_nonsense(programs: Programs) -> None:
    (programs.here / "truth.json").write_text(json.dumps({"Sim": {"memoryMB": 900}, "TEST": {"memoryMB": 800}, "*": {"pace": 1}}))
    text, truth = (
        configuration("memoryMB = cms.untracked.double(600)"),
        {"CMSSIM_PROFILE_FILE": str(programs.here / "truth.json")},
    )
    for step, memory in (("Sim", 900), ("Reco", 800)):
        _, report = programs.cmsrun(text, WMS2_STEP=step, **truth)
        assert report.metric("ApplicationMemory", "PeakValueRss") == memory
    status, report = programs.cmsrun(text.replace('"TEST"', '"OTHER"'), **truth)
    assert status == 8009 % 256 and "unknown parameters ['pace']" in report.errors[0].text


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        ("exitCode = cms.untracked.int32(8021)", 8021 % 256),
        ("untilAttempt = cms.untracked.int32(2)", 0),
        ("untilAttempt = cms.untracked.int32(3)", 8001 % 256),
    ],
)
def test_failures_are_chosen_by_attempt(programs: Programs, failure: str, status: int) -> None:
    text = configuration(f"failure = cms.untracked.PSet({failure})")
    found, report = programs.cmsrun(text, WMS2_NODE="proc_000001", WMS2_ATTEMPT="2", WMS2_STEP="Sim")
    assert found == status
    assert bool(report.errors) == (status != 0)


def test_a_failure_after_some_events_leaves_the_events_before_it(programs: Programs) -> None:
    status, report = programs.cmsrun(configuration(), CMSSIM_FAIL="exitCode=8001,atEvent=12")
    written = report.output("out")
    assert status == 65 and written is not None and written.lumis == {1: {7: 10, 8: 2}}


def test_a_signal_leaves_a_report_that_is_cut_off(programs: Programs) -> None:
    status, report = programs.cmsrun(configuration(), CMSSIM_FAIL="kind=signal,signal=11")
    assert status in (-11, 139) and not report.complete


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("process = 1/0", 7002),
        ("import FWCore.ParameterSet.Config as cms\nprocess = cms.Process('X')\n", 8009),
        (configuration("timePerEvnt = cms.untracked.double(1)"), 8009),
        (configuration("filterEfficiency = cms.untracked.double(1.5)"), 8009),
        (configuration(more="process.maxEvents.input = 2**40"), 7002),
        (configuration(more="process.novelty = 5"), 7002),
    ],
    ids=["python error", "no source", "unknown parameter", "share above 1", "number too large", "untyped parameter"],
)
def test_a_wrong_configuration_is_refused(programs: Programs, text: str, status: int) -> None:
    assert programs.cmsrun(text)[0] == status % 256


def test_a_missing_configuration_has_its_own_code(programs: Programs) -> None:
    assert programs.run("cmsRun", "nowhere.py").returncode == 7001 % 256


def test_installing_again_changes_nothing_and_a_missing_python_is_refused(launchers: Path, tmp_path: Path) -> None:
    before = (launchers / "cmsRun").read_text()
    install(launchers, Path(sys.executable))
    assert (launchers / "cmsRun").read_text() == before and os.access(launchers / "hadd", os.X_OK)
    with pytest.raises(SystemExit, match="is not an executable Python"):
        install(tmp_path, tmp_path / "python")
