"""The mock world of a document: what intake asks for is there, and nothing of the demo's own is made a second time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import world
from deploy.demo.inputs import write_inputs
from deploy.htcondor.sites import SITES
from deploy.simulators.seed import bulkblocks_of
from requests_app.intake import complete, parse
from tests.support.intake import LIMITS, Config, Module, real_document
from tests.support.places import ROOT

DEMO = ROOT / "deploy/demo"
MOCK_SITES = tuple(site.cms_name for site in SITES)
RUNNABLE = (
    "ReRecoRequestDump.json", "ReReco_LumiMask.json", "ReReco_RunBlocklists_Parents.json", "ReReco_failCase.json",
    "SC_6Tasks_PU.json", "SC_GPU.json", "SC_MCRecyc.json", "SC_Nano.json", "SC_ProdPsi.json", "StepChainRequestDump.json",
    "StepChain_MCStatic.json", "TC_Nano.json", "TaskChainRequestDump.json",
)  # fmt: skip


def _world(document: Mapping[str, Any], *, reuse: bool = False) -> world.World:
    configs, names = world.known() if reuse else (set(), set())
    return world.make(document, name="demo_test", known_configs=configs, known_datasets=names)


def _configs(made: world.World) -> dict[str, Config]:
    found = {}
    for entry in made.seed["configcache"]:
        process = entry["document"]["pset_tweak_details"]["process"]
        modules = [
            Module(label, process[label]["dataset"]["dataTier"], process[label]["dataset"]["filterName"])
            for label in process["outputModules_"]
        ]
        found[entry["document"]["_id"]] = Config(tuple(modules), entry["pset"], entry["document"]["pset_hash"])
    return found


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_real_document_can_run_in_its_world(name: str) -> None:
    made = _world(real_document(name))

    draft = parse(made.document, request_name=None, limits=LIMITS, known_sites=MOCK_SITES)
    spec = complete(draft, _configs(made))  # type: ignore[arg-type]

    datasets = {dataset["dataset"] for dataset in made.seed["dbs"]["datasets"]}
    assert spec.input is None or spec.input.dataset in datasets
    assert {pileup.dataset for step in spec.steps for pileup in step.pileup} <= datasets
    assert {output.tier for output in spec.outputs} <= set(made.seed["dbs"]["data_tiers"])
    assert spec.resources.gpu is None or not spec.resources.gpu.required
    for dataset in made.seed["dbs"]["datasets"]:
        assert not [block for block in dataset["blocks"] if not block["files"]]


def test_what_a_mask_wants_is_in_the_input_and_something_else_too() -> None:
    made = _world(real_document("ReReco_LumiMask.json"))

    (dataset,) = made.seed["dbs"]["datasets"]
    lumis = {(lumi["run"], lumi["lumi"]) for block in dataset["blocks"] for file in block["files"] for lumi in file["lumis"]}
    assert {(356174, 1), (356174, 2), (356165, 20), (356164, 40)} <= lumis
    assert {(356174, 3), (356175, 1)} <= lumis


def test_parents_and_listed_blocks_are_there() -> None:
    document = real_document("ReReco_RunBlocklists_Parents.json")
    made = _world(document)

    parents, dataset = made.seed["dbs"]["datasets"]
    known = {file["lfn"] for block in parents["blocks"] for file in block["files"]}
    assert {parent for block in dataset["blocks"] for file in block["files"] for parent in file["parents"]} == known
    assert set(document["createRequest"]["BlockWhitelist"]) < {block["block_name"] for block in dataset["blocks"]}


def test_trusted_site_lists_find_the_files_everywhere() -> None:
    made = _world(real_document("ReReco_RunBlocklists_Parents.json"))

    assert all(len(block["rses"]) == len(SITES) for block in made.seed["dbs"]["datasets"][1]["blocks"])


def test_what_was_changed_is_said() -> None:
    notes = " ".join(_world(real_document("SC_GPU.json")).notes)

    for word in ("RequiresGPU", "JobExtraMatchRequirements", "SiteWhitelist", "'demo_test'"):
        assert word in notes
    assert "OpenRunningTimeout: 10 s" in " ".join(_world(real_document("ReReco_LumiMask.json")).notes)
    assert _world(json.loads((DEMO / "requests/stepchain_scratch.json").read_text())).notes == []


def test_the_demos_own_documents_need_nothing_new() -> None:
    for name in ("stepchain_scratch.json", "rereco_input.json", "rereco_root.json"):
        made = _world(json.loads((DEMO / "requests" / name).read_text()), reuse=True)
        assert (made.seed["configcache"], made.seed["dbs"]["datasets"]) == ([], [])


@pytest.mark.parametrize("name", ["stepchain_pileup.json", "taskchain.json"])
def test_the_demos_further_documents_run_in_their_worlds(name: str) -> None:
    made = _world(json.loads((DEMO / "requests" / name).read_text()), reuse=True)

    spec = complete(parse(made.document, request_name=None, limits=LIMITS, known_sites=MOCK_SITES), _configs(made))  # type: ignore[arg-type]

    assert made.notes == []
    assert any(step.pileup for step in spec.steps) == (name == "stepchain_pileup.json")
    assert [task.name for task in spec.tasks] == ([] if name == "stepchain_pileup.json" else ["GenSim", "DigiReco", "Nano"])


def test_the_files_of_a_world_can_be_written_and_registered(tmp_path: Path) -> None:
    made = _world(json.loads((DEMO / "requests/stepchain_pileup.json").read_text()))
    seed = tmp_path / "seed.json"
    seed.write_text(json.dumps(made.seed))

    total, new = write_inputs(seed, tmp_path / "storage")

    (pileup,) = made.seed["dbs"]["datasets"]
    first = pileup["blocks"][0]
    copies = [(tmp_path / "storage" / rse / first["files"][0]["lfn"].lstrip("/")).read_bytes() for rse in first["rses"]]
    assert copies[0] == copies[1]
    assert (total, new) == (18, 18), "three blocks of three files at two sites each"
    bodies = list(bulkblocks_of(pileup, tmp_path / "storage"))
    assert [body["block"]["file_count"] for body in bodies] == [3, 3, 3]
    assert bodies[0]["primds"]["primary_ds_type"] == "mc"
