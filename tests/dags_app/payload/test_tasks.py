"""A unit of a chain of tasks as processes: two levels and a branch beside them, an output that is only handed on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dags_app.manifest import read_manifest
from tests.support.payload_psets import GENERATE, READ, pset
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import HALF, Workbench, event_numbers, generating_node, job_document, output, step, task

EVENTS, PER_LUMI = 20, 10
FIRST, DIGI, NANO, RECO = ["proc_000000", "proc_000001"], ["t2_000000"], ["t3_000000", "t3_000001"], ["t4_000000"]

pytestmark = pytest.mark.slow


def later_node(name: str, task: int, reads: list[str]) -> dict[str, Any]:
    return {"node": name, "task": task, "events": 10, "reads": reads, "generate": None, "files": [], "mask": None}


def tree(bench: Workbench) -> None:
    """GenSim (kept, half of its events pass) is read by Digi (handed on), both files at once, and by Nano; Reco reads Digi."""
    sim, digi = ("GenSim", "SIMoutput"), ("Digi", "DIGIoutput")
    job = job_document(
        [
            step(1, "GenSim", ["SIMoutput"]),
            step(2, "Digi", ["DIGIoutput"], sim, keep_output=False),
            step(3, "Nano", ["NANOoutput"], sim),
            step(4, "Reco", ["AODoutput"], digi),
        ],
        [output("GenSim", "SIMoutput", "GEN-SIM"), output("Nano", "NANOoutput", "NANOAOD"), output("Reco", "AODoutput", "AOD")],
    )
    job["tasks"] = [task(1, "GenSim"), task(2, "Digi", sim), task(3, "Nano", sim), task(4, "Reco", digi)]
    base = "/store/unmerged/Era/Primary/DIGIoutput/Proc-v1"
    job["transient"] = [{"step": "Digi", "module": "DIGIoutput", "unmerged_lfn_base": base}]
    validate("job", job)
    nodes = [generating_node(index, EVENTS, PER_LUMI) | {"task": 1} for index in range(2)]
    nodes += [later_node("t2_000000", 2, FIRST), *(later_node(NANO[i], 3, [FIRST[i]]) for i in range(2))]
    nodes.append(later_node("t4_000000", 4, DIGI))
    psets = {
        "step1_GenSim.py": pset("SIM", GENERATE, {"SIMoutput": "GEN-SIM"}, HALF),
        "step2_Digi.py": pset("DIGI", READ, {"DIGIoutput": "DIGI"}),
        "step3_Nano.py": pset("NANO", READ, {"NANOoutput": "NANOAOD"}),
        "step4_Reco.py": pset("RECO", READ, {"AODoutput": "AOD"}),
    }
    bench.prepare(job, nodes, psets)
    validate("unit", bench.read("unit.json"))


@pytest.fixture(scope="module")
def first_level(tmp_path_factory: pytest.TempPathFactory, payload: Path, programs: Path) -> Workbench:
    """The first task's jobs done; not to be changed."""
    bench = Workbench(tmp_path_factory.mktemp("tasks"), payload, programs)
    tree(bench)
    for node in FIRST:
        bench.process("job", node)
    return bench


