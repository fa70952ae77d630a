"""Nodes of a later task that read a part of one file each, as processes: everything is read once, whatever the filter left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.payload_schemas import validate
from tests.support.payload_workbench import HALF, Workbench, event_numbers
from tests.support.payload_workbench import SHARING_DIGI as DIGI
from tests.support.payload_workbench import SHARING_RECO as RECO
from tests.support.payload_workbench import chain_of_shares as chain

HERE = "tests/dags_app/payload/test_task_shares.py"
EVENTS = 20

NOTHING = HALF.replace("0.5", "0.0")

pytestmark = pytest.mark.slow


DATA = pytest.mark.dear("data: later nodes read everything of earlier ones once, through real files")


def run(bench: Workbench) -> dict[str, Any]:
    """All nodes up to the merge; the reports of the later ones."""
    bench.process("job", "proc_000000")
    reports = {}
    for node in (*DIGI, *RECO, "t3_000002"):
        assert bench.script("gather", node) == 0
        validate("node_input", bench.read(f"{node}.input.json"))
        bench.process("job", node)
        reports[node] = bench.read(f"{node}.0.report.json")
        validate("report", reports[node])
    assert bench.script("collect") == 0
    return reports


@pytest.fixture
def bench(tmp_path: Path, payload: Path, programs: Path) -> Workbench:
    return Workbench(tmp_path, payload, programs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, payload: Path, programs: Path) -> Workbench:
    """Without a filter, up to the merge; the first step leaves two files."""
    bench = Workbench(tmp_path_factory.mktemp("whole"), payload, programs, cores=8)
    chain(bench)
    bench.profile(GenSim=(2, 1))
    run(bench)
    return bench


@pytest.fixture
def collected(whole: Workbench, tmp_path: Path) -> Workbench:
    """A copy of it for this test."""
    return whole.copy_to(tmp_path)


def merged(bench: Workbench) -> dict[str, list[Any]]:
    bench.process("merge", "merge")
    manifest = bench.read("merge_output.json")
    validate("manifest", manifest)
    return {
        output["tier"]: [event_numbers(bench.stored(file["lfn"])) for file in output["files"]] for output in manifest["outputs"]
    }


@DATA
def test_nodes_that_share_a_file_read_each_of_its_events_once_by_lumis_and_by_events(collected: Workbench) -> None:
    reports = {node: collected.read(f"{node}.0.report.json") for node in (*DIGI, *RECO)}
    lumis = [reports[node]["processed"]["lumis"] for node in DIGI]
    assert lumis == [{"1": [[1, 2]]}, {"1": [[3, 3]]}, {"1": [[4, 5]]}]
    assert [reports[node]["processed"]["events"] for node in (*DIGI, *RECO)] == [8, 4, 8, 4, 4]
    (first,), (second,) = (reports[node]["processed"]["files"] for node in RECO)
    assert (first["first_event"], first["last_event"], second["first_event"], second["last_event"]) == (0, 3, 4, 7)
    assert first["lfn"] == second["lfn"] == reports[DIGI[0]]["outputs"][0]["lfn"]
    (sim,), (aod,) = merged(collected).values()
    assert sorted(aod) == sorted(sim) and len(set(sim)) == EVENTS


@pytest.mark.deep(f"{HERE}::test_a_node_with_nothing_to_read_ends_well_and_leaves_nothing_to_merge")
def test_a_filter_that_leaves_fewer_events_than_expected_changes_the_shares_and_loses_nothing(bench: Workbench) -> None:
    chain(bench, HALF)
    reports = run(bench)
    (sim,), (aod,) = merged(bench).values()
    assert 0 < len(sim) < EVENTS, "the filter was meant to leave some"
    assert sorted(aod) == sorted(sim)
    dealt = [
        lumi
        for node in DIGI
        for first, last in reports[node]["processed"]["lumis"].get("1", ())
        for lumi in range(first, last + 1)
    ]
    assert dealt == [1, 2, 3, 4, 5], "lumis without events, too"


@DATA
def test_a_node_with_nothing_to_read_ends_well_and_leaves_nothing_to_merge(bench: Workbench) -> None:
    chain(bench, NOTHING)
    reports = run(bench)
    idle = reports[RECO[1]]
    assert (idle["exit_code"], idle["steps"], idle["outputs"], idle["processed"]["files"]) == (0, [], [], [])
    assert reports[RECO[0]]["outputs"], "the first of them keeps the lumis of a file without events"
    files = merged(bench)
    assert [rows for tier in files.values() for rows in tier] == [[], []]
    assert bench.run("cleanup", "cleanup").value == 0


def test_a_level_that_did_not_read_all_that_was_left_to_it_is_not_merged(collected: Workbench) -> None:
    document = collected.read("merge_input.json")
    (report,) = [each for each in document["reports"] if each["node"] == DIGI[1]]
    report["processed"]["files"][0]["events"] -= 1
    (collected.place / "merge_input.json").write_text(json.dumps(document))
    done = collected.run("merge", "merge")
    assert done.report["exit_code"] == 95002
    assert "the jobs of task 2 read 11 events of" in done.report["error_message"]


def test_a_share_that_is_none_is_refused(bench: Workbench) -> None:
    chain(bench)
    unit = bench.read("unit.json")
    unit["jobs"][1]["share"]["part"] = 3
    (bench.place / "unit.json").write_text(json.dumps(unit))
    assert bench.script("gather", DIGI[0]) == 1
    assert "there is no part 3 of 3" in (bench.place / "scripts.log").read_text()
