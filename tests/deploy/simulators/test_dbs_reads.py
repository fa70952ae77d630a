"""DBS: reads of files and lumis, look-ups by POST, and streaming."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
import requests

from tests.support.simulator_world import BLOCK, DATASET, World, bulkblock, dbs_error, file_record

FILES = 20_000
LARGE = "/LargeMuon/Run2026B-v1/RAW"


def name(number: int) -> str:
    """The LFN of a file."""
    lfn: str = file_record(number)["logical_file_name"]
    return lfn


def two_runs() -> dict[str, Any]:
    """Three files: lumis 1-4 of run 100 in file 1, 5-8 in file 2, lumi 1 of runs 100 and 200 in file 3."""
    body = bulkblock()
    spans = {0: [(100, lumi) for lumi in range(1, 5)], 1: [(100, lumi) for lumi in range(5, 9)], 2: [(100, 1), (200, 1)]}
    for number, pairs in spans.items():
        body["files"][number]["file_lumi_list"] = [
            {"run_num": run, "lumi_section_num": lumi, "event_count": 5} for run, lumi in pairs
        ]
    return body


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"dataset": DATASET}, {1, 2, 3}),
        ({"block_name": BLOCK}, {1, 2, 3}),
        ({"logical_file_name": name(2)}, {2}),
        ({"logical_file_name": f"['{name(1)}', '{name(3)}']"}, {1, 3}),
        ({"dataset": DATASET, "run_num": 200}, {3}),
        ({"dataset": DATASET, "run_num": "150-250"}, {3}),
        ({"dataset": DATASET, "run_num": "[100, 200]"}, {1, 2, 3}),
        ({"dataset": DATASET, "run_num": 300}, set()),
        ({"dataset": DATASET, "run_num": 100, "lumi_list": "[[5, 6]]"}, {2}),
        ({"dataset": DATASET, "run_num": 100, "lumi_list": "[1, 7]"}, {1, 2, 3}),
        ({"dataset": DATASET, "origin_site_name": "T2_CH_CERN"}, set()),
        ({"dataset": DATASET, "output_module_label": "Merged"}, {1, 2, 3}),
        ({"dataset": DATASET, "pset_hash": "other"}, set()),
        ({"dataset": "/TestMuon/*/AOD"}, {1, 2, 3}),
    ],
)
def test_files_are_found_by_names_runs_and_lumis(world: World, params: dict[str, Any], found: set[int]) -> None:
    world.dbs("POST", "bulkblocks", two_runs())
    assert {record["logical_file_name"] for record in world.read("files", **params)} == {name(number) for number in found}


def test_a_run_adds_itself_to_the_record(world: World) -> None:
    world.dbs("POST", "bulkblocks", two_runs())
    assert world.read("files", dataset=DATASET, run_num=200) == [{"logical_file_name": name(3), "run_num": 200}]


def test_events_are_summed_over_the_lumis_of_a_run(world: World) -> None:
    world.dbs("POST", "bulkblocks", two_runs())
    records = world.read("files", dataset=DATASET, run_num=100, sumOverLumi=1, detail=1)
    assert {r["logical_file_name"]: r["event_count"] for r in records} == {name(1): 20, name(2): 20, name(3): 5}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"origin_site_name": "T2_CH_CERN"},
        {"dataset": DATASET, "run_num": 1},
        {"dataset": DATASET, "run_num": "abc"},
        {"dataset": DATASET, "run_num": 2, "lumi_list": "nonsense"},
        {"dataset": DATASET, "sumOverLumi": 1},
        {"dataset": DATASET, "sumOverLumi": 1, "run_num": "[1, 2]"},
        {"run_num": "[1, 2]", "logical_file_name": "['/store/a.root', '/store/b.root']"},
        {"dataset": DATASET, "colour": "red"},
    ],
)
def test_a_query_for_files_that_makes_no_sense_is_refused_with_118(world: World, params: dict[str, Any]) -> None:
    assert dbs_error(world.dbs("GET", "files", role="DBSReader", params=params)) == 118


def test_run_1_is_taken_with_file_names(world: World, three_files: None) -> None:
    assert world.read("files", run_num=1, logical_file_name=name(1)) == []


def test_lumis_come_one_record_each(world: World) -> None:
    world.dbs("POST", "bulkblocks", two_runs())
    records = world.read("filelumis", block_name=BLOCK)
    assert len(records) == 10
    assert {"run_num": 200, "lumi_section_num": 1, "event_count": 5, "logical_file_name": name(3)} in records


def test_lumis_without_events_have_a_null(world: World) -> None:
    body = bulkblock()
    for record in body["files"]:
        record["file_lumi_list"] = [{"run_num": 1, "lumi_section_num": record["file_size"]}]
    world.dbs("POST", "bulkblocks", body)
    assert {record["event_count"] for record in world.read("filelumis", block_name=BLOCK)} == {None}


@pytest.mark.parametrize("params", [{}, {"run_num": 5}])
def test_lumis_need_a_block_or_a_file(world: World, params: dict[str, Any]) -> None:
    assert dbs_error(world.dbs("GET", "filelumis", role="DBSReader", params=params)) == 103


def test_lumis_of_valid_files_only(world: World) -> None:
    world.dbs("POST", "bulkblocks", two_runs())
    world.dbs("PUT", "files", {"logical_file_name": name(1), "is_file_valid": 0})
    assert {r["logical_file_name"] for r in world.read("filelumis", block_name=BLOCK, validFileOnly=1)} == {name(2), name(3)}


@pytest.mark.parametrize("role", ["DBSReader", "DBSWriter"])
def test_lumis_of_many_files_are_looked_up_by_post(world: World, role: Any) -> None:
    world.dbs("POST", "bulkblocks", two_runs())
    answer = world.dbs("POST", "filelumis", {"logical_file_name": [name(1), name(3)]}, role=role)
    assert {record["logical_file_name"] for record in answer.json()} == {name(1), name(3)}
    assert len(answer.json()) == 6


def test_files_are_looked_up_by_lumi_ranges_by_post(world: World) -> None:
    world.dbs("POST", "bulkblocks", two_runs())
    body = {"block_name": BLOCK, "run_num": 100, "lumi_list": [[1, 2], [4, 4]], "detail": 1, "validFileOnly": 1}
    records = world.dbs("POST", "fileArray", body, role="DBSReader").json()
    assert {record["logical_file_name"] for record in records} == {name(1), name(3)}
    assert all("file_size" in record for record in records)


def test_many_files_are_looked_up_by_post(world: World) -> None:
    world.dbs("POST", "bulkblocks", bulkblock(numbers=range(1, 201)))
    names = [name(number) for number in range(1, 201)]
    assert len(world.dbs("POST", "fileArray", {"logical_file_name": names, "detail": True}, role="DBSReader").json()) == 200


def test_datasets_and_block_parents_are_looked_up_by_post(world: World, three_files: None) -> None:
    answer = world.dbs("POST", "datasetlist", {"dataset": [DATASET, "/A/B-v1/RAW"], "detail": 1}, role="DBSReader")
    assert [record["dataset"] for record in answer.json()] == [DATASET]
    assert world.dbs("POST", "blockparents", {"block_name": [BLOCK]}, role="DBSReader").json() == []


@pytest.mark.parametrize("body", [b"", b"[1]", b"{"])
def test_a_look_up_that_cannot_be_decoded_answers_500_and_115(world: World, body: bytes) -> None:
    answer = world.dbs("POST", "fileArray", role="DBSReader", data=body, headers={"Content-Type": "application/json"})
    assert dbs_error(answer, 500) == 115


def test_unknown_names_answer_an_empty_list(world: World) -> None:
    assert world.read("files", dataset="/A/B-v1/RAW") == []
    assert world.read("blocks", dataset="/A/B-v1/RAW") == []
    assert world.read("fileparents", block_name="/A/B-v1/RAW#1") == []


@pytest.mark.parametrize("api", ["fileparents", "blockparents", "datasetparents", "blockorigin"])
def test_relations_need_a_name(world: World, api: str) -> None:
    assert dbs_error(world.dbs("GET", api, role="DBSReader")) == 118


def test_a_hash_in_a_block_name_must_be_escaped(world: World, three_files: None) -> None:
    """Unescaped, it begins the fragment, which no client sends: the server sees a dataset's name."""
    answer = requests.get(f"{world.url}/dbs/prod/global/DBSReader/blocks?block_name={BLOCK}", timeout=30)
    assert dbs_error(answer) == 113
    escaped = BLOCK.replace("#", "%23")
    assert requests.get(f"{world.url}/dbs/prod/global/DBSReader/blocks?block_name={escaped}", timeout=30).json()