@pytest.fixture(scope="module")
def whole(first_level: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """All processing done and collected."""
    bench = first_level.copy_to(tmp_path_factory.mktemp("whole"))
    for node in (*DIGI, *NANO, *RECO):
        assert bench.script("gather", node) == 0
        bench.process("job", node)
    assert bench.script("collect") == 0
    return bench


@pytest.fixture
def bench(first_level: Workbench, tmp_path: Path) -> Workbench:
    """A copy with the first task's jobs done."""
    return first_level.copy_to(tmp_path)


def unmerged(bench: Workbench) -> set[str]:
    """Names of the tier directories that hold unmerged files."""
    return {path.relative_to(bench.storage()).parts[4] for path in (bench.storage() / "store/unmerged").rglob("*.root")}


def test_a_later_node_is_given_exactly_the_files_of_its_upstream_nodes(bench: Workbench) -> None:
    assert bench.script("gather", "t2_000000") == 0
    given = bench.read("t2_000000.input.json")
    validate("node_input", given)
    outputs = [bench.read(f"{node}.0.report.json")["outputs"][0] for node in FIRST]
    assert [(file["node"], file["lfn"], file["events"]) for file in given["files"]] == [
        (node, out["lfn"], out["events"]) for node, out in zip(FIRST, outputs, strict=True)
    ]


def test_a_later_node_does_not_start_before_its_upstream_nodes_are_done_or_when_they_ran_elsewhere(bench: Workbench) -> None:
    assert bench.script("gather", "t4_000000") == 1
    assert "t2_000000.post.json" in (bench.place / "scripts.log").read_text()
    (bench.place / "site.inc").write_text("ELECTED_SITE = T2_CH_CERN\n")
    assert bench.script("gather", "t2_000000") == 1
    assert "its output is elsewhere" in (bench.place / "scripts.log").read_text()
    assert not (bench.place / "t2_000000.input.json").exists()


def test_a_file_that_does_not_hold_what_its_report_says_fails_the_job(bench: Workbench) -> None:
    assert bench.script("gather", "t3_000000") == 0
    given = bench.read("t3_000000.input.json")
    given["files"][0]["events"] += 1
    (bench.place / "t3_000000.input.json").write_text(json.dumps(given))
    done = bench.run("job", "t3_000000")
    assert done.report["exit_code"] == 95002
    assert "it holds" in done.report["error_message"]


def test_a_file_that_has_gone_fails_the_job_and_leaves_nothing(bench: Workbench) -> None:
    assert bench.script("gather", "t2_000000") == 0
    bench.stored(bench.read("t2_000000.input.json")["files"][1]["lfn"]).unlink()
    done = bench.run("job", "t2_000000")
    assert done.report["exit_code"] == 8020
    assert done.report["outputs"] == []
    assert bench.post(done) == 1
    verdict = bench.read("t2_000000.post.json")["classification"]
    assert (verdict["category"], verdict["bad_input_files"]) == ("infrastructure", []), "it is no file of the request's input"


def test_each_level_reads_exactly_what_the_one_before_it_wrote(whole: Workbench) -> None:
    wrote = {node: whole.read(f"{node}.0.report.json")["outputs"][0] for node in (*FIRST, *DIGI)}
    for node, upstream in (("t2_000000", FIRST), (NANO[0], FIRST[:1]), (NANO[1], FIRST[1:]), ("t4_000000", DIGI)):
        report = whole.read(f"{node}.0.report.json")
        validate("report", report)
        assert [(file["lfn"], file["events"]) for file in report["processed"]["files"]] == [
            (wrote[each]["lfn"], wrote[each]["events"]) for each in upstream
        ]
        assert [step["name"] for step in report["steps"]] == [{"2": "Digi", "3": "Nano", "4": "Reco"}[node[1]]]
    assert unmerged(whole) == {"GEN-SIM", "DIGIoutput", "NANOAOD", "AOD"}


def test_every_kept_output_is_merged_and_its_parents_are_files_that_catalogues_know(whole: Workbench) -> None:
    whole.process("merge", "merge")
    manifest = whole.read("merge_output.json")
    validate("manifest", manifest)
    files = {output["tier"]: output["files"] for output in manifest["outputs"]}
    assert {tier: len(each) for tier, each in files.items()} == {"GEN-SIM": 1, "NANOAOD": 1, "AOD": 1}
    rows = {tier: event_numbers(whole.stored(each[0]["lfn"])) for tier, each in files.items()}
    assert 0 < len(rows["GEN-SIM"]) < 2 * EVENTS, "the filter was meant to leave some"
    assert rows["AOD"] == rows["GEN-SIM"] == rows["NANOAOD"]
    assert files["GEN-SIM"][0]["parents"] == []
    merged = [files["GEN-SIM"][0]["lfn"]]
    assert files["NANOAOD"][0]["parents"] == files["AOD"][0]["parents"] == merged
    assert [(job["node"], job["task"]) for job in manifest["jobs"]] == [
        *((node, 1) for node in FIRST),
        ("t2_000000", 2),
        *((node, 3) for node in NANO),
        ("t4_000000", 4),
    ]
    claimed = read_manifest(whole.place / "merge_output.json")[0].claimants
    assert [job.processed.events for job in claimed] == [EVENTS, EVENTS]

    assert whole.run("cleanup", "cleanup").value == 0
    assert unmerged(whole) == set(), "kept and handed-on files are gone"
    assert whole.stored(merged[0]).is_file()


def test_leaving_a_site_lists_what_every_level_left_there(bench: Workbench) -> None:
    assert bench.script("gather", "t2_000000") == 0
    bench.process("job", "t2_000000")
    (bench.dag / "avoid.inc").write_text(f"DAG_AVOID = {bench.site}\n")
    assert bench.script("reelect", bench.unit, 0, directory=bench.dag) == 0
    listed = [json.loads(line) for line in (bench.place / "orphans.jsonl").read_text().splitlines()]
    orphans = [line for line in listed if "journals" not in line]
    assert sorted(orphan["node"] for orphan in orphans) == [*FIRST, "t2_000000"]
    assert any("/DIGIoutput/" in orphan["lfn"] for orphan in orphans)
    assert bench.script("gather", "t2_000000") == 1, "nothing of the other site counts"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda job: job["tasks"].pop(), "every step has to be in exactly one task"),
        (lambda job: job["tasks"][3].update(number=5), "numbered from 1"),
        (lambda job: job["tasks"][3].update(input_module="AODoutput"), "has to begin with what it reads"),
        (lambda job: job.update(transient=[]), "reads Digi/DIGIoutput, which is not staged out"),
    ],
)
def test_tasks_that_do_not_fit_together_are_refused(bench: Workbench, change: Any, problem: str) -> None:
    job = json.loads((bench.dag / "job.json").read_text())
    change(job)
    (bench.dag / "job.json").write_text(json.dumps(job))
    assert bench.script("gather", "t2_000000") == 1
    assert problem in (bench.place / "scripts.log").read_text()
