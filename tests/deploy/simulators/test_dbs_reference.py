"""DBS: reference data, and what every call has in common (content type, bodies, error form, callers)."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import requests

from tests.support.simulator_world import CONFIG, World, dbs_error

REFERENCE: list[tuple[str, dict[str, Any], str, str]] = [
    ("datatiers", {"data_tier_name": "GEN-SIM"}, "data_tier_name", "GEN-SIM"),
    ("physicsgroups", {"physics_group_name": "DataOps"}, "physics_group_name", "DataOps"),
    ("datasetaccesstypes", {"dataset_access_type": "LOST"}, "dataset_access_type", "LOST"),
    ("primarydatasets", {"primary_ds_name": "TTbar", "primary_ds_type": "mc"}, "primary_ds_name", "TTbar"),
    ("acquisitioneras", {"acquisition_era_name": "Run2026A", "start_date": 7}, "acquisition_era_name", "Run2026A"),
    ("processingeras", {"processing_version": 12, "description": "x"}, "processing_version", "12"),
    ("outputconfigs", CONFIG, "pset_hash", CONFIG["pset_hash"]),
]


@pytest.mark.parametrize(("api", "record", "key", "name"), REFERENCE, ids=[case[0] for case in REFERENCE])
def test_a_reference_object_is_stored_once_found_by_name_and_answered_by_200_also_when_it_is_there(
    world: World, api: str, record: dict[str, Any], key: str, name: str
) -> None:
    for _ in range(2):
        answer = world.dbs("POST", api, record)
        assert (answer.status_code, answer.json()) == (200, [])
    (found,) = world.read(api, **{key: name})
    assert str(found[key]) == name


def test_access_types_of_production_are_there_from_the_start(world: World) -> None:
    names = {record["dataset_access_type"] for record in world.read("datasetaccesstypes")}
    assert names == {"VALID", "PRODUCTION", "INVALID", "DELETED", "DEPRECATED"}


@pytest.mark.parametrize(
    ("api", "record", "code"),
    [
        ("datatiers", {"data_tier_name": "ab"}, 327),
        ("datatiers", {"data_tier_name": "GEN SIM"}, 327),
        ("datatiers", {}, 327),
        ("acquisitioneras", {"acquisition_era_name": "2026A"}, 113),
        ("processingeras", {"processing_version": 0}, 113),
        ("outputconfigs", {**CONFIG, "pset_hash": ""}, 317),
    ],
)
def test_a_wrong_or_missing_name_is_refused(world: World, api: str, record: dict[str, Any], code: int) -> None:
    answer = world.dbs("POST", api, record)
    assert dbs_error(answer) == code
    assert "Code: 113" in answer.text
    assert world.read(api) == []


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "text/json", "application/x-www-form-urlencoded", ""]
)
def test_another_content_type_is_refused_with_415_and_117(world: World, content_type: str) -> None:
    answer = world.dbs("POST", "datatiers", data=b'{"data_tier_name": "RAW"}', headers={"Content-Type": content_type})
    assert dbs_error(answer, 415) == 117
    assert world.read("datatiers") == []


def test_a_gzip_body_is_taken(world: World) -> None:
    body = gzip.compress(b'{"data_tier_name": "RAW"}')
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert world.dbs("POST", "datatiers", data=body, headers=headers).status_code == 200
    assert len(world.read("datatiers", data_tier_name="RAW")) == 1


def test_a_body_that_is_not_gzip_although_it_says_so_answers_500(world: World) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert dbs_error(world.dbs("POST", "datatiers", data=b'{"data_tier_name": "RAW"}', headers=headers), 500) == 120


@pytest.mark.parametrize("body", [b"", b"{", b"not json"])
def test_a_write_whose_body_is_not_json_is_refused_with_122(world: World, body: bytes) -> None:
    assert dbs_error(world.dbs("POST", "datatiers", data=body, headers={"Content-Type": "application/json"})) == 122


@pytest.mark.parametrize(
    "record",
    [
        {"processing_version": "1"},
        {"processing_version": 1.5},
        {"processing_version": True},
        {"processing_version": 1, "description": 3},
        [1],
    ],
)
def test_a_value_of_another_json_type_is_refused_with_122(world: World, record: Any) -> None:
    assert dbs_error(world.dbs("POST", "processingeras", record)) == 122


def test_unknown_keys_and_nulls_are_ignored(world: World) -> None:
    assert world.dbs("POST", "processingeras", {"processing_version": 3, "description": None, "colour": "red"}).status_code == 200
    (era,) = world.read("processingeras", processing_version=3)
    assert era["description"] == ""


@pytest.mark.parametrize(
    ("headers", "author"),
    [
        ({}, "DBS-workflow"),
        ({"Cms-Authn-Dn": "/DC=ch/CN=dn"}, "/DC=ch/CN=dn"),
        ({"Cms-Authn-Dn": "/DC=ch/CN=dn", "Cms-Authn-Login": "login"}, "login"),
        ({"Cms-Authn-Login": "login", "Cms-Auth-Cert": "/CN=cert"}, "/CN=cert"),
    ],
)
def test_create_by_comes_from_the_front_end(world: World, headers: dict[str, str], author: str) -> None:
    assert world.dbs("POST", "datatiers", {"data_tier_name": "RAW"}, headers=headers).status_code == 200
    assert world.read("datatiers")[0]["create_by"] == author


def test_the_reader_takes_no_writes(world: World) -> None:
    assert world.dbs("POST", "datatiers", {"data_tier_name": "RAW"}, role="DBSReader").status_code == 405
    assert world.dbs("PUT", "blocks?block_name=x&open_for_writing=0", role="DBSReader").status_code == 405


def test_the_writer_serves_reads_too(world: World) -> None:
    world.dbs("POST", "datatiers", {"data_tier_name": "RAW"})
    assert world.dbs("GET", "datatiers").json() == world.read("datatiers")


def test_an_unknown_api_answers_404(world: World) -> None:
    assert world.dbs("GET", "nosuchapi").status_code == 404
    assert world.dbs("POST", "nosuchapi", {}).status_code == 404


def test_an_unknown_parameter_is_refused_with_118(world: World) -> None:
    assert dbs_error(world.dbs("GET", "datatiers", params={"tier": "RAW"})) == 118


def test_health_and_metrics_answer(world: World) -> None:
    assert world.read("healthz") == [{"status": 200}]
    assert "files 0" in world.dbs("GET", "metrics", role="DBSReader").text


def test_an_era_gets_its_end_date_by_the_query_string(world: World) -> None:
    world.dbs("POST", "acquisitioneras", {"acquisition_era_name": "Run2026A", "start_date": 7})
    assert world.dbs("PUT", "acquisitioneras", params={"acquisition_era_name": "Run2026A", "end_date": 99}).status_code == 200
    assert world.read("acquisitioneras")[0]["end_date"] == 99
    assert dbs_error(world.dbs("PUT", "acquisitioneras", params={"acquisition_era_name": "Nope", "end_date": 99})) == 405


def test_success_bodies_are_compressed_for_clients_that_take_it(world: World) -> None:
    url = f"{world.url}/dbs/prod/global/DBSReader/datasetaccesstypes"
    plain = requests.get(url, headers={"Accept-Encoding": "identity"}, timeout=30)
    packed = requests.get(url, headers={"Accept-Encoding": "gzip"}, timeout=30)
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert json.loads(plain.text) == packed.json()
