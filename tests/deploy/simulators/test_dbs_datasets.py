"""DBS: writes and reads of datasets and blocks, with the traps found by running the real server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulator_world import (
    BLOCK,
    DATASET,
    World,
    dataset_record,
    dbs_error,
    file_record,
    make_open_block,
)


def test_the_explicit_chain_makes_an_open_empty_block_and_repeated_changes_nothing(world: World) -> None:
    for _ in range(2):
        make_open_block(world)
        (block,) = world.read("blocks", dataset=DATASET, detail=1)
        assert (block["block_name"], block["open_for_writing"], block["origin_site_name"]) == (BLOCK, 1, "T1_US_FNAL_Disk")
        assert (block["file_count"], block["block_size"]) == (0, 0)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("primary_ds_name", "NoSuch", 411),
        ("processing_version", 99, 404),
        ("acquisition_era_name", "NoSuch", 405),
        ("data_tier_name", "NOSUCH", 412),
        ("physics_group_name", "NoSuch", 407),
        ("dataset_access_type", "NOSUCH", 408),
    ],
)
def test_a_dataset_needs_its_parents(world: World, open_block: None, key: str, value: Any, code: int) -> None:
    name = "/TestMuon/Run2026A-Other-v1/AOD"
    assert dbs_error(world.dbs("POST", "datasets", dataset_record(dataset=name, **{key: value}))) == code
    assert world.read("datasets", dataset=name, dataset_access_type="*") == []


def test_a_dataset_needs_its_output_configs(world: World, open_block: None) -> None:
    config = {
        "app_name": "cmsRun",
        "release_version": "CMSSW_1_2_3",
        "pset_hash": "x",
        "output_module_label": "m",
        "global_tag": "t",
    }
    answer = world.dbs("POST", "datasets", dataset_record(dataset="/TestMuon/Run2026A-Other-v1/AOD", output_configs=[config]))
    assert dbs_error(answer) == 413


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "/TestMuon/Run2026A Other-v1/AOD"},
        {"dataset": "/TestMuon/AOD"},
        {"dataset": "/TestMuon/Run2026A-Other-v1/AOD", "processed_ds_name": "Run2026A-a-b-c-v1"},
        {"dataset": "", "processed_ds_name": "Run2026A-Other-v1"},
    ],
)
def test_a_dataset_with_a_wrong_name_is_refused(world: World, open_block: None, changes: dict[str, Any]) -> None:
    assert dbs_error(world.dbs("POST", "datasets", dataset_record(**changes))) == 300


def test_a_block_needs_its_dataset(world: World) -> None:
    answer = world.dbs("POST", "blocks", {"block_name": BLOCK, "open_for_writing": 1, "origin_site_name": "T2_CH_CERN"})
    assert dbs_error(answer) == 410


def test_a_block_needs_a_site(world: World, open_block: None) -> None:
    assert dbs_error(world.dbs("POST", "blocks", {"block_name": f"{DATASET}#2", "origin_site_name": ""})) == 305


def test_an_existing_block_answers_200_and_keeps_its_values(world: World, open_block: None) -> None:
    answer = world.dbs("POST", "blocks", {"block_name": BLOCK, "open_for_writing": 0, "origin_site_name": "T2_CH_CERN"})
    assert (answer.status_code, answer.json()) == (200, [])
    assert world.read("blocks", block_name=BLOCK, detail=1)[0]["origin_site_name"] == "T1_US_FNAL_Disk"


def test_a_block_is_open_unless_it_says_otherwise(world: World, open_block: None) -> None:
    world.dbs("POST", "blocks", {"block_name": f"{DATASET}#2", "origin_site_name": "T2_CH_CERN"})
    assert world.read("blocks", block_name=f"{DATASET}#2", detail=1)[0]["open_for_writing"] == 1


def test_a_block_is_closed_and_moved_by_the_query_string(world: World, open_block: None) -> None:
    assert world.dbs("PUT", "blocks", params={"block_name": BLOCK, "open_for_writing": 0}).json() == []
    assert world.dbs("PUT", "blocks", params={"block_name": BLOCK, "origin_site_name": "T2_CH_CERN"}).json() == []
    (block,) = world.read("blocks", block_name=BLOCK, detail=1)
    assert (block["open_for_writing"], block["origin_site_name"]) == (0, "T2_CH_CERN")


def test_a_block_update_with_a_json_body_is_refused_with_118(world: World, open_block: None) -> None:
    assert dbs_error(world.dbs("PUT", "blocks", {"block_name": BLOCK, "open_for_writing": 0})) == 118
    assert world.read("blocks", block_name=BLOCK, detail=1)[0]["open_for_writing"] == 1


def test_an_open_flag_out_of_range_is_refused(world: World, open_block: None) -> None:
    assert dbs_error(world.dbs("PUT", "blocks", params={"block_name": BLOCK, "open_for_writing": 2})) == 118


def test_updating_an_unknown_block_is_not_reported(world: World) -> None:
    assert world.dbs("PUT", "blocks", params={"block_name": f"{DATASET}#none", "open_for_writing": 0}).status_code == 200


def test_a_closed_block_still_takes_files(world: World, open_block: None) -> None:
    """The real server does not enforce open_for_writing: the guard must be the client's."""
    world.dbs("PUT", "blocks", params={"block_name": BLOCK, "open_for_writing": 0})
    assert world.dbs("POST", "files", {"files": [file_record(1)]}).status_code == 200
    assert world.read("blocks", block_name=BLOCK, detail=1)[0]["file_count"] == 1


