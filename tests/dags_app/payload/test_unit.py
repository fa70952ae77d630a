"""A whole work unit as processes: three generating jobs of a three-step chain, collect, merge, cleanup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dags_app.manifest import read_manifest
from dags_app.payload.contract.files import adler32
from tests.support.payload_psets import pset
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import Workbench, chain, event_numbers, generating_node, job_document, output, step

NODES, EVENTS, PER_LUMI = 3, 40, 10
FIRST_EVENT = 2**32 - 100  # the numbers of the jobs cross the 32-bit border

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory, payload: Path, programs: Path) -> Workbench:
    """The unit after its processing nodes and collect."""
    bench = Workbench(tmp_path_factory.mktemp("unit"), payload, programs)
    chain(bench, NODES, EVENTS, PER_LUMI, max_bytes=110_000)
    for index in range(NODES):
        bench.process("job", f"proc_{index:06d}")
    assert bench.script("collect") == 0
    return bench


def merged_files(bench: Workbench) -> dict[str, list[dict[str, Any]]]:
    manifest = bench.read("merge_output.json")
    return {output["tier"]: output["files"] for output in manifest["outputs"]}


@pytest.mark.dear("data: the set-up of the unit that all of this file looks at")
def test_every_report_follows_its_schema(unit: Workbench) -> None:
    for index in range(NODES):
        validate("report", unit.read(f"proc_{index:06d}.0.report.json"))
        validate("post", unit.read(f"proc_{index:06d}.post.json"))
    validate("merge_input", unit.read("merge_input.json"))


def test_only_kept_outputs_are_staged_out(unit: Workbench) -> None:
    report = unit.read("proc_000000.0.report.json")
    assert [(o["step"], o["module"]) for o in report["outputs"]] == [
        ("GenSim", "FEVTDEBUGoutput"),
        ("Reco", "AODSIMoutput"),
        ("Reco", "MINIAODSIMoutput"),
    ]
    assert not list(unit.storage().rglob("*.part"))


@pytest.mark.dear("data: every event is in one merged file")
def test_merging_is_exact_and_repeating_it_overwrites_nothing(unit: Workbench) -> None:
    unit.process("merge", "merge")
    first = merged_files(unit)
    validate("manifest", unit.read("merge_output.json"))
    wanted = set(range(FIRST_EVENT, FIRST_EVENT + NODES * EVENTS))
    for tier, files in first.items():
        assert len(files) > 1, f"{tier}: the limits were meant to give several merged files"
        rows = [row for file in files for row in event_numbers(unit.stored(file["lfn"]))]
        assert len(rows) == len(wanted) and {event for _, _, event in rows} == wanted
        assert sorted({lumi for _, lumi, _ in rows}) == list(range(7, 7 + NODES * EVENTS // PER_LUMI))
        assert rows == sorted(rows), "merged files follow the order of the lumis"

    before = {path: (path.stat().st_ino, adler32(path)) for path in on_disk(unit)}
    unit.process("merge", "merge", attempt=1)
    again = {file["lfn"] for files in merged_files(unit).values() for file in files}
    assert not again & {file["lfn"] for files in first.values() for file in files}
    assert {path: (path.stat().st_ino, adler32(path)) for path in before} == before
    assert set(on_disk(unit)) == {*before, *map(unit.stored, again)}


def on_disk(bench: Workbench) -> list[Path]:
    """Merged files, also those that do not count."""
    return [path for path in (bench.storage() / "store/mc").rglob("*") if path.is_file()]


def test_the_manifest_tells_the_truth_about_each_file(unit: Workbench) -> None:
    for files in merged_files(unit).values():
        for file in files:
            path = unit.stored(file["lfn"])
            assert (path.stat().st_size, adler32(path)) == (file["size_bytes"], file["adler32"])
            rows = event_numbers(path)
            assert file["events"] == len(rows)
            counted = {lumi: sum(1 for _, number, _ in rows if number == lumi) for lumi, _ in file["lumis"]["1"]}
            assert dict(map(tuple, file["lumis"]["1"])) == counted


def test_each_merged_file_names_the_pieces_of_the_claim_it_was_made_from(unit: Workbench) -> None:
    for files in merged_files(unit).values():
        pieces = [file["pieces"] for file in files]
        made = [(each["first_event"], each["last_event"]) for piece in pieces for each in piece["generated"]]
        assert made == [(FIRST_EVENT + n * EVENTS, FIRST_EVENT + (n + 1) * EVENTS - 1) for n in range(NODES)]
        for file, piece in zip(files, pieces, strict=True):
            events = [event for _, _, event in event_numbers(unit.stored(file["lfn"]))]
            assert (events[0], events[-1]) == (piece["generated"][0]["first_event"], piece["generated"][-1]["last_event"])
            assert {lumi for lumi, _ in file["lumis"]["1"]} == {n for a, b in piece["lumis"]["1"] for n in range(a, b + 1)}
    manifest, _ = read_manifest(unit.place / "merge_output.json")
    assert manifest.tells_pieces


def test_the_manifest_names_what_every_node_processed_and_what_the_steps_took(unit: Workbench) -> None:
    manifest = unit.read("merge_output.json")
    assert [job["processed"]["events"] for job in manifest["jobs"]] == [EVENTS] * NODES
    assert manifest["jobs"][1]["processed"]["lumis"] == {"1": [[11, 14]]}
    assert set(manifest["metrics"]["steps"]) == {"GenSim", "Digi", "Reco"}
    for name, metrics in manifest["metrics"]["steps"].items():
        assert [job["node"] for job in metrics["jobs"]] == [f"proc_{index:06d}" for index in range(NODES)], name
    typed = read_manifest(unit.place / "merge_output.json")[0].step_metrics
    assert {name: [job.model_dump() for job in jobs] for name, jobs in typed.items()} == {
        name: metrics["jobs"] for name, metrics in manifest["metrics"]["steps"].items()
    }
    digi, reco = typed["Digi"][0], typed["Reco"][0]
    assert (reco.processes, reco.threads, reco.peak_rss_mb, reco.slot_rss_mb) == (1, 1, 64.0, 64.0)
    assert (reco.events_read, reco.events_written, reco.wall_seconds > 0) == (EVENTS, EVENTS, True)
    assert set(reco.bytes_written) == {"AODSIMoutput", "MINIAODSIMoutput"}
    assert digi.bytes_written["FEVTDEBUGHLToutput"] > 0, "what nobody keeps is counted too"
    assert manifest["fence"] == unit.fence and manifest["rse"] == "T1_US_FNAL_Disk"


def test_cleanup_removes_unmerged_files_losers_and_journals_only_once_the_merged_ones_are_there(unit: Workbench) -> None:
    accepted = {file["lfn"] for files in merged_files(unit).values() for file in files}
    lfn = min(accepted)
    assert len(on_disk(unit)) > len(accepted), "an earlier attempt has left its own"
    away = unit.stored(lfn).rename(unit.root / "away.root")
    refused = unit.run("cleanup", "cleanup")
    assert refused.value != 0 and refused.report["exit_code"] == 95007
    assert list((unit.storage() / "store/unmerged").rglob("*.root")), "nothing may be removed"

    away.rename(unit.stored(lfn))
    journal = next((unit.storage() / "store/unmerged").rglob("*_journals/*.json"))
    (journal.parent / f".{journal.name}.1.tmp").write_text("{", encoding="utf-8")  # its start was killed while it wrote
    assert unit.run("cleanup", "cleanup", attempt=1).value == 0
    assert not [path for path in (unit.storage() / "store/unmerged").rglob("*") if path.is_file() or "_journals" in path.name]
    assert set(on_disk(unit)) == set(map(unit.stored, accepted)), "what lost is gone, what counts is there"
    assert unit.run("cleanup", "cleanup", attempt=2).value == 0, "removing what is gone is no failure"


def test_a_job_that_reads_lhe_files_takes_the_events_that_its_numbers_name(tmp_path: Path, payload: Path, programs: Path) -> None:
    bench = Workbench(tmp_path, payload, programs)
    job = job_document([step(1, "Gen", ["GENoutput"])], [output("Gen", "GENoutput", "GEN")])
    node = generating_node(0, 10, 5, first_event=101, first_lumi=7)
    lhe = 'process.source = cms.Source("LHESource",\n    fileNames = cms.untracked.vstring("/store/lhe/1/a.lhe")\n)'
    bench.prepare(job, [node], {"step1_Gen.py": pset("GEN", lhe, {"GENoutput": "GEN"})})
    bench.process("job", "proc_000000")
    report = bench.read("proc_000000.0.report.json")
    assert report["processed"]["lumis"] == {"1": [[7, 8]]}
    numbers = event_numbers(bench.stored(report["outputs"][0]["lfn"]))
    assert sorted(row[-1] for row in numbers) == list(range(101, 111))
