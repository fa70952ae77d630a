"""The job wrapper with the simulated cmsRun: what it runs, what it refuses, what it reports."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uproot

from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.contract.files import adler32
from dags_app.payload.run import processes, slot
from tests.support.faults import fault
from tests.support.payload_psets import GENERATE, READ, pset
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import Workbench, generating_node, input_file, job_document, output, reading_node, step

LFNS = ["/store/data/Run/one.root", "/store/data/Run/two.root"]


def rows(path: Path) -> list[tuple[int, int]]:
    with uproot.open(path) as file:
        columns = file["Events"].arrays(["luminosityBlock", "event"], library="np")
    return [(int(lumi), int(event)) for lumi, event in zip(columns["luminosityBlock"], columns["event"], strict=True)]


@pytest.fixture
def reader(bench: Workbench, generated: Workbench) -> Reader:
    """A site with two input files of 20 events, in lumis 1-2 and 3-4, event numbers 1-40."""
    for index, lfn in enumerate(LFNS):
        made = generated.read(f"proc_{index:06d}.0.report.json")["outputs"][0]["lfn"]
        bench.stored(lfn).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(generated.stored(made), bench.stored(lfn))
    return Reader(bench)


LHE = """
process.{label} = cms.EDProducer("{kind}", nEvents = {parameter}(5000))
"""


@pytest.mark.parametrize("source", ["EmptySource", "LHESource"])
def test_every_producer_that_makes_all_events_at_once_makes_those_of_the_job(bench: Workbench, source: str) -> None:
    """Producers have any label, and each its own type of the number."""
    text = pset("GEN", GENERATE.replace("EmptySource", source), {"GENoutput": "GEN"})
    text += LHE.format(label="externalLHEProducer", kind="ExternalLHEProducer", parameter="cms.untracked.uint32")
    text += LHE.format(label="lheOfAnother", kind="ExternalLHEAsciiProducer", parameter="cms.int32")
    job = job_document([step(1, "Gen", ["GENoutput"])], [output("Gen", "GENoutput", "GEN")])
    bench.prepare(job, [generating_node(0, 20, 10)], {"step1_Gen.py": text})
    report = bench.run("job", "proc_000000").report
    assert (report["exit_code"], report["processed"]["events"]) == (0, 20), report["error_message"]


def test_cmsrun_finds_the_environment_that_cms_gives_it(one_step: Workbench) -> None:
    directory = one_step.root / "telling"
    directory.mkdir()
    (directory / "cmsRun").write_text(f'#!/bin/sh\nenv > "{directory}/env"\nexec "{one_step.programs}/cmsRun" "$@"\n')
    (directory / "cmsRun").chmod(0o755)
    one_step.variables |= {"PATH": f"{directory}:/usr/bin:/bin", "PYTHONPATH": "/cvmfs/of/another/python", "TMPDIR": ""}
    done = one_step.run("job", "proc_000000")
    assert done.value == 0
    found = dict(line.split("=", 1) for line in (directory / "env").read_text().splitlines() if "=" in line)
    assert (found["PYTHONPATH"], found["FRONTIER_ID"]) == ("/cvmfs/of/another/python", "wms2_request_1"), "of the release on PATH"
    for name in ("HOME", "TMPDIR"):
        assert found[name].startswith(str(done.scratch)), f"{name}: the container's own may be anywhere, or nowhere"
    one_step.variables["HOME"] = "/home/of/the/pilot"
    one_step.run("job", "proc_000001")
    assert "HOME=/home/of/the/pilot\n" in (directory / "env").read_text()


def test_temporary_files_lie_in_the_work_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    with processes.temporary_files_in(tmp_path / "work" / "tmp"):
        assert tempfile.gettempdir() == str(tmp_path / "work" / "tmp")
        reported = processes.run_limited(["sh", "-c", "echo $TMPDIR; readlink /proc/self/fd/1"], 60.0, dict(os.environ)).stdout
        assert [line.startswith(str(tmp_path / "work" / "tmp")) for line in reported.splitlines()] == [True, True]
    assert "TMPDIR" not in os.environ


def _lost(_body: object = None) -> None:
    """What takes a failure of its own for nothing."""
    with suppress(Exception):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)


class _Destroyed:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("body", [_lost, lambda: _Destroyed() and None])
def test_a_request_to_stop_is_never_lost(body: Callable[[], None]) -> None:
    with pytest.raises(PayloadError, match="asked to stop by SIGTERM"), processes.stop_requests_as_errors():
        body()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_request_to_stop_that_was_lost_ends_what_runs_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_ALARM_SECONDS", 0.05)
    went_on = []
    with pytest.raises(PayloadError, match="asked to stop by SIGTERM"), processes.stop_requests_as_errors():
        _Destroyed()
        time.sleep(5)
        went_on.append(True)
    assert not went_on


@dataclass(frozen=True)
class Reader:
    """Runs a node that reads."""

    bench: Workbench

    def run(self, node: dict[str, Any], simulation: str = "sizePerEventKB = cms.untracked.double(0.1)") -> dict[str, Any]:
        """The report of the node's only attempt."""
        job = job_document([step(1, "Reco", ["RECOoutput"])], [output("Reco", "RECOoutput", "RECO")])
        self.bench.prepare(job, [node], {"step1_Reco.py": pset("RECO", READ, {"RECOoutput": "RECO"}, simulation)})
        return self.bench.run("job", "proc_000000").report

    def written(self, report: dict[str, Any]) -> list[int]:
        """Event numbers in the staged-out file."""
        assert report["exit_code"] == 0, report["error_message"]
        return [event for _, event in rows(self.bench.stored(report["outputs"][0]["lfn"]))]