@pytest.mark.parametrize(
    ("api", "params"),
    [
        ("files", {"dataset": DATASET, "detail": 1}),
        ("filelumis", {"block_name": BLOCK}),
        ("fileparents", {"block_name": BLOCK}),
        ("blockparents", {"block_name": BLOCK}),
        ("blocks", {"dataset": DATASET}),
    ],
)
def test_ndjson_gives_the_same_records_one_per_line(world: World, api: str, params: dict[str, Any]) -> None:
    world.dbs("POST", "bulkblocks", two_runs())
    answer = world.dbs("GET", api, role="DBSReader", params=params, headers={"Accept": "application/ndjson"})
    assert answer.headers["Content-Type"] == "application/ndjson"
    assert [json.loads(line) for line in answer.text.splitlines()] == world.read(api, **params)


def test_a_large_dataset_is_made_by_rule_and_listed_in_bounded_memory(world: World) -> None:
    seed = {
        "dataset": LARGE,
        "generate": {"files": FILES, "lumis_per_file": 2, "events_per_file": 101, "sites": ["T1_US_FNAL_Disk", "T2_CH_CERN"]},
    }
    url = f"{world.url}/admin/seed"
    assert requests.post(url, json={"dbs": {"datasets": [seed]}}, timeout=120).json() == {"dbs": {LARGE: FILES}}
    assert requests.post(url, json={"dbs": {"datasets": [seed]}}, timeout=120).json() == {"dbs": {LARGE: 0}}
    assert world.read("blocksummaries", dataset=LARGE)[0]["num_event"] == FILES * 101
    blocks = world.read("blocks", dataset=LARGE, detail=1)
    assert len(blocks) == FILES / 500
    assert {block["origin_site_name"] for block in blocks} == {"T1_US_FNAL_Disk", "T2_CH_CERN"}
    lumis = world.read("filelumis", block_name=blocks[0]["block_name"])
    assert [lumi["event_count"] for lumi in lumis[:2]] == [51, 50]
    headers = {"Accept": "application/ndjson"}
    tracemalloc.start()
    with world.dbs(
        "GET", "files", role="DBSReader", params={"dataset": LARGE, "detail": 1}, headers=headers, stream=True
    ) as answer:
        count = sum(1 for _ in answer.iter_lines())
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == FILES
    assert peak_bytes < 8 * 1024 * 1024  # client and server together; the whole answer is above 9 MB


def test_a_client_that_goes_away_frees_the_read(world: World) -> None:
    seed = {"dataset": LARGE, "generate": {"files": 5000, "sites": ["T2_CH_CERN"]}}
    requests.post(f"{world.url}/admin/seed", json={"dbs": {"datasets": [seed]}}, timeout=60)
    for _ in range(3):
        with world.dbs("GET", "files", role="DBSReader", params={"dataset": LARGE, "detail": 1}, stream=True) as answer:
            next(answer.iter_content(1000))
    assert world.dbs("POST", "datatiers", {"data_tier_name": "AOD"}).status_code == 200
