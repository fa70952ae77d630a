"""DBS: writes of files one by one (the progressive way) and their validity."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulator_world import BLOCK, CONFIG, DATASET, World, bulkblock, dbs_error, file_record


def lfns(world: World, **params: Any) -> list[str]:
    """The names of the files a query finds."""
    return [record["logical_file_name"] for record in world.read("files", **params)]


@pytest.mark.parametrize("wrapped", [True, False], ids=["in an object", "as a bare list"])
def test_files_are_added_to_an_open_block_and_counted(world: World, open_block: None, wrapped: bool) -> None:
    records = [file_record(1), file_record(2)]
    answer = world.dbs("POST", "files", {"files": records} if wrapped else records)
    assert (answer.status_code, answer.json()) == (200, [])
    (block,) = world.read("blocks", block_name=BLOCK, detail=1)
    assert (block["file_count"], block["block_size"]) == (2, 2003)


def test_file_details_are_what_was_sent(world: World, open_block: None) -> None:
    sent = file_record(1)
    world.dbs("POST", "files", [sent], headers={"Cms-Authn-Login": "wms2"})
    (found,) = world.read("files", block_name=BLOCK, detail=1)
    keys = ("logical_file_name", "dataset", "block_name", "file_size", "event_count", "file_type", "check_sum", "adler32", "md5")
    assert {key: found[key] for key in keys} == {key: sent[key] for key in keys}
    assert (found["is_file_valid"], found["create_by"]) == (1, "wms2")


def test_without_detail_only_names_are_answered(world: World, open_block: None) -> None:
    world.dbs("POST", "files", [file_record(1)])
    assert world.read("files", dataset=DATASET) == [{"logical_file_name": file_record(1)["logical_file_name"]}]


def test_a_block_named_only_at_the_top_level_is_refused_with_400(world: World, open_block: None) -> None:
    record = file_record(1)
    del record["block_name"]
    assert dbs_error(world.dbs("POST", "files", {"block_name": BLOCK, "files": [record]})) == 400
    assert lfns(world, dataset=DATASET) == []


def test_a_repeated_file_is_a_no_op(world: World, open_block: None) -> None:
    for size in (1000, 5000):
        assert world.dbs("POST", "files", [file_record(1, file_size=size)]).status_code == 200
    (found,) = world.read("files", block_name=BLOCK, detail=1)
    assert found["file_size"] == 1000


def test_a_file_of_another_block_is_skipped_without_a_word(world: World, open_block: None) -> None:
    other = f"{DATASET}#2"
    world.dbs("POST", "blocks", {"block_name": other, "origin_site_name": "T2_CH_CERN"})
    world.dbs("POST", "files", [file_record(1)])
    assert world.dbs("POST", "files", [file_record(1, block_name=other)]).status_code == 200
    assert lfns(world, block_name=other) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"block_name": f"{DATASET}#nosuch"}, 400),
        ({"dataset": "/A/B-v1/RAW"}, 410),
        ({"file_size": 0}, 310),
        ({"check_sum": ""}, 310),
        ({"adler32": ""}, 310),
        ({"logical_file_name": "/store/data/with space/a/AOD/v1/0/a.root"}, 310),
        ({"logical_file_name": "relative.root"}, 310),
        ({"file_type": ""}, 320),
        ({"file_parent_list": [{"file_parent_lfn": "/store/data/none.root"}]}, 401),
        ({"file_parent_list": [{"parent_logical_file_name": "/store/data/none.root"}]}, 401),
        ({"file_output_config": [{**CONFIG, "output_module_label": "unknown"}]}, 413),
        ({"event_count": "10"}, 122),
        ({"file_lumi_list": [{"run_num": "1", "lumi_section_num": 5}]}, 122),
    ],
)
def test_a_wrong_file_is_refused_and_not_stored(world: World, open_block: None, changes: dict[str, Any], code: int) -> None:
    assert dbs_error(world.dbs("POST", "files", [file_record(1, **changes)])) == code
    assert lfns(world, dataset=DATASET) == []


def test_files_before_a_refused_one_stay(world: World, open_block: None) -> None:
    """Each file is a transaction of its own in the real server."""
    answer = world.dbs("POST", "files", [file_record(1), file_record(2, file_size=0), file_record(3)])
    assert dbs_error(answer) == 310
    assert lfns(world, dataset=DATASET) == [file_record(1)["logical_file_name"]]


def test_a_configuration_is_found_by_its_label_alone_and_under_one_key_only(world: World, open_block: None) -> None:
    other = {**CONFIG, "pset_hash": "another", "release_version": "CMSSW_15_0_0"}
    world.dbs("POST", "outputconfigs", other)
    world.dbs("POST", "files", [file_record(1, file_output_config=[other]), file_record(2, file_output_config_list=[CONFIG])])
    (config,) = world.read("outputconfigs", logical_file_name=file_record(1)["logical_file_name"])
    assert config["pset_hash"] == CONFIG["pset_hash"]
    assert world.read("outputconfigs", logical_file_name=file_record(2)["logical_file_name"]) == []


def test_parents_are_kept(world: World, open_block: None) -> None:
    parent, child = file_record(1), file_record(2)
    child["file_parent_list"] = [{"file_parent_lfn": parent["logical_file_name"]}]
    assert world.dbs("POST", "files", [parent, child]).status_code == 200
    (record,) = world.read("fileparents", logical_file_name=child["logical_file_name"])
    assert (record["logical_file_name"], record["parent_logical_file_name"]) == (
        child["logical_file_name"],
        parent["logical_file_name"],
    )


def test_a_file_without_events_or_lumis_is_taken(world: World, open_block: None) -> None:
    assert world.dbs("POST", "files", [file_record(1, event_count=0, file_lumi_list=[])]).status_code == 200


def test_one_file_is_invalidated_by_a_json_body(world: World, three_files: None) -> None:
    name = file_record(2)["logical_file_name"]
    assert world.dbs("PUT", "files", {"logical_file_name": name, "is_file_valid": 0}).json() == []
    assert {r["logical_file_name"]: r["is_file_valid"] for r in world.read("files", dataset=DATASET, detail=1)} == {
        file_record(1)["logical_file_name"]: 1,
        name: 0,
        file_record(3)["logical_file_name"]: 1,
    }
    assert name not in lfns(world, dataset=DATASET, validFileOnly=1)


def test_all_files_of_a_dataset_are_invalidated_at_once(world: World, three_files: None) -> None:
    assert world.dbs("PUT", "files", {"dataset": DATASET, "is_file_valid": 0}).status_code == 200
    assert lfns(world, dataset=DATASET, validFileOnly=1) == []


def test_valid_files_of_an_invalid_dataset_do_not_count_as_valid(world: World, three_files: None) -> None:
    world.dbs("PUT", "datasets", {"dataset": DATASET, "dataset_access_type": "INVALID"})
    assert lfns(world, dataset=DATASET, validFileOnly=1) == []
    assert len(lfns(world, dataset=DATASET)) == 3


@pytest.mark.parametrize(
    "body",
    [
        {"is_file_valid": 0},
        {"logical_file_name": [file_record(1)["logical_file_name"]], "is_file_valid": 0},
    ],
)
def test_a_validity_change_with_a_list_or_without_a_name_changes_every_file(world: World, body: dict[str, Any]) -> None:
    world.dbs("POST", "bulkblocks", bulkblock())
    assert world.dbs("PUT", "files", body).status_code == 200
    assert {record["is_file_valid"] for record in world.read("files", block_name=BLOCK, detail=1)} == {0}


def test_a_validity_change_needs_a_flag(world: World) -> None:
    assert dbs_error(world.dbs("PUT", "files", {"logical_file_name": "/store/a.root"})) == 118


def test_a_validity_change_without_a_body_answers_500_and_115(world: World) -> None:
    assert dbs_error(world.dbs("PUT", "files", params={"logical_file_name": "/store/a.root", "is_file_valid": 0}), 500) == 115


def test_a_validity_change_of_an_unknown_file_is_not_reported(world: World) -> None:
    assert world.dbs("PUT", "files", {"logical_file_name": "/store/none.root", "is_file_valid": 0}).status_code == 200


def test_parentage_is_added_afterwards_by_file_ids(world: World, open_block: None) -> None:
    world.dbs("POST", "files", [file_record(1), file_record(2)])
    first, second = (record["file_id"] for record in world.read("files", block_name=BLOCK, detail=1))
    body = {"block_name": BLOCK, "child_parent_id_list": [[second, first]], "missing_files": 0}
    assert world.dbs("POST", "fileparents", body).status_code == 200
    assert len(world.read("fileparents", block_name=BLOCK)) == 1
    assert dbs_error(world.dbs("POST", "fileparents", {"block_name": BLOCK, "child_parent_id_list": [[second, 999]]})) == 118
