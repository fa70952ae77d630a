"""The merge command: which tool it calls, what it refuses, and what a killed merge leaves for the next."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest

from dags_app.payload.contract.codes import OVER_MEMORY, PayloadError
from dags_app.payload.merge import tools
from dags_app.payload.run.processes import Finished
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import Workbench

#: Each way in which a merge fails; those at the same depth as another are for the long run.
SAME_WAY = pytest.mark.deep("tests/dags_app/payload/test_merge.py::test_a_merge_that_does_not_do_its_work_leaves_no_manifest")
PLAIN = pytest.mark.deep("tests/dags_app/payload/test_merge.py::test_plain_trees_are_merged_by_the_worker_nodes_command")
PAST = pytest.mark.deep(
    "tests/dags_app/payload/test_merge.py::test_a_file_beyond_the_largest_merged_one_is_copied_past_the_merge"
)
MEMORY = pytest.mark.deep("tests/dags_app/payload/test_merge.py::test_a_merge_that_is_killed_for_its_memory_gets_more")


@pytest.fixture
def unit(done_unit: Workbench) -> Workbench:
    """A unit whose processing nodes are done and collected."""
    assert done_unit.script("collect") == 0
    return done_unit


def merged(bench: Workbench) -> list[tuple[int, dict[str, list[list[int]]]]]:
    (output,) = bench.read("merge_output.json")["outputs"]
    return [(file["events"], file["lumis"]) for file in output["files"]]


WHOLE = [(40, {"1": [[1, 10], [2, 10], [3, 10], [4, 10]]})]


def of_kind(bench: Workbench, kind: str) -> None:
    """The unit's output in another format; the simulated files hold the same in each."""
    job = json.loads((bench.dag / "job.json").read_text())
    job["outputs"][0]["merge"] = kind
    (bench.dag / "job.json").write_text(json.dumps(job))


def instead(bench: Workbench, program: str, script: str) -> None:
    """A program of that name that comes first on the job's PATH; in it, REAL is the directory of the simulated ones."""
    place = bench.root / "wrapped" / program
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"#!/bin/sh\nREAL={bench.programs}\n{script}\n")
    place.chmod(0o755)
    bench.variables["PATH"] = f"{place.parent}:{bench.programs}:/usr/bin:/bin"


def merge_report(bench: Workbench) -> str:
    """The framework report of the merge, out of its logs."""
    with tarfile.open(bench.logs("merge")) as logs:
        (name,) = (name for name in logs.getnames() if name.endswith("FrameworkJobReport.xml"))
        stream = logs.extractfile(name)
        assert stream is not None
        return stream.read().decode()


@pytest.mark.parametrize(("kind", "module"), [("edm", "PoolOutputModule"), ("nano", "NanoAODOutputModule")])
def test_event_files_are_merged_by_cmsrun_in_their_own_format_and_never_by_hadd(unit: Workbench, kind: str, module: str) -> None:
    of_kind(unit, kind)
    instead(unit, "hadd", "exit 1")
    done = unit.process("merge", "merge")
    validate("manifest", unit.read("merge_output.json"))
    validate("report", done.report)
    assert merged(unit) == WHOLE
    assert f"<OutputModuleClass>{module}<" in merge_report(unit)


def test_dqmio_is_merged_by_run_and_lumi_and_holds_no_events(unit: Workbench) -> None:
    of_kind(unit, "dqmio")
    unit.process("merge", "merge")
    assert merged(unit) == [(0, {"1": [[1, 0], [2, 0], [3, 0], [4, 0]]})]
    assert "<OutputModuleClass>DQMRootOutputModule<" in merge_report(unit)


@pytest.mark.parametrize("kind", ["edm", pytest.param("plain", marks=PAST), "dqmio"])
def test_a_file_beyond_the_largest_merged_one_is_copied_past_the_merge(unit: Workbench, kind: str) -> None:
    of_kind(unit, kind)
    largest(unit, 100)
    instead(unit, "cmsRun", "exit 1")
    instead(unit, "hadd", "exit 1")
    validate("report", unit.process("merge", "merge").report)
    validate("manifest", unit.read("merge_output.json"))
    (made,) = unit.read("merge_output.json")["outputs"]
    given = [unit.read(f"proc_00000{n}.0.report.json")["outputs"][0] for n in (0, 1)]
    sums = [(file["size_bytes"], file["adler32"], file["lumis"]) for file in given]
    assert [(file["size_bytes"], file["adler32"], file["lumis"]) for file in made["files"]] == sums
    assert [file["events"] for file in made["files"]] == ([0, 0] if kind == "dqmio" else [20, 20])
    assert all(unit.stored(file["lfn"]).stat().st_size == file["size_bytes"] for file in made["files"])
    assert all(unit.stored(file["lfn"]).is_file() for file in given), "cleanup removes it, not the merge"


