"""Steps that run as several cmsRun side by side: everything once, and what was run is what is reported."""

from __future__ import annotations

import json
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dags_app.manifest import read_manifest
from tests.support.payload_psets import GENERATE, READ, pset
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import (
    HALF,
    SHARING_DIGI,
    SHARING_RECO,
    Workbench,
    chain,
    chain_of_shares,
    event_numbers,
    generating_node,
    input_file,
    job_document,
    output,
    reading_node,
    step,
)

NODES, EVENTS, PER_LUMI = 2, 24, 4
FIRST = 2**32 - 100


@pytest.fixture(name="bench")
def _bench(bench: Workbench) -> Workbench:
    bench.cores = 8
    return bench


def records(bench: Workbench, node: str) -> dict[str, dict[str, Any]]:
    report = bench.read(f"{node}.0.report.json")
    validate("report", report)
    return {record["name"]: record for record in report["steps"]}


def log(bench: Workbench, node: str, member: str) -> Any:
    with tarfile.open(bench.logs(node)) as archive:
        found = archive.extractfile(member)
        assert found is not None
        return json.load(found)


HERE = "tests/dags_app/payload/test_step_profile.py"
CHAIN = pytest.mark.deep(f"{HERE}::test_a_chain_makes_every_event_once_however_its_steps_run")
FILTERED = pytest.mark.deep(f"{HERE}::test_filtered_events_and_lumis_without_any_go_on_once")
READ_ONCE = pytest.mark.deep(f"{HERE}::test_input_is_read_once_by_all_processes_together")
DIVIDED = "tests/dags_app/payload/test_division.py"
RANGE = pytest.mark.deep(f"{DIVIDED}::test_a_range_of_events_is_divided_into_ranges")
WHOLE = pytest.mark.deep(f"{DIVIDED}::test_whole_files_stay_whole")
ROOM = pytest.mark.deep(f"{DIVIDED}::test_no_more_processes_than_the_slot_has_room_for")
LATER = (
    "tests/dags_app/payload/test_task_shares.py::test_nodes_that_share_a_file_read_each_of_its_events_once_by_lumis_and_by_events"
)
ENDS = pytest.mark.deep(f"{HERE}::test_one_that_fails_ends_the_others_and_its_code_is_the_steps")
PROOF = pytest.mark.deep(f"{HERE}::test_each_process_has_to_prove_its_part")
NO_PROFILE = pytest.mark.deep(f"{HERE}::test_without_a_profile_a_step_is_one_process")