def test_a_generating_job_makes_exactly_its_events_and_stages_them_out(one_step: Workbench) -> None:
    done = one_step.run("job", "proc_000001")
    assert done.value == 0
    report = done.report
    validate("report", report)
    assert report["processed"] == {"events": 20, "lumis": {"1": [[3, 4]]}, "files": []}
    (staged,) = report["outputs"]
    path = one_step.stored(staged["lfn"])
    assert rows(path) == [(3 + (event - 21) // 10, event) for event in range(21, 41)]
    assert (staged["size_bytes"], staged["adler32"]) == (path.stat().st_size, adler32(path))
    assert staged["lumis"] == {"1": [[3, 10], [4, 10]]} and staged["parents"] == []
    assert (report["fence"], report["site"], report["job_id"], report["schedd"]) == (
        1,
        "T1_US_FNAL",
        f"{done.cluster}.0",
        "schedd@test",
    )
    assert report["steps"][0]["peak_rss_mb"] == 64.0 and report["steps"][0]["cpu_seconds"] > 0


def test_a_repeated_attempt_makes_the_same_events_in_a_file_of_its_own(one_step: Workbench) -> None:
    paths = [one_step.stored(one_step.run("job", "proc_000000", n).report["outputs"][0]["lfn"]) for n in (0, 1)]
    assert len(set(paths)) == 2
    assert len({tuple(uproot.open(path)["Events"]["event"].array(library="np")) for path in paths}) == 1


def test_only_the_report_and_the_logs_come_back(one_step: Workbench) -> None:
    before = {path.name for path in one_step.place.iterdir()}
    done = one_step.run("job", "proc_000000")
    new = {path.name for path in one_step.place.iterdir()} - before
    assert new == {f"proc_000000.0.{end}" for end in ("err", "report.json", f"{done.cluster}.0.logs.tar.gz")} | {
        "cluster.log",
        "group.dag.nodes.log",
    }
    with tarfile.open(one_step.logs("proc_000000")) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {"FrameworkJobReport.xml", "original.py", "tweak.json", "cmsRun.stdout", "cmsRun.stderr"} <= names


@pytest.mark.parametrize(
    ("effect_request", "code"),
    [
        ("exitCode=8001", 8001),
        ("exitCode=8448", 8448),
        ("exitCode=134,atEvent=5", 134),
        ("kind=signal,signal=9", 137),
        ("kind=signal", 139),
    ],
)
def test_a_step_that_fails_is_reported_with_its_whole_code(one_step: Workbench, effect_request: str, code: int) -> None:
    one_step.variables["CMSSIM_FAIL"] = effect_request
    done = one_step.run("job", "proc_000000")
    assert done.value == (code % 256 or 1), "a code whose low byte is 0 (8448) must not look like success"
    validate("report", done.report)
    assert (done.report["exit_code"], done.report["exit_step"], done.report["outputs"]) == (code, "Gen", [])
    assert not list(one_step.storage().rglob("*.root"))


def test_the_configuration_decides_nothing_that_the_job_decides(one_step: Workbench) -> None:
    one_step.run("job", "proc_000001")
    with tarfile.open(one_step.logs("proc_000001")) as archive:
        member = archive.extractfile("step1_Gen/tweak.json")
        assert member is not None
        tweak = json.load(member)
    assert tweak["generate"] == {"run": 1, "first_event": 21, "first_lumi": 3, "events_per_lumi": 10}
    assert (tweak["max_events"], tweak["global_tag"], tweak["threads"]) == (20, "140X_mcRun3_v1", 1)


def edit(bench: Workbench, **fields: Any) -> None:
    """Change the first step in job.json."""
    job = json.loads((bench.dag / "job.json").read_text())
    job["steps"][0].update(fields)
    (bench.dag / "job.json").write_text(json.dumps(job))


def test_an_output_module_that_the_configuration_lacks_is_a_broken_configuration(one_step: Workbench) -> None:
    edit(one_step, output_modules=["GENoutput", "LHEoutput"])
    report = one_step.run("job", "proc_000000").report
    assert report["exit_code"] == 7002
    assert "no output module LHEoutput; it has ['GENoutput']" in report["error_message"]


def test_a_generating_job_with_a_reading_configuration_is_refused(bench: Workbench) -> None:
    job = job_document([step(1, "Gen", ["GENoutput"])], [output("Gen", "GENoutput", "GEN")])
    bench.prepare(job, [generating_node(0, 10, 10)], {"step1_Gen.py": pset("GEN", READ, {"GENoutput": "GEN"})})
    report = bench.run("job", "proc_000000").report
    assert report["exit_code"] == 7002 and "the job generates events, but the source is PoolSource" in report["error_message"]


def test_without_cmsrun_the_message_says_where_it_was_looked_for(one_step: Workbench) -> None:
    one_step.variables["PATH"] = "/usr/bin:/bin"
    report = one_step.run("job", "proc_000000").report
    assert report["exit_code"] == 50110
    assert "/cvmfs/cms.cern.ch is not mounted, and no cmsRun is on PATH" in report["error_message"]


def test_without_storage_the_job_fails_before_it_computes(one_step: Workbench) -> None:
    (one_step.root / "siteconf" / one_step.site / "storage.json").unlink()
    report = one_step.run("job", "proc_000000").report
    assert (report["exit_code"], report["steps"]) == (95006, [])


def test_a_sandbox_that_reaches_outside_is_refused(one_step: Workbench) -> None:
    with tarfile.open(one_step.dag / "sandbox.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../evil.py"))
    report = one_step.run("job", "proc_000000").report
    assert report["exit_code"] == 95001 and "is not a plain file inside the sandbox" in report["error_message"]


def fake_cmsrun(bench: Workbench, script: str) -> None:
    """A cmsRun that runs the simulated one and then does something to its report or output."""
    directory = bench.root / "faulty"
    directory.mkdir()
    (directory / "cmsRun").write_text(f'#!/bin/sh\n"{bench.programs}/cmsRun" "$@" || exit\n{script}\n')
    (directory / "cmsRun").chmod(0o755)
    bench.variables["PATH"] = f"{directory}:{bench.programs}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("head -c 900 $2 > x; mv x $2", 50115, "cut off or damaged"),
        ("rm $2", 50115, "FrameworkJobReport.xml was not written"),
        ('sed -i \'s/"NumberEvents" Value="20"/"NumberEvents" Value="19"/\' $2', 95002, "processed 19 events, it was given 20"),
        ("sed -i '/LumiSection ID=\"2\"/d' $2", 95002, "missing 1:2"),
        ("sed -i 's#<ModuleLabel>GENoutput#<ModuleLabel>Other#' $2", 60450, "no file of output module GENoutput"),
        ("rm GENoutput.root", 60302, "GENoutput.root of GENoutput is missing or empty"),
        (
            'sed -i \'s#^<ReadBranches>#<SkippedFile Pfn="p" Lfn="/store/x.root" /><ReadBranches>#\' $2',
            95003,
            "skipped 1 files: /store/x.root",
        ),
    ],
    ids=["cut report", "no report", "too few events", "missing lumi", "unreported output", "missing output", "skipped file"],
)
def test_exit_0_is_not_believed_without_proof(one_step: Workbench, script: str, code: int, message: str) -> None:
    fake_cmsrun(one_step, script)
    done = one_step.run("job", "proc_000000")
    assert done.value == code % 256
    assert done.report["exit_code"] == code and message in done.report["error_message"]
    assert not list(one_step.storage().rglob("*.root"))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_that_is_told_to_stop_ends_its_processes_and_still_reports(one_step: Workbench, processes: int) -> None:
    one_step.variables["CMSSIM_FAIL"] = "kind=hang"
    one_step.cores = processes
    one_step.profile(Gen=(processes, 1))
    started = one_step.start("job", "proc_000000")
    deadline = time.monotonic() + 60
    while len(list(started.scratch.glob("work/steps/step1_Gen*/FrameworkJobReport.xml"))) < processes:
        assert time.monotonic() < deadline and started.popen.poll() is None
        time.sleep(0.05)
    started.popen.send_signal(signal.SIGTERM)
    started.finish()
    assert started.value == 50669 % 256
    assert started.report["exit_code"] == 50669 and "SIGTERM" in started.report["error_message"]
    assert not processes_in(started.scratch), "cmsRun went with it"