def test_a_file_that_the_merge_brings_into_another_format_is_never_copied_past_it(unit: Workbench) -> None:
    of_kind(unit, "nano")
    largest(unit, 100)
    instead(unit, "cmsRun", "exit 1")
    assert unit.run("merge", "merge").report["exit_code"] == 1


def largest(bench: Workbench, max_bytes: int) -> None:
    job = json.loads((bench.dag / "job.json").read_text())
    job["merge"]["max_bytes"] = max_bytes
    (bench.dag / "job.json").write_text(json.dumps(job))


OLD_RELEASE = """\
from FWCore.ParameterSet import Config as cms

def mergeProcess(*inputFiles, **options):
    process = cms.Process("Merge")
    process.source = cms.Source("PoolSource", fileNames=cms.untracked.vstring(list(inputFiles)))
    process.Merged = cms.OutputModule("PoolOutputModule", fileName=cms.untracked.string(options["output_file"]))
    process.outputPath = cms.EndPath(process.Merged)
    return process
"""


def test_a_release_that_cannot_merge_the_format_makes_no_file_of_another(unit: Workbench) -> None:
    """Real releases pass over options that they do not know, and merge as EDM."""
    of_kind(unit, "nano")
    instead(
        unit,
        "cmsRun",
        f"""sed -i 's/^from Configuration.*//; s/^_KINDS = /exec(open("old.py").read())\\n&/' PSet.py
cat > old.py <<'END'
{OLD_RELEASE}END
exec "$REAL/cmsRun" "$@\"""",
    )
    done = unit.run("merge", "merge")
    assert done.report["exit_code"] == 7002 and "merges into PoolOutputModule, nano needs" in done.report["error_message"]
    assert not (unit.place / "merge_output.json").exists()


@pytest.mark.parametrize("command", ["hadd -v 0", pytest.param("hadd", marks=PLAIN)])
def test_plain_trees_are_merged_by_the_worker_nodes_command(unit: Workbench, command: str) -> None:
    of_kind(unit, "plain")
    unit.variables["WMS2_MERGE_COMMAND"] = command
    unit.process("merge", "merge")
    assert merged(unit) == WHOLE


SILENT = 'unset WMS2_MERGE_REPORT; exec "$REAL/hadd" "$@"'


def test_a_plain_merge_that_says_nothing_is_read_with_root(unit: Workbench) -> None:
    of_kind(unit, "plain")
    instead(unit, "hadd", SILENT)
    instead(unit, "python3", f'export PYTHONPATH={Path(__file__).parent / "root"}; exec {sys.executable} "$@"')
    unit.process("merge", "merge")
    assert merged(unit) == WHOLE


def test_a_merge_of_which_nothing_tells_what_it_holds_is_a_failure(unit: Workbench) -> None:
    of_kind(unit, "plain")
    instead(unit, "hadd", SILENT)
    instead(unit, "python", "echo no ROOT here >&2; exit 1")
    done = unit.run("merge", "merge")
    assert done.report["exit_code"] == 95004 and "no ROOT here" in done.report["error_message"]
    assert not (unit.place / "merge_output.json").exists() and unit.post(done) == 1


ERROR = """echo '<FrameworkJobReport><FrameworkError ExitStatus="{}" Type="FileWriteError">no space left</FrameworkError>\
</FrameworkJobReport>'"""
ONE_INPUT = """sed -i 's/"file:[^"]*",//' merge.json; exec "$REAL/cmsRun" "$@\""""