@pytest.mark.slow
@pytest.mark.dear("data: nothing is lost or made twice from the first process of a step to the merged file")
@pytest.mark.parametrize(
    "processes", [(3, 1, 2), *(pytest.param(way, marks=CHAIN) for way in ((4, 1, 3), (2, 2, 2), (1, 3, 2), (3, 4, 1)))]
)
def test_a_chain_makes_every_event_once_however_its_steps_run(bench: Workbench, processes: tuple[int, ...]) -> None:
    chain(bench, NODES, EVENTS, PER_LUMI)
    bench.profile(**dict(zip(("GenSim", "Digi", "Reco"), ((count, 1) for count in processes), strict=True)))
    nodes = [f"proc_{index:06d}" for index in range(NODES)]
    for node in nodes:
        bench.process("job", node)
        ran = records(bench, node)
        assert tuple(record["processes"] for record in ran.values()) == processes
        assert [record["events_read"] for record in ran.values()] == [EVENTS] * 3
        assert all(record["undivided"] == "" for record in ran.values())
        assert ran["Reco"]["slot_rss_mb"] == processes[2] * ran["Reco"]["peak_rss_mb"] == processes[2] * 64
    assert bench.script("collect") == 0
    bench.process("merge", "merge")
    validate("manifest", bench.read("merge_output.json"))
    manifest, _ = read_manifest(bench.place / "merge_output.json")
    wanted = set(range(FIRST, FIRST + NODES * EVENTS))
    for each in manifest.outputs:
        rows = [row for file in each.files for row in event_numbers(bench.stored(file.lfn))]
        assert len(rows) == len(wanted) and {event for _, _, event in rows} == wanted, each.dataset
        assert all(lumi == 7 + (event - FIRST) // PER_LUMI for _, lumi, event in rows)
        pieces = [piece for file in each.files if file.pieces for piece in file.pieces.generated]
        assert [(p.first_event, p.last_event) for p in pieces] == [
            (FIRST + n * EVENTS, FIRST + (n + 1) * EVENTS - 1) for n in range(NODES)
        ], "a merged file names whole nodes"
    reco = manifest.step_metrics["Reco"]
    assert [(job.node, job.processes, job.events_read) for job in reco] == [(node, processes[2], EVENTS) for node in nodes]
    kept = sum(file["size_bytes"] for file in bench.read("proc_000000.0.report.json")["outputs"] if file["step"] == "Reco")
    assert sum(reco[0].bytes_written.values()) == kept
    assert bench.run("cleanup", "cleanup").value == 0
    assert not list((bench.storage() / "store/unmerged").rglob("*.root"))


@pytest.mark.slow
def test_each_further_attempt_runs_half_as_many_side_by_side(one: Workbench) -> None:
    one.profile(Gen=(4, 1))
    for attempt, processes in ((1, 2), (2, 1)):
        assert one.run("job", "proc_000000", attempt).value == 0
        report = one.read(f"proc_000000.{attempt}.report.json")
        assert (report["steps"][0]["processes"], report["steps"][0]["events_read"]) == (processes, 20)


@pytest.mark.slow
@pytest.mark.parametrize("filtered", [pytest.param(HALF, marks=FILTERED), HALF.replace("0.5", "0.05")])
def test_filtered_events_and_lumis_without_any_go_on_once(bench: Workbench, filtered: str) -> None:
    job = job_document(
        [step(1, "Gen", ["GENoutput"]), step(2, "Sim", ["SIMoutput"], ("Gen", "GENoutput"))],
        [output("Gen", "GENoutput", "GEN"), output("Sim", "SIMoutput", "SIM")],
    )
    psets = {
        "step1_Gen.py": pset("GEN", GENERATE, {"GENoutput": "GEN"}, filtered),
        "step2_Sim.py": pset("SIM", READ, {"SIMoutput": "SIM"}),
    }
    bench.prepare(job, [generating_node(0, 40, 4)], psets)
    bench.profile(Gen=(2, 1), Sim=(3, 1))
    bench.process("job", "proc_000000")
    assert bench.script("collect") == 0
    bench.process("merge", "merge")
    gen, sim = (each.files for each in read_manifest(bench.place / "merge_output.json")[0].outputs)
    assert [file.events for file in sim] == [file.events for file in gen]
    assert [sorted(file.lumis[1]) for file in sim] == [sorted(file.lumis[1]) for file in gen]
    assert [lumi for lumi, _ in gen[0].lumis[1]] == list(range(1, 11)), "also those of which the filter left nothing"


@pytest.mark.slow
@pytest.mark.deep(LATER)
@pytest.mark.parametrize("filter_text", [HALF, ""])
def test_later_tasks_read_what_several_processes_left_and_divide_it_again(bench: Workbench, filter_text: str) -> None:
    chain_of_shares(bench, filter_text)
    bench.profile(GenSim=(3, 1), Digi=(2, 1), Reco=(2, 1))
    bench.process("job", "proc_000000")
    for node in (*SHARING_DIGI, *SHARING_RECO, "t3_000002"):
        assert bench.script("gather", node) == 0
        validate("node_input", bench.read(f"{node}.input.json"))
        bench.process("job", node)
    assert len({file["lfn"] for file in bench.read(f"{SHARING_DIGI[0]}.input.json")["files"]}) == 3
    assert bench.script("collect") == 0
    bench.process("merge", "merge")
    validate("manifest", bench.read("merge_output.json"))
    sim, aod = (
        [row for file in each["files"] for row in event_numbers(bench.stored(file["lfn"]))]
        for each in bench.read("merge_output.json")["outputs"]
    )
    assert sorted(aod) == sorted(sim) and len(set(sim)) == len(sim) > 0
    assert bench.run("cleanup", "cleanup").value == 0
    assert not list((bench.storage() / "store/unmerged").rglob("*.root"))


LFNS = ["/store/data/Run/one.root", "/store/data/Run/two.root"]


@pytest.mark.parametrize(
    ("files", "mask", "processes", "wanted"),
    [
        pytest.param([(0, None, None), (1, None, None)], {"1": [[1, 4]]}, 4, range(1, 41), marks=READ_ONCE),
        ([(0, None, None), (1, None, None)], {"1": [[2, 4]]}, 2, range(11, 41)),
        pytest.param([(1, 3, 16)], None, 3, range(24, 38), marks=RANGE),
        pytest.param([(0, None, None), (1, None, None)], None, 2, range(1, 41), marks=WHOLE),
    ],
    ids=["a lumi each", "a mask", "a range of events", "a file each"],
)
def test_input_is_read_once_by_all_processes_together(
    bench: Workbench,
    generated: Workbench,
    files: list[tuple[int, int | None, int | None]],
    mask: dict[str, Any] | None,
    processes: int,
    wanted: range,
) -> None:
    for index, lfn in enumerate(LFNS):
        bench.stored(lfn).parent.mkdir(parents=True, exist_ok=True)
        written = generated.read(f"proc_{index:06d}.0.report.json")["outputs"][0]["lfn"]
        bench.stored(lfn).write_bytes(generated.stored(written).read_bytes())
    job = job_document([step(1, "Reco", ["RECOoutput"])], [output("Reco", "RECOoutput", "RECO")])
    node = reading_node(0, [input_file(LFNS[number], 20, first, last) for number, first, last in files], mask)
    bench.prepare(job, [node], {"step1_Reco.py": pset("RECO", READ, {"RECOoutput": "RECO"})})
    bench.profile(Reco=(processes, 1))
    bench.process("job", "proc_000000")
    report = bench.read("proc_000000.0.report.json")
    assert report["steps"][0]["processes"] == len(report["outputs"]) == processes
    assert len({file["lfn"] for file in report["outputs"]}) == processes
    numbers = [event for file in report["outputs"] for _, _, event in event_numbers(bench.stored(file["lfn"]))]
    assert sorted(numbers) == list(wanted)
    assert sum(file["events"] for file in report["processed"]["files"]) == len(wanted)
    assert [file["lfn"] for file in report["processed"]["files"]] == [LFNS[number] for number, *_ in files]
    if files[0][1] is not None:
        assert (report["processed"]["files"][0]["first_event"], report["processed"]["files"][0]["last_event"]) == files[0][1:]
    bench.script("collect")
    bench.process("merge", "merge")


def test_one_whole_input_file_is_not_cut_and_the_report_says_why(bench: Workbench, generated: Workbench) -> None:
    bench.stored(LFNS[0]).parent.mkdir(parents=True)
    written = generated.read("proc_000000.0.report.json")["outputs"][0]["lfn"]
    bench.stored(LFNS[0]).write_bytes(generated.stored(written).read_bytes())
    job = job_document([step(1, "Reco", ["RECOoutput"])], [output("Reco", "RECOoutput", "RECO")])
    bench.prepare(
        job, [reading_node(0, [input_file(LFNS[0], 20)])], {"step1_Reco.py": pset("RECO", READ, {"RECOoutput": "RECO"})}
    )
    bench.profile(Reco=(2, 1))
    bench.process("job", "proc_000000")
    record = records(bench, "proc_000000")["Reco"]
    assert (record["processes"], record["undivided"]) == (1, "1 of 2 processes: whole input files are not cut")


@pytest.fixture
def one(bench: Workbench) -> Workbench:
    """A node that generates 20 events in 4 lumis."""
    job = job_document([step(1, "Gen", ["GENoutput"])], [output("Gen", "GENoutput", "GEN")])
    bench.prepare(job, [generating_node(0, 20, 5)], {"step1_Gen.py": pset("GEN", GENERATE, {"GENoutput": "GEN"})})
    return bench


def test_threads_are_as_told_also_more_than_cores_and_seeds_differ(one: Workbench) -> None:
    one.profile(Gen=(2, 5, 100))
    one.process("job", "proc_000000")
    record = records(one, "proc_000000")["Gen"]
    assert (record["processes"], record["threads"], record["undivided"]) == (2, 5, "")
    tweaks = [log(one, "proc_000000", f"step1_Gen.{number}/tweak.json") for number in range(2)]
    assert [(tweak["threads"], tweak["max_events"]) for tweak in tweaks] == [(5, 10), (5, 10)]
    assert [tweak["generate"]["first_event"] for tweak in tweaks] == [1, 11]
    assert tweaks[0]["seed"] != tweaks[1]["seed"]


@pytest.mark.parametrize(
    ("cores", "memory_mb", "fit", "why"),
    [
        (8, 2500, 2, "2 of 4 processes: the slot has 2500 MB, one takes 1000 MB"),
        pytest.param(3, 8000, 3, "3 of 4 processes: the slot has 3 cores", marks=ROOM),
        pytest.param(8, 900, 1, "1 of 4 processes: the slot has 900 MB, one takes 1000 MB", marks=ROOM),
    ],
)
def test_a_smaller_slot_runs_fewer_processes_and_says_so(one: Workbench, cores: int, memory_mb: int, fit: int, why: str) -> None:
    one.cores, one.memory_mb = cores, memory_mb
    one.profile(Gen=(4, 2, 1000))
    one.process("job", "proc_000000")
    record = records(one, "proc_000000")["Gen"]
    assert (record["processes"], record["undivided"], record["events_read"]) == (fit, why, 20)


@pytest.mark.parametrize(
    "profile",
    ["", *(pytest.param(e, marks=NO_PROFILE) for e in (None, '{"schema": "wms2.step_profile/1", "version": 0, "steps": {}}'))],
)
def test_without_a_profile_a_step_is_one_process(one: Workbench, profile: str | None) -> None:
    if profile is not None:
        (one.dag / "step_profile.json").write_text(profile)
    one.process("job", "proc_000000")
    record = records(one, "proc_000000")["Gen"]
    assert (record["processes"], record["threads"]) == (1, 1)
    assert log(one, "proc_000000", "step1_Gen/tweak.json")["max_events"] == 20


@pytest.mark.parametrize("entry", ['{"processes": 0, "threads": 1}', '{"processes": 2}', "[]"])
def test_a_profile_that_makes_no_sense_is_refused(one: Workbench, entry: str) -> None:
    document = {"schema": "wms2.step_profile/1", "version": 1, "steps": {"Gen": json.loads(entry)}}
    (one.dag / "step_profile.json").write_text(json.dumps(document))
    report = one.run("job", "proc_000000").report
    assert report["exit_code"] == 95001 and "step_profile.json" in report["error_message"]


def faulty(bench: Workbench, script: str) -> None:
    """A cmsRun that does something else in the second of the processes."""
    directory = bench.root / "faulty"
    directory.mkdir()
    others = 'CMSSIM_FAIL=kind=hang exec "$real" "$@"'
    text = f'real="{bench.programs}/cmsRun"\ncase $PWD in *.1) {script} ;; *) {others} ;; esac\n'
    (directory / "cmsRun").write_text(f"#!/bin/sh\n{text}")
    (directory / "cmsRun").chmod(0o755)
    bench.variables["PATH"] = f"{directory}:{bench.programs}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ('CMSSIM_FAIL=exitCode=8021 exec "$real" "$@"', 8021, "SimulatedFailure"),
        pytest.param('CMSSIM_FAIL=kind=signal,signal=9 exec "$real" "$@"', 137, "cmsRun ended with 137", marks=ENDS),
        ("exit 90", 7002, "cmsRun ended with 90"),
    ],
    ids=["exception", "killed for memory", "configuration"],
)
def test_one_that_fails_ends_the_others_and_its_code_is_the_steps(one: Workbench, script: str, code: int, message: str) -> None:
    faulty(one, script)
    one.profile(Gen=(3, 1))
    report = one.run("job", "proc_000000").report
    assert (report["exit_code"], report["exit_step"], report["outputs"]) == (code, "Gen", [])
    assert message in report["error_message"]
    assert report["steps"][0]["processes"] == 3 and report["steps"][0]["exit_code"] == code
    assert not list(one.storage().rglob("*.root"))


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("sed -i '/LumiSection ID=\"3\"/d' $2", 95002, "missing 1:3"),
        pytest.param("rm GENoutput.root", 60302, "GENoutput.root of GENoutput is missing", marks=PROOF),
        pytest.param("rm $2", 50115, "FrameworkJobReport.xml was not written", marks=PROOF),
        ("cp ../step1_Gen.0/FrameworkJobReport.xml $2", 95002, "processed other lumis"),
    ],
    ids=["missing lumi", "missing output", "no report", "the work of another"],
)
def test_each_process_has_to_prove_its_part(one: Workbench, script: str, code: int, message: str) -> None:
    directory = one.root / "faulty"
    directory.mkdir()
    wait = "case $PWD in *.1) sleep 3;; *) exit 0;; esac"
    (directory / "cmsRun").write_text(f'#!/bin/sh\n"{one.programs}/cmsRun" "$@" || exit\n{wait}\n{script}\n')
    (directory / "cmsRun").chmod(0o755)
    one.variables["PATH"] = f"{directory}:{one.programs}:/usr/bin:/bin"
    one.profile(Gen=(2, 1))
    report = one.run("job", "proc_000000").report
    assert report["exit_code"] == code and message in report["error_message"]
    assert not list(one.storage().rglob("*.root"))