def test_a_job_that_is_told_to_stop_while_it_writes_its_report_ends_as_the_report_says(one_step: Workbench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as starter:  # HTCondor's: it is asked to note the exit code, and waits
        starter.settimeout(60)
        one_step.variables["_CONDOR_CHIRP_CONFIG"] = str(one_step.root / "chirp")
        (one_step.root / "chirp").write_text(f"127.0.0.1 {starter.getsockname()[1]} cookie")
        started = one_step.start("job", "proc_000000")
        starter.accept()[0].close()
    while started.popen.poll() is None:  # from the report until the process has ended
        started.popen.send_signal(signal.SIGTERM)
        started.popen.send_signal(signal.SIGINT)
    started.finish()
    assert (started.value, started.report["exit_code"]) == (0, 0), "else all is done again"


@fault(
    "a memory hog without a cgroup",
    done="cmsRun takes more memory than its slot has, and nothing of the system ends it",
    spec="docs/errors.md, Jobs that never end",
    afterwards="the payload ends the step with 50660 and a report; the next attempt asks for more memory",
)
def test_a_job_above_its_memory_ends_itself_before_the_pilot_is_killed(one_step: Workbench) -> None:
    one_step.variables["CMSSIM_FAIL"] = "kind=hang"
    one_step.memory_mb = 10
    done = one_step.run("job", "proc_000000")
    assert (done.value, done.report["exit_code"], done.report["exit_step"]) == (50660 % 256, 50660, "Gen")
    assert "its slot has 10 MB" in done.report["error_message"]
    assert done.report["steps"][0]["peak_rss_mb"] > 11, "what it took is known all the same"
    assert one_step.post(done) == 1
    assert (one_step.place / "memory.inc").read_text() == "MEMORY_proc_000000 = 3000\n"


def test_where_a_cgroup_ends_what_takes_too_much_the_job_leaves_it_to_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in (("JOB", "RequestMemory = 1000\nMaxWallTimeMins = 90\n"), ("MACHINE", "Memory = 2000\n")):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(f"_CONDOR_{name}_AD", str(tmp_path / name))
    for limit_mb, watched in ((1000, None), (1099, None), (16000, 1000), (None, 1000)):  # of the whole pilot; none
        monkeypatch.setattr(slot, "cgroup_limit_mb", lambda limit_mb=limit_mb: limit_mb)
        bounds = slot.read_bounds()
        assert (bounds.memory_mb, bounds.wall_minutes) == (watched, 90)


def test_shortly_before_the_wall_time_it_asked_for_a_job_ends_itself_and_reports(one_step: Workbench) -> None:
    one_step.variables["CMSSIM_FAIL"] = "kind=hang"
    one_step.job_ad = "MaxWallTimeMins = 0.05\n"
    done = one_step.run("job", "proc_000000")
    assert (done.report["exit_code"], done.report["exit_step"]) == (50664, "Gen")
    assert "0.05 minutes of wall time" in done.report["error_message"]
    assert not processes_in(done.scratch)
    assert one_step.post(done) == 1
    assert (one_step.place / "memory.inc").read_text() == "WALL_proc_000000 = 8\n", "four times as much as the submit file's 2"


def test_memory_is_measured_where_processes_of_others_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """``hidepid``: of what is not one's own, /proc tells nothing, by an error."""
    real = Path.read_bytes

    def hidden(path: Path) -> bytes:
        if path.name == "stat" and path.parent.name != str(os.getpid()):
            raise PermissionError(path)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", hidden)
    group = os.getpgrp()
    assert processes.group_rss_bytes([group])[group] > 10 * 1024**2
    assert 0 < processes.group_pss_bytes([group])[group] <= processes.group_rss_bytes([group])[group]


def processes_in(directory: Path) -> list[str]:
    """Processes whose working directory is below ``directory``."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            here = str((process / "cwd").readlink()) if process.name.isdigit() else ""
        except OSError:
            continue
        if here.startswith(str(directory)):
            found.append(process.name)
    return found


def test_a_job_that_was_killed_leaves_nothing_and_the_next_attempt_does_the_work(one_step: Workbench) -> None:
    one_step.variables["CMSSIM_FAIL"] = "kind=hang,untilAttempt=1"
    started = one_step.start("job", "proc_000000")
    deadline = time.monotonic() + 60
    while not (found := list(started.scratch.glob("work/steps/*/FrameworkJobReport.xml"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = processes_in(found[0].parent)
    started.popen.kill()
    for pid in children:  # what HTCondor does to what a killed job leaves behind
        os.kill(int(pid), signal.SIGKILL)
    started.finish()
    assert not (one_step.place / "proc_000000.0.report.json").exists()
    assert one_step.post(started) == 1
    one_step.process("job", "proc_000000", attempt=1)


def test_a_reading_job_reads_whole_files_from_the_site(reader: Reader) -> None:
    report = reader.run(reading_node(0, [input_file(lfn, 20) for lfn in LFNS]))
    assert reader.written(report) == list(range(1, 41))
    assert report["processed"]["lumis"] == {"1": [[1, 4]]}
    files = [(file["lfn"], file["events"], file["first_event"]) for file in report["processed"]["files"]]
    assert files == [(lfn, 20, None) for lfn in LFNS]
    assert report["outputs"][0]["parents"] == LFNS


def test_a_lumi_mask_is_obeyed_exactly(reader: Reader) -> None:
    report = reader.run(reading_node(0, [input_file(lfn, 20) for lfn in LFNS], {"1": [[2, 3]]}))
    assert reader.written(report) == list(range(11, 31))
    assert report["processed"]["lumis"] == {"1": [[2, 3]]}


def test_a_lumi_of_the_mask_that_no_file_has_is_a_failure(reader: Reader) -> None:
    report = reader.run(reading_node(0, [input_file(LFNS[0], 20)], {"1": [[1, 3]]}))
    assert report["exit_code"] == 95002 and "missing 1:3" in report["error_message"]


def test_an_event_range_is_cut_out_of_its_file(reader: Reader) -> None:
    report = reader.run(reading_node(0, [input_file(LFNS[1], 20, 5, 11)]))
    assert reader.written(report) == list(range(26, 33))
    assert report["processed"]["files"] == [{"lfn": LFNS[1], "events": 7, "first_event": 5, "last_event": 11}]


def test_a_missing_input_file_fails_with_cmsruns_code(reader: Reader) -> None:
    report = reader.run(reading_node(0, [input_file("/store/data/Run/gone.root", 20)]))
    assert report["exit_code"] == 8020 and "/store/data/Run/gone.root" in report["error_message"]


def test_a_damaged_input_file_fails_with_cmsruns_code(reader: Reader) -> None:
    reader.bench.stored(LFNS[0]).write_bytes(b"root but not quite")
    assert reader.run(reading_node(0, [input_file(LFNS[0], 20)]))["exit_code"] == 8021


def test_a_file_with_fewer_events_than_the_catalogue_says_is_a_failure(reader: Reader) -> None:
    report = reader.run(reading_node(0, [input_file(LFNS[0], 25)]))
    assert report["exit_code"] == 95002 and "processed 20 events, it was given 25" in report["error_message"]


def test_lumis_whose_events_were_all_filtered_away_stay_in_the_output(reader: Reader) -> None:
    report = reader.run(reading_node(0, [input_file(LFNS[0], 20)]), "filterEfficiency = cms.untracked.double(0.0)")
    assert reader.written(report) == []
    assert report["outputs"][0]["lumis"] == {"1": [[1, 0], [2, 0]]} and report["processed"]["events"] == 20
