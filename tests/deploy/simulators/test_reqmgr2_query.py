"""ReqMgr2: queries, their forms, and what the REST layer refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from tests.support.cases import in_one_test
from tests.support.places import real_inputs
from tests.support.simulator_world import World

STEPCHAIN = {
    "RequestName": "alice_chain_1",
    "RequestType": "StepChain",
    "RequestStatus": "staged",
    "Requestor": "alice",
    "Team": "wms2",
    "Campaign": "C1",
    "PrepID": "P-1",
    "RequestDate": [2026, 11, 21, 2, 30, 1],
    "OutputDatasets": ["/P/E-S-v1/GEN-SIM"],
    "StepChain": 2,
    "GlobalTag": "TAG0",
    "Step1": {"StepName": "A", "InputDataset": "/P/E-v1/GEN", "MCPileup": "/PU/E-v1/PREMIX", "GlobalTag": "TAG1"},
    "Step2": {"StepName": "B", "PrepID": "P-1b"},
}
REREC0 = {
    "RequestName": "bob_rereco_1",
    "RequestType": "ReReco",
    "RequestStatus": "acquired",
    "Requestor": "bob",
    "Team": "wms2",
    "Campaign": "C1",
    "PrepID": "P-2",
    "RequestDate": [2026, 11, 20, 2, 30, 1],
    "InputDataset": "/M/E-v1/RAW",
    "OutputDatasets": ["/M/E-S-v1/AOD"],
}
OTHER = {
    "RequestName": "alice_rereco_2",
    "RequestType": "ReReco",
    "RequestStatus": "staged",
    "Requestor": "alice",
    "Team": "others",
    "Campaign": "C2",
    "PrepID": "P-3",
    "RequestDate": [2026, 11, 21, 2, 31, 1],
    "InputDataset": "/M/E-v1/RAW",
    "OutputDatasets": [],
}
DONE = {
    "RequestName": "alice_old_1",
    "RequestType": "ReReco",
    "RequestStatus": "normal-archived",
    "Requestor": "alice",
    "RequestDate": [2020, 1, 1, 1, 1, 1],
}


@pytest.fixture
def filled(world: World) -> World:
    """Four requests."""
    body = {"reqmgr2": {"requests": [STEPCHAIN, REREC0, OTHER, DONE]}}
    assert requests.post(f"{world.url}/admin/seed", json=body, timeout=30).json() == {"reqmgr2": 4}
    return world


def result(world: World, query: str) -> Any:
    """The ``result`` of a query."""
    answer = world.reqmgr2("GET", query)
    assert answer.status_code == 200, answer.headers
    assert answer.headers["X-REST-Status"] == "100"
    assert answer.headers["Content-Type"] == "application/json"
    return answer.json()["result"]


def names(world: World, query: str) -> set[str]:
    """The names a query finds."""
    return set(result(world, f"request?{query}&detail=false"))


@in_one_test(
    "query, found",
    [
        ("status=staged&team=wms2", {"alice_chain_1"}),
        ("status=staged&status=acquired&team=wms2", {"alice_chain_1", "bob_rereco_1"}),
        ("status=staged&team=wms2&team=others", {"alice_chain_1", "alice_rereco_2"}),
        ("status=staged", {"alice_chain_1", "alice_rereco_2"}),
        ("status=ACTIVE", {"alice_chain_1", "alice_rereco_2", "bob_rereco_1"}),
        ("status=normal-archived", {"alice_old_1"}),
        ("status=completed", set()),
        ("name=bob_rereco_1", {"bob_rereco_1"}),
        ("name=bob_rereco_1&name=alice_chain_1&name=nobody", {"bob_rereco_1", "alice_chain_1"}),
        ("name=nobody", set()),
        ("request_type=StepChain", {"alice_chain_1"}),
        ("status=staged&request_type=ReReco", {"alice_rereco_2"}),
        ("status=staged&requestor=alice", {"alice_chain_1", "alice_rereco_2"}),
        ("status=acquired&requestor=alice", set()),
        ("status=staged&request_type=ReReco&requestor=alice", {"alice_rereco_2"}),
        ("prep_id=P-2", {"bob_rereco_1"}),
        ("prep_id=P-1b", {"alice_chain_1"}),
        ("inputdataset=/M/E-v1/RAW", {"bob_rereco_1", "alice_rereco_2"}),
        ("inputdataset=/P/E-v1/GEN", {"alice_chain_1"}),
        ("outputdataset=/M/E-S-v1/AOD", {"bob_rereco_1"}),
        ("campaign=C1", {"alice_chain_1", "bob_rereco_1"}),
        ("campaign=C1&status=acquired", {"bob_rereco_1"}),
        ("mc_pileup=/PU/E-v1/PREMIX", {"alice_chain_1"}),
        ("data_pileup=/PU/E-v1/PREMIX", set()),
        ("date_range=[2026,11,21,2]", {"alice_chain_1", "alice_rereco_2"}),
        ("team=wms2", set()),
        ("status=staged&team=wms2&campaign=C2", {"alice_rereco_2"}),
        ("nonsense=1", set()),
    ],
)
def test_requests_are_found_by(filled: World, query: str, found: set[str]) -> None:
    """The last cases are traps: ``team`` counts only with ``status`` and nothing else, an unknown key finds nothing."""
    assert names(filled, query) == found


def test_the_answer_is_one_map_by_name(filled: World) -> None:
    (rows,) = result(filled, "request?status=staged&team=wms2")
    assert rows == {"alice_chain_1": {**STEPCHAIN, "_id": "alice_chain_1"}}


def test_the_name_may_stand_in_the_path(filled: World) -> None:
    assert list(result(filled, "request/bob_rereco_1")[0]) == ["bob_rereco_1"]


def test_common_dict_answers_a_list_of_documents(filled: World) -> None:
    documents = result(filled, "request?status=staged&common_dict=1")
    assert {document["RequestName"] for document in documents} == {"alice_chain_1", "alice_rereco_2"}


def test_nothing_found_answers_an_empty_list(filled: World) -> None:
    for query in ("request?name=nobody", "request?status=completed&common_dict=1", "request"):
        assert result(filled, query) == []


def test_a_mask_picks_keys_and_collects_them_over_the_steps(filled: World) -> None:
    (rows,) = result(filled, "request?name=alice_chain_1&mask=RequestStatus&mask=GlobalTag&mask=Nothing")
    assert rows["alice_chain_1"]["RequestStatus"] == "staged"
    assert sorted(rows["alice_chain_1"]["GlobalTag"]) == ["TAG0", "TAG1"]
    assert rows["alice_chain_1"]["Nothing"] is None
    (rows,) = result(filled, "request?name=bob_rereco_1&mask=InputDataset")
    assert rows == {"bob_rereco_1": {"InputDataset": "/M/E-v1/RAW"}}


def test_requests_by_a_list_of_names(filled: World) -> None:
    answer = filled.reqmgr2("POST", "request/bynames", ["bob_rereco_1", "nobody", "alice_chain_1"])
    (rows,) = answer.json()["result"]
    assert set(rows) == {"bob_rereco_1", "alice_chain_1"}
    assert filled.reqmgr2("POST", "request/bynames", ["nobody"]).json() == {"result": []}


def test_details_of_archived_requests_are_refused(filled: World) -> None:
    answer = filled.reqmgr2("GET", "request?status=normal-archived")
    assert answer.status_code == 400
    assert answer.headers["X-REST-Status"] == "1102"
    assert "detail=false" in answer.headers["X-Error-Detail"]


def test_statuses_and_their_transitions(world: World) -> None:
    statuses = result(world, "status")
    assert statuses[0] == "new"
    assert len(statuses) == 19
    (table,) = result(world, "status?transition=true")
    assert table["staged"] == ["acquired", "aborted", "failed"]
    assert list(table) == statuses
    assert "StepChain" in result(world, "type")


def test_a_client_that_takes_anything_gets_readable_text(filled: World) -> None:
    answer = requests.get(f"{filled.url}/reqmgr2/data/request?name=bob_rereco_1", headers={"Accept": "*/*"}, timeout=30)
    assert answer.headers["Content-Type"] == "text/plain"
    assert list(answer.json()["result"][0]) == ["bob_rereco_1"]


@in_one_test(
    "method, path, headers, status, app_code",
    [
        ("GET", "nosuchapi", {}, 404, "207"),
        ("GET", "", {}, 400, "205"),
        ("PUT", "status", {}, 405, "204"),
        ("DELETE", "request", {}, 405, "202"),
        ("PUT", "request?name=x", {}, 405, "203"),
        ("POST", "request?name=x", {}, 405, "203"),
        ("GET", "request", {"Accept": "application/xml"}, 406, "201"),
        ("PUT", "request", {"Accept": "text/plain"}, 406, "201"),
        ("GET", "request?common_dict=yes", {}, 400, "1102"),
    ],
)
def test_the_rest_layer_refuses(
    world: World, method: str, path: str, headers: dict[str, str], status: int, app_code: str
) -> None:
    answer = world.reqmgr2(method, path, json={} if method in ("PUT", "POST") else None, headers=headers)
    assert answer.status_code == status
    assert answer.headers["X-REST-Status"] == app_code
    assert answer.headers["X-Error-HTTP"] == str(status)
    assert answer.headers["X-Error-ID"]
    assert answer.headers["X-Error-Detail"]


def test_an_accept_header_is_required(world: World) -> None:
    with requests.Session() as session:
        prepared = session.prepare_request(requests.Request("GET", f"{world.url}/reqmgr2/data/request"))
        del prepared.headers["Accept"]
        answer = session.send(prepared, timeout=30)
    assert (answer.status_code, answer.headers["X-REST-Status"]) == (406, "201")


@pytest.mark.parametrize("name", ["StepChainRequestDump.json", "ReRecoRequestDump.json", "TaskChainRequestDump.json"])
def test_a_whole_real_document_comes_back_as_it_is(world: World, name: str) -> None:
    document = json.loads((real_inputs() / "requests" / name).read_text())
    requests.post(f"{world.url}/admin/seed", json={"reqmgr2": {"requests": [document]}}, timeout=30)
    (rows,) = result(world, f"request?status={document['RequestStatus']}&team={document['Team']}")
    assert rows == {document["RequestName"]: document}
    for dataset in document["OutputDatasets"]:
        assert names(world, f"outputdataset={dataset}") == {document["RequestName"]}