def test_a_dataset_changes_its_access_type_by_a_json_body(world: World, open_block: None) -> None:
    assert world.dbs("PUT", "datasets", {"dataset": DATASET, "dataset_access_type": "INVALID"}).json() == []
    (dataset,) = world.read("datasets", dataset=DATASET, detail=1, dataset_access_type="*")
    assert dataset["dataset_access_type"] == "INVALID"


def test_a_dataset_update_without_a_body_answers_500_and_115(world: World) -> None:
    assert dbs_error(world.dbs("PUT", "datasets", params={"dataset": DATASET, "dataset_access_type": "VALID"}), 500) == 115


def test_an_unknown_access_type_is_refused_with_408(world: World, open_block: None) -> None:
    assert dbs_error(world.dbs("PUT", "datasets", {"dataset": DATASET, "dataset_access_type": "NOSUCH"})) == 408


def test_updating_an_unknown_dataset_is_not_reported(world: World) -> None:
    assert world.dbs("PUT", "datasets", {"dataset": "/A/B-v1/RAW", "dataset_access_type": "VALID"}).status_code == 200


def test_datasets_of_other_access_types_are_hidden_by_default(world: World, open_block: None) -> None:
    assert world.read("datasets", dataset=DATASET) == []
    assert world.read("datasets", dataset=DATASET, dataset_access_type="PRODUCTION") == [{"dataset": DATASET}]
    assert world.read("datasets", dataset=DATASET, dataset_access_type="*") == [{"dataset": DATASET}]
    world.dbs("PUT", "datasets", {"dataset": DATASET, "dataset_access_type": "VALID"})
    assert world.read("datasets", dataset=DATASET) == [{"dataset": DATASET}]


def test_dataset_details_name_everything_it_was_made_of(world: World, open_block: None) -> None:
    (dataset,) = world.read("datasets", dataset=DATASET, detail=1, dataset_access_type="*")
    expected = dataset_record(prep_id="")  # dropped on this way
    del expected["output_configs"]
    assert {key: dataset[key] for key in expected} == expected
    assert dataset["primary_ds_type"] == "data"


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"dataset": "/TestMuon/*/AOD"}, True),
        ({"dataset": "/TestMuon/*/RAW"}, False),
        ({"primary_ds_name": "TestMuon"}, True),
        ({"data_tier_name": "AOD", "acquisition_era_name": "Run2026A"}, True),
        ({"data_tier_name": "RAW"}, False),
        ({"processing_version": 1}, True),
        ({"output_module_label": "Merged"}, True),
        ({"output_module_label": "Other"}, False),
        ({"prep_id": "TEST"}, True),
        ({"logical_file_name": file_record(1)["logical_file_name"]}, True),
        ({"run_num": 380001}, True),
        ({"run_num": "380002-380009"}, False),
        ({"min_cdate": 1, "max_cdate": 4102444800}, True),
        ({"max_cdate": 1}, False),
    ],
)
def test_datasets_are_found_by_attributes(world: World, three_files: None, params: dict[str, Any], found: bool) -> None:
    assert bool(world.read("datasets", dataset_access_type="*", **params)) is found


@pytest.mark.parametrize(
    "params", [{"block_name": BLOCK}, {"dataset": DATASET}, {"logical_file_name": file_record(2)["logical_file_name"]}]
)
def test_blocks_are_found_by_name_dataset_and_file(world: World, three_files: None, params: dict[str, Any]) -> None:
    assert world.read("blocks", **params) == [{"block_name": BLOCK}]


def test_blocks_need_to_be_named_somehow(world: World) -> None:
    assert dbs_error(world.dbs("GET", "blocks")) == 118


@pytest.mark.parametrize("name", ["/A/B-v1/RAW", "/A/B-v1/RAW#" + "x" * 37, "nonsense", "/A B/C-v1/RAW#1"])
def test_a_wrong_block_name_in_a_query_is_refused_with_113(world: World, name: str) -> None:
    assert dbs_error(world.dbs("GET", "blocks", params={"block_name": name})) == 113


def test_summaries_count_a_dataset_and_its_blocks(world: World, three_files: None) -> None:
    totals = {"file_size": 3006, "num_file": 3, "num_event": 30}
    assert world.read("blocksummaries", dataset=DATASET) == [totals]
    assert world.read("blocksummaries", block_name=BLOCK) == [totals]
    (detailed,) = world.read("blocksummaries", dataset=DATASET, detail=1)
    assert detailed["block_name"] == BLOCK
    (summary,) = world.read("filesummaries", dataset=DATASET)
    assert {key: summary[key] for key in totals} == totals
    assert (summary["num_block"], summary["num_lumi"]) == (1, 3)


def test_summaries_of_an_unknown_dataset_are_zeros(world: World) -> None:
    assert world.read("blocksummaries", dataset=DATASET) == [{"file_size": 0, "num_file": 0, "num_event": 0}]


@pytest.mark.parametrize("params", [{}, {"dataset": "/A/*/RAW"}])
def test_summaries_need_one_exact_name(world: World, params: dict[str, str]) -> None:
    assert dbs_error(world.dbs("GET", "blocksummaries", params=params)) == 118
