"""CRIC: presets in the form of columns and rows, many-to-many names, closed sites."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from tests.support.places import real_inputs
from tests.support.simulator_world import World

SITES = "api/cms/site/query/"


def records(world: World, path: str, **params: str) -> list[dict[str, Any]]:
    """The rows of an answer as maps."""
    answer = requests.get(f"{world.url}/{path}", params={"json": "", **params}, timeout=30)
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"desc", "result"}
    return [dict(zip(body["desc"]["columns"], row, strict=True)) for row in body["result"]]


def test_site_names_know_the_three_mock_sites_under_all_their_names(world: World) -> None:
    rows = records(world, SITES, preset="site-names", rcsite_state="ANY")
    names = {(row["type"], row["alias"]) for row in rows}
    for site in ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue"):
        assert {("cms", site), ("psn", site)} <= names
    assert {
        ("phedex", "T1_US_FNAL_Disk"),
        ("phedex", "T1_US_FNAL_MSS"),
        ("phedex", "T1_DE_KIT_MSS"),
        ("phedex", "T2_CH_CERN"),
    } <= names
    assert ("phedex", "T2_CH_CERN_Disk") not in names  # Tier 2 storage has no suffix


def test_processing_and_storage_names_are_many_to_many(world: World) -> None:
    pairs = {(row["phedex_name"], row["psn_name"]) for row in records(world, SITES, preset="data-processing", rcsite_state="ANY")}
    assert {psn for pnn, psn in pairs if pnn == "T2_CH_CERN"} == {"T2_CH_CERN", "T2_CH_CERN_HLT"}
    assert {pnn for pnn, psn in pairs if psn == "T1_US_FNAL"} == {"T1_US_FNAL_Disk", "T3_US_FNALLPC"}


def test_people_have_certificates(world: World) -> None:
    rows = records(world, "api/accounts/user/query/", preset="people")
    assert {row["username"]: row["dn"] for row in rows}["operator"] == "/DC=org/DC=example/CN=Demo Operator"


def test_closed_sites_are_shown_only_when_any_state_is_asked_for(world: World) -> None:
    assert "T3_US_Closed" in {row["alias"] for row in records(world, SITES, preset="site-names", rcsite_state="ANY")}
    assert "T3_US_Closed" not in {row["alias"] for row in records(world, SITES, preset="site-names")}


def test_without_a_preset_sites_come_by_name_with_their_state(world: World) -> None:
    answer = requests.get(f"{world.url}/{SITES}", params={"json": "", "rcsite_state": "ANY"}, timeout=30).json()
    assert answer["T1_US_FNAL"]["rcsite_state"] == "ACTIVE"
    assert answer["T3_US_Closed"]["rcsite_state"] == "DISABLED"


def test_a_query_that_does_not_ask_for_json_gets_a_page(world: World) -> None:
    answer = requests.get(f"{world.url}/{SITES}", params={"preset": "site-names"}, timeout=30)
    assert answer.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("path", [SITES, "api/accounts/user/query/"])
def test_an_unknown_preset_is_refused(world: World, path: str) -> None:
    assert requests.get(f"{world.url}/{path}", params={"json": "", "preset": "nosuch"}, timeout=30).status_code == 400


def test_rows_are_replaced_through_the_seed_door(world: World) -> None:
    rows = [{"phedex_name": "T2_XX_Test", "psn_name": "T2_XX_Test"}]
    answer = requests.post(f"{world.url}/admin/seed", json={"cric": {"data_processing": rows}}, timeout=30)
    assert answer.json() == {"cric": {"data_processing": 1}}
    assert records(world, SITES, preset="data-processing", rcsite_state="ANY") == rows
    assert records(world, SITES, preset="site-names", rcsite_state="ANY")  # the other tables stay


@pytest.mark.parametrize("seed", [{"cric": {"nosuch": []}}, {"cric": {"data_processing": [{"psn_name": "x"}]}}])
def test_rows_of_another_form_are_refused_and_change_nothing(world: World, seed: dict[str, Any]) -> None:
    before = records(world, SITES, preset="data-processing", rcsite_state="ANY")
    assert requests.post(f"{world.url}/admin/seed", json=seed, timeout=30).status_code == 400
    assert records(world, SITES, preset="data-processing", rcsite_state="ANY") == before


def test_the_real_rows_of_cric_fit(world: World) -> None:
    real = json.loads((real_inputs() / "cric" / "cric-sites.json").read_text())
    tables = {"site_names": real["site-names"], "data_processing": real["data-processing"]}
    assert requests.post(f"{world.url}/admin/seed", json={"cric": tables}, timeout=30).status_code == 200
    key = lambda row: sorted(row.items())  # noqa: E731
    for preset, rows in real.items():
        assert sorted(records(world, SITES, preset=preset, rcsite_state="ANY"), key=key) == sorted(rows, key=key)