@pytest.mark.parametrize(
    ("kind", "program", "script", "code", "message"),
    [
        ("plain", "hadd", 'echo "disk full" >&2; exit 3', 95004, "ended with 3\ndisk full"),
        pytest.param("plain", "hadd", "exit 0", 95004, "ended with 0", marks=SAME_WAY),
        ("plain", "hadd", '"$REAL/hadd" "$1" "$2" "$3"', 95005, "holds 20 events, its inputs hold 40"),
        pytest.param("plain", "hadd", "kill -9 $$", 137, "ended with 137", marks=SAME_WAY),
        pytest.param("edm", "cmsRun", 'echo "disk full" >&2; exit 3', 3, "was not written\ndisk full", marks=SAME_WAY),
        ("edm", "cmsRun", "echo cut > merged.root; echo '<FrameworkJobReport>' > FrameworkJobReport.xml", 50115, "cut off"),
        pytest.param("edm", "cmsRun", '"$REAL/cmsRun" "$@"; rm merged.root', 95004, "ended with 0", marks=SAME_WAY),
        ("edm", "cmsRun", f"{ERROR.format(8033)} > FrameworkJobReport.xml; exit 97", 8033, "FileWriteError: no space left"),
        pytest.param(
            "nano", "cmsRun", f"{ERROR.format(8021)} > FrameworkJobReport.xml; exit 85", 8021, "FileWriteError: no space left",
            marks=SAME_WAY,
        ),
        ("edm", "cmsRun", ONE_INPUT, 95005, "holds 20 events, its inputs hold 40"),
        pytest.param("nano", "cmsRun", ONE_INPUT, 95005, "holds 20 events, its inputs hold 40", marks=SAME_WAY),
        ("dqmio", "cmsRun", ONE_INPUT, 95005, "missing 1:1-2"),
    ],
    ids=[
        "hadd fails", "hadd writes nothing", "hadd loses an input", "hadd killed", "cmsRun fails", "report cut off", "file gone",
        "8033", "8021", "EDM loses an input", "NANO loses an input", "DQMIO loses an input",
    ],
)  # fmt: skip
def test_a_merge_that_does_not_do_its_work_leaves_no_manifest(
    unit: Workbench, kind: str, program: str, script: str, code: int, message: str
) -> None:
    of_kind(unit, kind)
    instead(unit, program, script)
    done = unit.run("merge", "merge")
    assert done.value == code % 256
    assert done.report["exit_code"] == code and message in done.report["error_message"]
    assert not (unit.place / "merge_output.json").exists() and not list((unit.storage() / "store").glob("mc/**/*.root"))
    assert unit.post(done) == 1


@pytest.mark.parametrize(("kind", "program"), [("edm", "cmsRun"), pytest.param("plain", "hadd", marks=MEMORY)])
def test_a_merge_that_is_killed_for_its_memory_gets_more(unit: Workbench, kind: str, program: str) -> None:
    of_kind(unit, kind)
    instead(unit, program, "kill -9 $$")
    done = unit.run("merge", "merge")
    assert done.report["exit_code"] == 137 and unit.post(done) == 1
    assert (unit.place / "memory.inc").read_text() == "MEMORY_merge = 1500\n"


def test_a_missing_unmerged_file_is_named(unit: Workbench) -> None:
    lfn = unit.read("proc_000001.0.report.json")["outputs"][0]["lfn"]
    unit.stored(lfn).unlink()
    report = unit.run("merge", "merge").report
    assert report["exit_code"] == 8020 and lfn in report["error_message"]


@pytest.mark.parametrize("change", ["longer", "one byte"])
def test_an_unmerged_file_that_is_not_what_was_staged_out_is_refused(unit: Workbench, change: str) -> None:
    path = unit.stored(unit.read("proc_000001.0.report.json")["outputs"][0]["lfn"])
    data = bytearray(path.read_bytes())
    if change == "longer":
        data += b"x"
    else:
        data[-1] ^= 1
    path.write_bytes(data)
    done = unit.run("merge", "merge")
    assert done.report["exit_code"] == 8020 and "its job staged out" in done.report["error_message"]
    assert not (unit.place / "merge_output.json").exists()


def test_a_file_that_two_reports_have_is_not_merged_twice(unit: Workbench) -> None:
    given = unit.read("merge_input.json")
    first, second = given["reports"]
    second["outputs"] = first["outputs"]
    (unit.place / "merge_input.json").write_text(json.dumps(given))
    done = unit.run("merge", "merge")
    assert done.report["exit_code"] == 95001 and "two reports have the file /store/unmerged" in done.report["error_message"]


def test_the_journal_says_what_will_be_written_before_it_is(unit: Workbench) -> None:
    (unit.storage() / "store/mc").write_text("no directory")
    assert unit.run("merge", "merge").report["exit_code"] == 60311
    (killed,) = (unit.storage() / "store/unmerged").rglob("*.merge_journals/*.json")
    document = json.loads(killed.read_text())
    validate("journal", document)
    (unit.storage() / "store/mc").unlink()
    unit.process("merge", "merge", attempt=1)
    (other,) = set(killed.parent.iterdir()) - {killed}
    merged_lfns = [file["lfn"] for file in unit.read("merge_output.json")["outputs"][0]["files"]]
    assert json.loads(other.read_text())["files"] == merged_lfns
    assert not set(merged_lfns) & set(document["files"]), "each attempt has names of its own"


def test_a_merge_of_another_set_of_reports_is_refused(unit: Workbench) -> None:
    document = unit.read("merge_input.json")
    (unit.place / "merge_input.json").write_text(json.dumps({**document, "reports": document["reports"][:1]}))
    report = unit.run("merge", "merge").report
    assert report["exit_code"] == 95001 and "no report of ['proc_000001']" in report["error_message"]


def test_a_merge_of_plain_files_that_went_over_its_memory_says_so(tmp_path: Path) -> None:
    over = PayloadError(OVER_MEMORY, "the job used 5000 MB")
    assert tools._failed("hadd", Finished(143, 1.0, 1.0, 5000.0, over=over), tmp_path).code == 50660
