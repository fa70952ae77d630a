"""DBS: whole blocks in one call, in both modes of the real server."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.places import real_inputs
from tests.support.simulator_world import BLOCK, DATASET, World, bulkblock, dbs_error, file_record


def test_a_block_comes_with_everything_it_needs(world: World) -> None:
    answer = world.dbs("POST", "bulkblocks", bulkblock())
    assert (answer.status_code, answer.json()) == (200, [])
    (dataset,) = world.read("datasets", dataset=DATASET, detail=1, dataset_access_type="*")
    assert (dataset["physics_group_name"], dataset["prep_id"]) == ("DataOps", "TEST")
    (block,) = world.read("blocks", block_name=BLOCK, detail=1)
    assert (block["open_for_writing"], block["file_count"], block["block_size"]) == (0, 3, 3006)
    assert len(world.read("files", block_name=BLOCK)) == 3
    assert world.read("outputconfigs", dataset=DATASET)[0]["output_module_label"] == "Merged"
    assert {record["data_tier_name"] for record in world.read("datatiers")} == {"AOD"}


def test_the_body_that_the_real_server_accepts_is_accepted(world: World) -> None:
    text = (real_inputs() / "dbs" / "bulkblocks0.json").read_text()
    body = json.loads(text.replace("/1/parent/", "/2/"))  # names that DBS takes, so that the parents can be stored too
    assert dbs_error(world.dbs("POST", "bulkblocks", body)) == 202  # its parents are not there yet
    parents = copy.deepcopy(body)
    parents["file_parent_list"] = []
    parents["block"]["block_name"] += "-parents"
    for record, pair in zip(parents["files"], body["file_parent_list"], strict=False):
        record["logical_file_name"] = pair["parent_logical_file_name"]
    del parents["files"][len(body["file_parent_list"]) :]
    assert world.dbs("POST", "bulkblocks", parents).status_code == 200
    assert world.dbs("POST", "bulkblocks", body).status_code == 200
    name = body["block"]["block_name"]
    stored = world.read("files", block_name=name, detail=1)
    assert {r["logical_file_name"] for r in stored} == {r["logical_file_name"] for r in body["files"]}
    lumis = world.read("filelumis", block_name=name)
    assert len(lumis) == sum(len(r["file_lumi_list"]) for r in body["files"])
    assert {r["event_count"] for r in lumis} == {None}
    assert len(world.read("fileparents", block_name=name)) == 2


def test_a_files_configuration_is_found_by_all_but_its_release_and_the_datasets_by_all(world: World) -> None:
    world.dbs("POST", "bulkblocks", bulkblock(numbers=range(1)))
    body = bulkblock(numbers=range(4, 5))
    body["block"]["block_name"] += "-patched"
    for config in (*body["dataset_conf_list"], *body["file_conf_list"]):
        config["release_version"] += "_patch1"
    assert world.dbs("POST", "bulkblocks", body).status_code == 200
    (stored,) = world.read("outputconfigs", logical_file_name=body["files"][0]["logical_file_name"])
    assert f"{stored['release_version']}_patch1" == body["file_conf_list"][0]["release_version"]
    of_dataset = {config["release_version"] for config in world.read("outputconfigs", dataset=DATASET)}
    assert of_dataset == {stored["release_version"], f"{stored['release_version']}_patch1"}


def test_a_second_block_of_the_same_name_is_refused_with_200_and_adds_nothing(world: World, three_files: None) -> None:
    answer = world.dbs("POST", "bulkblocks", bulkblock(numbers=range(4, 6)))
    assert dbs_error(answer) == 200
    assert "already exists" in answer.text
    assert len(world.read("files", block_name=BLOCK)) == 3


def test_in_sequential_mode_it_adds_files_and_leaves_the_count_stale(sequential_world: World) -> None:
    world = sequential_world
    world.dbs("POST", "bulkblocks", bulkblock())
    assert world.dbs("POST", "bulkblocks", bulkblock(numbers=range(3, 6))).status_code == 200
    assert len(world.read("files", block_name=BLOCK)) == 5
    assert world.read("blocks", block_name=BLOCK, detail=1)[0]["file_count"] == 3
    (summary,) = world.read("blocksummaries", block_name=BLOCK)
    assert (summary["num_file"], summary["num_event"]) == (3, 50)


def test_a_dataset_name_is_checked_and_a_primary_dataset_or_block_is_not(world: World) -> None:
    assert dbs_error(world.dbs("POST", "bulkblocks", bulkblock(block="/Test Muon/Run2026A-Prompt-v1/AOD#1"))) == 212
    body = bulkblock(block=f"{DATASET}#a b")
    body["primds"]["primary_ds_name"] = "Test Muon"
    assert world.dbs("POST", "bulkblocks", body).status_code == 200


def _first_file(**changes: Any) -> dict[str, Any]:
    body = bulkblock()
    body["files"][0].update(changes)
    return body


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (_first_file(file_size=0), 310),
        (_first_file(check_sum=""), 310),
        (_first_file(logical_file_name=""), 310),
        (_first_file(file_type=""), 201),
        (bulkblock(dataset={"dataset": ""}), 212),
        (bulkblock(primds={"primary_ds_name": "TestMuon"}), 205),
        (
            bulkblock(
                file_parent_list=[
                    {"logical_file_name": file_record(1)["logical_file_name"], "parent_logical_file_name": "/store/none.root"}
                ]
            ),
            202,
        ),
        (bulkblock(dataset_parent_list=["/A/B-v1/RAW"]), 203),
        (bulkblock(files={}), 122),
        (bulkblock(processing_era={"processing_version": "1"}), 122),
        ([], 122),
    ],
)
def test_a_refused_block_leaves_nothing_behind(world: World, body: Any, code: int) -> None:
    assert dbs_error(world.dbs("POST", "bulkblocks", body)) == code
    assert world.read("datasets", dataset_access_type="*") == []
    assert world.read("datatiers") == []


def test_a_block_without_a_site_is_refused(world: World) -> None:
    body = bulkblock()
    body["block"]["origin_site_name"] = ""
    assert dbs_error(world.dbs("POST", "bulkblocks", body)) == 400


def test_a_locked_database_refuses_every_write_until_it_is_opened_again(world: World, three_files: None) -> None:
    world.dbs_lock(locked=True)
    answer = world.dbs("POST", "bulkblocks", bulkblock(block=f"{DATASET}#2", numbers=range(4, 6)))
    assert (answer.status_code, "database is locked" in answer.text) == (400, True)
    assert dbs_error(world.dbs("PUT", "datasets", {"dataset": DATASET, "dataset_access_type": "VALID"})) == 502
    assert len(world.read("files", block_name=BLOCK)) == 3  # reads go on
    world.dbs_lock(locked=False)
    assert world.dbs("POST", "bulkblocks", bulkblock(block=f"{DATASET}#2", numbers=range(4, 6))).status_code == 200


def test_a_file_that_lies_in_another_block_is_refused_with_310(world: World, three_files: None) -> None:
    assert dbs_error(world.dbs("POST", "bulkblocks", bulkblock(block=f"{DATASET}#2"))) == 310
    assert world.read("blocks", block_name=f"{DATASET}#2") == []


def test_invalid_files_stay_invalid(world: World) -> None:
    world.dbs("POST", "bulkblocks", _first_file(is_file_valid=0))
    validity = {r["logical_file_name"]: r["is_file_valid"] for r in world.read("files", block_name=BLOCK, detail=1)}
    assert sorted(validity.values()) == [0, 1, 1]


def test_parents_of_files_blocks_and_datasets_are_kept(world: World) -> None:
    parent = "/TestMuon/Run2026A-v1/RAW"
    body = bulkblock(block=f"{parent}#1", numbers=range(11, 12))
    assert world.dbs("POST", "bulkblocks", body).status_code == 200
    pair = {
        "logical_file_name": file_record(1)["logical_file_name"],
        "parent_logical_file_name": file_record(11)["logical_file_name"],
    }
    child = bulkblock(
        file_parent_list=[pair],
        dataset_parent_list=[parent],
        block_parent_list=[{"this_block_name": BLOCK, "parent_block_name": f"{parent}#1"}],
    )
    assert world.dbs("POST", "bulkblocks", child).status_code == 200
    assert world.read("fileparents", block_name=BLOCK)[0]["parent_logical_file_name"] == pair["parent_logical_file_name"]
    assert world.read("blockparents", block_name=BLOCK) == [{"this_block_name": BLOCK, "parent_block_name": f"{parent}#1"}]
    assert world.read("datasetparents", dataset=DATASET)[0]["parent_dataset"] == parent


def test_a_dump_of_a_block_has_the_form_of_what_was_posted(world: World) -> None:
    sent = bulkblock()
    world.dbs("POST", "bulkblocks", sent)
    dump = world.dbs("GET", "blockdump", role="DBSReader", params={"block_name": BLOCK}).json()
    assert set(sent) <= set(dump)
    assert dump["block"]["block_name"] == BLOCK
    assert dump["dataset"]["dataset"] == DATASET
    assert dump["primds"]["primary_ds_name"] == "TestMuon"
    assert {r["logical_file_name"]: r["file_lumi_list"] for r in dump["files"]} == {
        r["logical_file_name"]: r["file_lumi_list"] for r in sent["files"]
    }
    assert {r["lfn"] for r in dump["file_conf_list"]} == {r["logical_file_name"] for r in sent["files"]}
    assert dbs_error(world.dbs("GET", "blockdump", role="DBSReader")) == 118


def test_two_posts_of_one_block_at_the_same_time_store_it_once(world: World) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = pool.map(lambda _: world.dbs("POST", "bulkblocks", bulkblock()), range(6))
        assert sorted(answer.status_code for answer in answers) == [200] + [400] * 5
    assert len(world.read("files", block_name=BLOCK)) == 3