def test_a_merge_refuses_a_node_whose_files_are_not_those_of_all_its_processes(one: Workbench) -> None:
    one.profile(Gen=(2, 1))
    one.process("job", "proc_000000")
    assert one.script("collect") == 0
    document = one.read("merge_input.json")
    document["reports"][0]["outputs"].pop()
    (one.place / "merge_input.json").write_text(json.dumps(document))
    report = one.run("merge", "merge").report
    assert report["exit_code"] == 95001 and "proc_000000 reports 1 files of Gen/GENoutput, expected 2" in report["error_message"]


def test_hours_of_a_simulated_clock_are_what_the_report_says(one: Workbench, tmp_path: Path) -> None:
    truth = {"Gen": {"timePerEvent": 1440, "serialFraction": 0.5, "cpuEfficiency": 1.0, "memoryMB": 700, "memoryPerThreadMB": 50}}
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    one.variables.update(CMSSIM_CLOCK="simulated", CMSSIM_SPEED="1e7", CMSSIM_PROFILE_FILE=str(tmp_path / "truth.json"))
    one.process("job", "proc_000000")
    alone = records(one, "proc_000000")["Gen"]
    one.profile(Gen=(4, 2))
    one.process("job", "proc_000000")
    split = records(one, "proc_000000")["Gen"]
    assert [round(each["wall_seconds"] / 3600, 1) for each in (alone, split)] == [8.0, 1.5]
    assert [round(each["cpu_seconds"] / 3600, 1) for each in (alone, split)] == [8.0, 8.0]
    assert [(each["peak_rss_mb"], each["slot_rss_mb"]) for each in (alone, split)] == [(750, 750), (800, 3200)]
    assert all(a <= b for a, b in pairwise((split["peak_rss_mb"], split["slot_rss_mb"])))
