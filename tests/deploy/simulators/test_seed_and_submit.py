"""The command line: seeding from files, submitting requests; and the documents of the demo."""

from __future__ import annotations

import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.inputs import write_inputs
from deploy.simulators import cli, seed
from deploy.simulators.client import Caller, CallFailed, submit
from deploy.simulators.worker.rootfiles import read_events
from tests.support.places import real_inputs
from tests.support.simulator_world import DEMO, World, put_config

INPUT = DEMO / "rereco_input_dataset.json"
SITES = {"T1_US_FNAL_Disk", "T2_CH_CERN", "T2_US_Purdue"}


def write(path: Path, value: Any) -> Path:
    """A JSON file."""
    path.write_text(json.dumps(value))
    return path


def test_the_demos_seed_may_be_applied_twice(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert cli.main(["seed", "--url", world.url, "--file", str(DEMO / "seed.json")]) == 0
    assert "there already" in capsys.readouterr().out
    assert "GEN-SIM" in {record["data_tier_name"] for record in world.read("datatiers")}


def test_several_may_apply_it_at_the_same_time(world: World) -> None:
    file = DEMO / "seed.json"
    with ThreadPoolExecutor(8) as seeders:
        lines = [line for done in seeders.map(lambda _: seed.apply(Caller(world.url), file), range(8)) for line in done]
    entries = json.loads(file.read_text())["configcache"]
    assert sum(line.startswith("configcache: ") for line in lines) == 8 * len(entries)
    for entry in entries:
        identifier = json.loads((DEMO / entry["document_file"]).read_text())["_id"]
        text = world.couch("GET", f"reqmgr_config_cache/{identifier}/configFile").text
        assert text == (DEMO / entry["pset_file"]).read_text()


def test_the_psets_of_the_demo_have_the_modules_their_documents_name(prepared: World) -> None:
    for entry in json.loads((DEMO / "seed.json").read_text())["configcache"]:
        document = json.loads((DEMO / entry["document_file"]).read_text())
        text = prepared.couch("GET", f"reqmgr_config_cache/{document['_id']}/configFile").text
        assert text == (DEMO / entry["pset_file"]).read_text()
        process = document["pset_tweak_details"]["process"]
        for module in process["outputModules_"]:
            assert f"process.{module} = cms.OutputModule" in text
            assert f'dataTier=cms.untracked.string("{process[module]["dataset"]["dataTier"]}")' in text


def test_the_stepchain_of_the_demo_is_submitted_and_staged(prepared: World, capsys: pytest.CaptureFixture[str]) -> None:
    file = DEMO / "requests" / "stepchain_scratch.json"
    assert cli.main(["submit", "--url", prepared.url, "--file", str(file), "--team", "elsewhere", "--login", "alice"]) == 0
    name = capsys.readouterr().out.strip()
    assert name.startswith("alice_demo_stepchain_scratch_")
    document = prepared.request(name)
    assert (document["RequestStatus"], document["Team"]) == ("staged", "elsewhere")
    step = document["Step1"]
    assert (document["FirstLumi"], document["FirstEvent"], step["EventsPerLumi"], step["RequestNumEvents"]) == (
        101,
        10001,
        10,
        3200,
    )
    assert step["RequestNumEvents"] / step["EventsPerJob"] == 32
    prepared.reqmgr2("GET", "request?status=staged")  # a list is as old as the question before
    found = prepared.reqmgr2("GET", "request?status=staged&team=elsewhere&detail=false").json()["result"]
    assert found == [name]
    assert cli.main(["submit", "--url", prepared.url, "--file", str(file), "--once"]) == 0
    assert capsys.readouterr().out.strip() == name, "it is there already"


def test_the_rereco_of_the_demo_reads_files_that_exist(prepared: World, tmp_path: Path) -> None:
    files = 48 + 6 + 8  # and their parents, and those of the site behind a server
    assert write_inputs(INPUT, tmp_path) == (files, files)
    assert write_inputs(INPUT, tmp_path) == (files, 0)
    arguments = ["seed", "--url", prepared.url, "--file", str(INPUT), "--storage-root", str(tmp_path)]
    assert cli.main(arguments) == 0
    name = submit(Caller(prepared.url), json.loads((DEMO / "requests" / "rereco_input.json").read_text()))
    dataset = prepared.request(name)["InputDataset"]
    blocks = prepared.read("blocks", dataset=dataset, detail=1)
    assert {block["origin_site_name"] for block in blocks} == SITES
    events: list[int] = []
    for block in blocks:
        lumis: dict[str, set[tuple[int, int]]] = {}
        for record in prepared.read("filelumis", block_name=block["block_name"]):
            lumis.setdefault(record["logical_file_name"], set()).add((record["run_num"], record["lumi_section_num"]))
        for record in prepared.read("files", block_name=block["block_name"], detail=1):
            path = tmp_path / block["origin_site_name"] / record["logical_file_name"].lstrip("/")
            data = path.read_bytes()
            assert (record["file_size"], record["adler32"]) == (len(data), f"{zlib.adler32(data):08x}")
            table, found_lumis = read_events(path)
            assert set(found_lumis) == lumis[record["logical_file_name"]]
            assert len(table) == record["event_count"] == 50
            events += [int(number) for number in table.event]
    assert sorted(events) == list(range(1, 48 * 50 + 1))
    assert cli.main(arguments) == 0  # again, without harm
    assert len(prepared.read("files", dataset=dataset)) == 48


def test_a_seed_without_file_facts_asks_for_the_storage(world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["seed", "--url", world.url, "--file", str(INPUT)]) == 1
    assert "--storage-root" in capsys.readouterr().err
    assert cli.main(["seed", "--url", world.url, "--file", str(INPUT), "--storage-root", str(tmp_path)]) == 1
    assert "there is no file" in capsys.readouterr().err


def test_datasets_with_parents_are_seeded(world: World, tmp_path: Path) -> None:
    def dataset(name: str, number: int, **parents: Any) -> dict[str, Any]:
        lfn = f"/store/data/Run2026A/P/AOD/v1/0/{number}.root"
        facts = {
            "lfn": lfn,
            "size_bytes": 10,
            "adler32": "00000001",
            "events": 5,
            "lumis": [{"run": 9, "lumi": number, "events": None}],
        }
        block = {
            "block_name": f"{name}#1",
            "origin_site_name": "T2_CH_CERN",
            "files": [facts | parents.pop("file", {})],
            **parents.pop("block", {}),
        }
        return {"dataset": name, "dataset_access_type": "VALID", "blocks": [block], **parents}

    raw, aod = "/P/Run2026A-v1/RAW", "/P/Run2026A-v1/AOD"
    child = dataset(
        aod, 2, parents=[raw], block={"parents": [f"{raw}#1"]}, file={"parents": ["/store/data/Run2026A/P/AOD/v1/0/1.root"]}
    )
    file = write(tmp_path / "seed.json", {"dbs": {"datasets": [dataset(raw, 1), child]}})
    assert cli.main(["seed", "--url", world.url, "--file", str(file)]) == 0
    assert world.read("datasets", dataset=aod) == [{"dataset": aod}]
    assert world.read("datasetparents", dataset=aod)[0]["parent_dataset"] == raw
    assert world.read("blockparents", block_name=f"{aod}#1")[0]["parent_block_name"] == f"{raw}#1"
    assert len(world.read("fileparents", block_name=f"{aod}#1")) == 1


@pytest.mark.parametrize(
    "seed",
    [
        [],
        {"nosuch": {}},
        {"dbs": {"nosuch": []}},
        {"configcache": [{"document": {}, "pset": "x"}]},
        {"dbs": {"datasets": [{"dataset": "nonsense", "blocks": []}]}}
        | {"dbs": {"datasets": [{"dataset": "x", "blocks": [{}]}]}},
        {"dbs": {"datasets": [{"dataset": "/P/Run2026A-v1/RAW", "generate": {"files": 5}}]}},
        {"dbs": {"datasets": [{"dataset": "/P/Run2026A-v1/RAW", "generate": {"files": -5, "sites": ["X"]}}]}},
        {"dbs": {"datasets": [{"dataset": "/P/RAW", "generate": {"files": 5, "sites": ["X"]}}]}},
    ],
)
def test_a_seed_of_another_form_is_refused_with_words(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: Any
) -> None:
    assert cli.main(["seed", "--url", world.url, "--file", str(write(tmp_path / "seed.json", seed))]) == 1
    assert capsys.readouterr().err.startswith("simulators: ")
    assert world.read("datasets", dataset_access_type="*") == []


def test_a_generated_dataset_of_another_size_is_refused(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for files, code in ((20, 0), (30, 1)):
        spec = {"dataset": "/P/Run2026A-v1/RAW", "generate": {"files": files, "sites": ["T2_CH_CERN"]}}
        file = write(tmp_path / "seed.json", {"dbs": {"datasets": [spec]}})
        assert cli.main(["seed", "--url", world.url, "--file", str(file)]) == code
    assert "exists with 20 files, not 30" in capsys.readouterr().err


def test_placeholders_are_named_before_anything_is_sent(world: World) -> None:
    pair = {
        "createRequest": {"Campaign": "Campaign-OVERRIDE-ME"},
        "assignRequest": {"SiteWhitelist": ["SiteWhitelist-OVERRIDE-ME"]},
    }
    with pytest.raises(ValueError, match=r"assignRequest\.SiteWhitelist, createRequest\.Campaign"):
        submit(Caller(world.url), pair)


def test_a_refused_submission_tells_reqmgr2s_reason(world: World) -> None:
    pair = {"createRequest": {"RequestType": "Magic", "RequestPriority": 1}, "assignRequest": {}}
    with pytest.raises(CallFailed, match="No module named"):
        submit(Caller(world.url), pair)


def test_a_service_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["seed", "--url", "http://127.0.0.1:9", "--file", str(DEMO / "seed.json")]) == 1
    assert "no answer from http://127.0.0.1:9" in capsys.readouterr().err


# ---- real pairs


def filled(value: Any) -> Any:
    """A real pair with its placeholders replaced by values of the right form."""
    if isinstance(value, dict):
        return {
            key: ("test" if key == "Dashboard" else 3 if item == "ProcessingVersion-OVERRIDE-ME" else filled(item))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return ["T1_US_FNAL" if item == "SiteWhitelist-OVERRIDE-ME" else filled(item) for item in value]
    return value.removesuffix("-OVERRIDE-ME") if isinstance(value, str) else value


def provide(world: World, created: dict[str, Any]) -> None:
    """What the real services had when the request was made: PSets with the modules the steps read, tiers, input datasets."""
    tiers = ["GEN-SIM", "GEN-SIM-DIGI-RAW", "RECO", "AODSIM", "MINIAODSIM", "NANOAODSIM", "DQMIO"]
    for tier in tiers:
        world.dbs("POST", "datatiers", {"data_tier_name": tier})
    parts = [value for key, value in created.items() if key[:4] in ("Step", "Task") and isinstance(value, dict)]
    for number, part in enumerate(parts):
        name = part.get("StepName") or part.get("TaskName")
        read = {other["InputFromOutputModule"] for other in parts if name in (other.get("InputStep"), other.get("InputTask"))}
        put_config(world, part["ConfigCacheID"], **dict.fromkeys(read or {f"output{number}"}, (tiers[number], "")))
    for key in ("ConfigCacheID", "DQMConfigCacheID"):
        if created.get(key):
            put_config(world, created[key], RECOoutput=("RECO", ""))
    for key in [key for key in created if key.startswith("Skim") and key.endswith("ConfigCacheID")]:
        put_config(world, created[key], SKIMoutput=("AODSIM", "Skim"))
    for part in (created, *parts):
        for key in ("InputDataset", "MCPileup", "DataPileup"):
            if part.get(key):
                make_dataset(world, part[key], with_parent=bool(part.get("IncludeParents")))


def make_dataset(world: World, name: str, *, with_parent: bool) -> None:
    """A dataset of one file, perhaps with a parent."""
    _, primary, processed, tier = name.split("/")
    parent = f"/{primary}/{processed}/RAW" if with_parent else None
    if parent:
        make_dataset(world, parent, with_parent=False)
    body = {
        "primds": {"primary_ds_name": primary, "primary_ds_type": "data"},
        "acquisition_era": {"acquisition_era_name": processed.partition("-")[0]},
        "processing_era": {"processing_version": 1},
        "dataset": {
            "dataset": name,
            "processed_ds_name": processed,
            "data_tier_name": tier,
            "physics_group_name": "DataOps",
            "dataset_access_type": "VALID",
        },
        "block": {"block_name": f"{name}#1", "origin_site_name": "T2_CH_CERN"},
        "dataset_parent_list": [parent] if parent else [],
    }
    assert world.dbs("POST", "bulkblocks", body).status_code in (200, 400)


PAIRS = [
    *("DQMHarvesting", "ReReco_LumiMask", "ReReco_RunBlocklists_Parents", "ReReco_failCase", "SC_6Tasks_PU", "SC_GPU"),
    *("SC_MCRecyc", "SC_Nano", "SC_ProdPsi", "TC_Nano"),
]


@pytest.mark.parametrize("name", PAIRS)
def test_a_real_pair_becomes_a_staged_request(world: World, name: str) -> None:
    pair = filled(json.loads((real_inputs() / "requests" / f"{name}.json").read_text()))
    provide(world, pair["createRequest"])
    document = world.request(submit(Caller(world.url), pair, team="wms2"))
    assert (document["RequestStatus"], document["Team"]) == ("staged", "wms2")
    assert bool(document["OutputDatasets"]) is (name != "DQMHarvesting")
    assert all(dataset.count("/") == 3 for dataset in document["OutputDatasets"])


def test_a_real_pair_with_comments_in_a_list_is_refused_as_reqmgr2_does(world: World) -> None:
    pair = filled(json.loads((real_inputs() / "requests" / "StepChain_MCStatic.json").read_text()))
    provide(world, pair["createRequest"])
    with pytest.raises(CallFailed, match="Argument 'Comments'"):
        submit(Caller(world.url), pair)


@pytest.mark.parametrize(
    ("dump", "pair"),
    [("StepChainRequestDump", "SC_ProdPsi"), ("ReRecoRequestDump", "ReReco_LumiMask"), ("TaskChainRequestDump", "TC_Nano")],
)
def test_a_staged_request_has_the_keys_of_a_real_document(world: World, dump: str, pair: str) -> None:
    real = json.loads((real_inputs() / "requests" / f"{dump}.json").read_text())
    sent = filled(json.loads((real_inputs() / "requests" / f"{pair}.json").read_text()))
    provide(world, sent["createRequest"])
    made = world.request(submit(Caller(world.url), sent))
    # written by agents and the harvesting of statistics, or of this one request, or known to older versions only
    others = {
        "TotalInputFiles",
        "TotalInputEvents",
        "TotalInputLumis",
        "TotalEstimatedJobs",
        "Override",
        "AgentJobInfo",
        "EventsPerJob",
    }
    chain = {key for key in real if key.startswith(("Task", "Step"))}
    missing = set(real) - set(made) - others - chain
    assert missing <= {"BlockCloseMaxWaitTime", "ChainParentageMap", "IgnoredOutputModules", "DQMUploadProxy"} & set(real), (
        missing
    )
