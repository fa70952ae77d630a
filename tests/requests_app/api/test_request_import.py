"""POST /requests: by name from ReqMgr2 or by document, checked whole against ConfigCache, stored whole or not at all.

ReqMgr2 and ConfigCache are the simulators, over HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from rest_framework.test import APIClient

from deploy.simulators import client as simulator_client
from deploy.simulators import seed
from requests_app.models import Request, RequestStatus, RequestTransition
from sites_app.models import Site
from tests.support.adapters import adapters_forget
from tests.support.cases import in_one_test
from tests.support.places import ROOT
from tests.support.problems import problem
from tests.support.rows import pool_row
from tests.support.simulators import Simulators
from wms2.adapters import factory
from wms2.errors import ConfigurationError
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
URL = "/api/v1/requests"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulators]:
    """The services with the demo's ConfigCache documents."""
    running = Simulators(tmp_path_factory.mktemp("world"))
    seed.apply(simulator_client.Caller(running.url, login="seed"), ROOT / "deploy/demo/seed.json")
    yield running
    running.stop()


@pytest.fixture
def services(world: Simulators, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulators]:
    """WMS2 pointed at them."""
    monkeypatch.setenv("WMS2_REQMGR2_URL", f"{world.url}/reqmgr2/data")
    monkeypatch.setenv("WMS2_CONFIGCACHE_URL", f"{world.url}/couchdb")
    monkeypatch.setenv("WMS2_SERVICE_TIMEOUT_SECONDS", "5")
    for name in ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue"):
        Site.objects.create(name=name)
    adapters_forget()
    yield world
    monkeypatch.undo()
    adapters_forget()


@pytest.fixture
def document() -> dict[str, Any]:
    """The demo's chain from scratch."""
    pair: dict[str, Any] = json.loads((ROOT / "deploy/demo/requests/stepchain_scratch.json").read_text())
    return pair


def test_a_document_is_imported_under_its_name_and_waits_for_the_life_cycle(
    operator: APIClient, services: Simulators, document: dict[str, Any]
) -> None:
    response = operator.post(URL, {"document": document, "request_name": "olga_demo_1"})

    assert response.status_code == 201, response.content
    body = response.json()
    assert (body["request_name"], body["status"], body["workflow"]) == ("olga_demo_1", "submitted", None)
    assert response["Location"].endswith("/api/v1/requests/olga_demo_1")
    assert operator.get(response["Location"]).json() == body
    row = Request.objects.get(request_name="olga_demo_1")
    assert row.request_data == document
    assert RequestTransition.objects.get(request=row).actor == "olga"
    assert AuditEntry.objects.get(target="olga_demo_1").action == "request_import"


def test_a_request_is_taken_from_reqmgr2_by_name(operator: APIClient, services: Simulators, document: dict[str, Any]) -> None:
    name = simulator_client.submit(simulator_client.Caller(services.url), document)

    body = operator.post(URL, {"request_name": name, "source": "reqmgr2"}).json()

    assert (body["request_name"], body["status"]) == (name, "submitted")
    assert body["request_data"]["RequestName"] == name


def test_submit_false_leaves_it_new_until_somebody_submits_it(
    operator: APIClient, services: Simulators, document: dict[str, Any]
) -> None:
    body = operator.post(URL, {"document": document, "request_name": "olga_new", "submit": False}).json()
    assert body["status"] == "new"
    assert operator.patch(f"{URL}/olga_new", {"status": "submitted"}).json()["status"] == "submitted"


def test_urgency_and_priority_may_be_given_beside_the_document(
    operator: APIClient, services: Simulators, document: dict[str, Any]
) -> None:
    body = operator.post(URL, {"document": document, "request_name": "olga_urgent", "urgent": True, "priority": 7}).json()
    assert (body["urgent"], body["priority"]) == (True, 7)


def test_it_may_name_its_pools_which_a_verb_changes_and_unknown_ones_are_refused_with_those_known(
    operator: APIClient, services: Simulators, document: dict[str, Any]
) -> None:
    pool_row("cern")
    pool_row("fnal")
    refused = operator.post(URL, {"document": document, "request_name": "olga_pools", "pools": ["desy"]})
    assert refused.status_code == 422 and "there is no pool desy; known: cern, fnal" in refused.content.decode()
    assert not Request.objects.exists()
    body = operator.post(URL, {"document": document, "request_name": "olga_pools", "pools": ["fnal"]}).json()
    assert body["overrides"] == {"pools": ["fnal"]}
    action = f"{URL}/olga_pools/pools"
    assert operator.post(action, {"pools": ["desy"], "reason": "x"}).status_code in (400, 422)
    answer = operator.post(action, {"pools": ["cern", "fnal"], "reason": "fnal is full"})
    assert answer.status_code in (200, 202), answer.content
    assert Request.objects.get().overrides == {"pools": ["cern", "fnal"]}
    operator.post(action, {"pools": [], "reason": "anywhere"})
    assert Request.objects.get().overrides == {}


def test_a_refused_document_names_every_problem_and_stores_nothing(
    operator: APIClient, services: Simulators, document: dict[str, Any]
) -> None:
    document["createRequest"]["Step1"]["FilterEfficiency"] = 3
    document["createRequest"]["RequestPriority"] = -5
    document["createRequest"]["NoSuchField"] = 1

    body = problem(operator.post(URL, {"document": document, "request_name": "olga_bad"}), 422, "document_refused")

    fields = {entry["field"] for entry in body["problems"]}
    assert {"Step1.FilterEfficiency", "RequestPriority"} <= fields
    assert all(entry["problem"] for entry in body["problems"])
    assert body["field"] == body["problems"][0]["field"]
    assert not Request.objects.exists()


def test_a_missing_configuration_is_found_before_anything_is_stored(
    operator: APIClient, services: Simulators, document: dict[str, Any]
) -> None:
    document["createRequest"]["Step1"]["ConfigCacheID"] = "0" * 32
    problem(operator.post(URL, {"document": document, "request_name": "olga_bad"}), 422, "document_refused")
    assert not Request.objects.exists()


def test_a_repeated_import_names_the_request_that_is_there(
    operator: APIClient, services: Simulators, document: dict[str, Any]
) -> None:
    made = operator.post(URL, {"document": document, "request_name": "olga_twice"})
    assert made.status_code == 201
    Request.objects.update(status=RequestStatus.QUEUED)

    body = problem(operator.post(URL, {"document": document, "request_name": "olga_twice"}), 409, "request_exists")

    assert body["existing"] == {"request_name": "olga_twice", "status": "queued", "url": made["Location"]}
    assert "olga_twice is known already and is queued" in body["detail"]
    assert operator.get(body["existing"]["url"]).json()["request_name"] == "olga_twice"
    assert Request.objects.count() == 1


def test_the_command_tells_the_status_of_a_known_request_too(
    operator: APIClient, services: Simulators, document: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator.post(URL, {"document": document, "request_name": "olga_twice"})
    (tmp_path / "doc.json").write_text(json.dumps(document))
    with pytest.raises(SystemExit) as stopped:
        call_command("import_request", "--file", str(tmp_path / "doc.json"), "--name", "olga_twice")
    assert stopped.value.code == 2
    assert "RequestName: olga_twice is known already and is submitted" in capsys.readouterr().err


def test_a_repeated_import_is_told_although_reqmgr2_is_silent_by_now(
    operator: APIClient, services: Simulators, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = simulator_client.submit(simulator_client.Caller(services.url), document)
    asked = {"request_name": name, "source": "reqmgr2"}
    assert operator.post(URL, asked).status_code == 201
    monkeypatch.setenv("WMS2_REQMGR2_URL", "http://127.0.0.1:1/reqmgr2/data")
    adapters_forget()
    assert problem(operator.post(URL, asked), 409, "request_exists")["existing"]["request_name"] == name


def test_a_name_that_reqmgr2_does_not_know_is_refused(operator: APIClient, services: Simulators) -> None:
    body = problem(operator.post(URL, {"request_name": "nobody_none_1"}), 422, "document_refused", field="request_name")
    assert "ReqMgr2 has no request nobody_none_1" in body["detail"]


def test_a_service_that_does_not_answer_is_503_with_a_time_to_come_back_and_nothing_is_stored(
    operator: APIClient, services: Simulators, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WMS2_CONFIGCACHE_URL", "http://127.0.0.1:1/couchdb")
    adapters_forget()
    response = operator.post(URL, {"document": document, "request_name": "olga_later"})
    problem(response, 503, "service_unavailable")
    assert int(response["Retry-After"]) > 0
    assert not Request.objects.exists()


def test_a_document_whose_configurations_are_elsewhere_is_refused_and_nobody_is_called(
    operator: APIClient, services: Simulators, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a ConfigCache for all documents only the one of ReqMgr2's host counts, or those that are listed."""
    monkeypatch.delenv("WMS2_CONFIGCACHE_URL")
    adapters_forget()
    document["createRequest"]["ConfigCacheUrl"] = "http://127.0.0.1:1/couchdb"
    body = problem(
        operator.post(URL, {"document": document, "request_name": "olga_ssrf"}), 422, "document_refused", field="ConfigCacheUrl"
    )
    assert f"it asks {services.url}/couchdb" in body["detail"]
    document["createRequest"]["ConfigCacheUrl"] = f"{services.url}/couchdb"
    assert operator.post(URL, {"document": document, "request_name": "olga_allowed"}).status_code == 201

    monkeypatch.setenv("WMS2_CONFIGCACHE_ALLOWED_URLS", "https://one.example/couchdb,https://two.example/couchdb")
    adapters_forget()
    problem(
        operator.post(URL, {"document": document, "request_name": "olga_two"}), 422, "document_refused", field="ConfigCacheUrl"
    )

    monkeypatch.setenv("WMS2_ENVIRONMENT", "production")
    monkeypatch.setenv("WMS2_CONFIGCACHE_ALLOWED_URLS", "http://one.example/couchdb")
    adapters_forget()
    reported = (
        "environment:\n  WMS2_CONFIGCACHE_ALLOWED_URLS: ConfigCache has to be asked by https, not at 'http://one.example/couchdb'"
    )
    with pytest.raises(ConfigurationError, match=re.escape(reported)):
        factory.configcache()
    monkeypatch.setenv("WMS2_CONFIGCACHE_ALLOWED_URLS", "https://one.example:99999/couchdb")
    adapters_forget()
    with pytest.raises(ConfigurationError, match=r"WMS2_CONFIGCACHE_ALLOWED_URLS: .*:99999"):
        factory.configcache()


@in_one_test(
    "body, field",
    [
        ({}, "request_name"),
        ({"request_name": ""}, "request_name"),
        ({"request_name": "../etc"}, "request_name"),
        ({"request_name": "a b"}, "request_name"),
        ({"request_name": "x" * 151}, "request_name"),
        ({"request_name": None}, "request_name"),
        ({"request_name": ["a"]}, "request_name"),
        ({"request_name": "a", "source": "wmstats"}, "source"),
        ({"document": {}, "source": "reqmgr2"}, "source"),
        ({"document": "text"}, "document"),
        ({"document": None}, "document"),
        ({"document": [1]}, "document"),
        ({"document": {}, "submit": "perhaps"}, "submit"),
        ({"document": {}, "submit": None}, "submit"),
        ({"document": {}, "urgent": []}, "urgent"),
        ({"document": {}, "priority": -1}, "priority"),
        ({"document": {}, "priority": 1_000_000}, "priority"),
        ({"document": {}, "priority": "high"}, "priority"),
        ({"document": {}, "priority": 10**400}, "priority"),
        ({"document": {}, "status": "active"}, "status"),
        ({"request_name": "a", "production_steps": [{"fraction": 1.5, "priority": 8}]}, "production_steps"),
    ],
)
def test_a_wrong_body_is_400_and_names_the_field(operator: APIClient, body: dict[str, Any], field: str) -> None:
    problem(operator.post(URL, body), 400, "invalid", field=field)


def test_who_sends_neither_a_name_nor_a_document_is_told_of_both_and_nothing_is_sent_back_whole(operator: APIClient) -> None:
    assert "as 'document'" in problem(operator.post(URL, {}), 400, "invalid", field="request_name")["detail"]
    for body in ({"request_name": "a_request", "doc": {}}, {"document": {}, "doc": {}}):
        reported = problem(operator.post(URL, body), 400, "invalid", field="doc")["detail"]
        assert "document" in reported and "source" in reported
    reported = problem(operator.post(URL, {"request_name": "a_request", "source": "x" * 6000}), 400, "invalid", field="source")
    assert "is not one of reqmgr2" in reported["detail"] and len(reported["detail"]) < 200
    assert not Request.objects.exists()


@in_one_test(
    "document",
    [
        {},
        {"RequestType": "ReReco"},
        {"result": []},
        {"result": [{"a": 1}, {"b": 2}]},
        {"createRequest": 1, "assignRequest": []},
        {"RequestType": ["StepChain"], "StepChain": {"a": 1}},
        {"RequestType": "StepChain", "StepChain": 10**30},
        {"RequestName": "a/../b", "RequestType": "TaskChain"},
    ],
)
@in_one_test("priority", [None, 5])
def test_whatever_the_document_is_the_answer_is_a_list_of_problems(
    operator: APIClient, document: dict[str, Any], priority: int | None
) -> None:
    body = {"document": document} if priority is None else {"document": document, "priority": priority}
    assert problem(operator.post(URL, body), 422, "document_refused")["problems"]


def test_readers_do_not_import(reader: APIClient) -> None:
    problem(reader.post(URL, {"request_name": "a"}), 403, "permission_denied")


def test_production_steps_come_with_the_import_and_wrong_ones_store_nothing(
    operator: APIClient, services: Simulators, document: dict[str, Any]
) -> None:
    """Spec 7.2, the example of partial production."""
    backwards = [{"fraction": 0.5, "priority": 2}, {"fraction": 0.1, "priority": 1}]
    refused = problem(operator.post(URL, {"document": document, "production_steps": backwards}, format="json"), 400, "invalid")
    assert refused["field"] == "production_steps"
    assert not Request.objects.exists()
    steps = [{"fraction": 0.1, "priority": 80000}, {"fraction": 0.5, "priority": 50000}]
    body = operator.post(URL, {"document": document, "production_steps": steps}, format="json")
    assert (body.status_code, body.json()["production_steps"]) == (201, steps)
    (warning,) = Request.objects.get(request_name=body.json()["request_name"]).warnings
    assert "step at 10.0% cannot be met with work units of 25.0% of the work: it is taken at 25.0%" in warning


def test_a_request_may_name_only_dqm_servers_that_are_allowed(
    operator: APIClient, services: Simulators, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WMS2_DQM_UPLOAD_URL", raising=False)
    monkeypatch.setenv("WMS2_DQM_UPLOAD_ALLOWED_URLS", "https://one.example/dqm")
    adapters_forget()
    configuration = document["createRequest"]["Step1"]["ConfigCacheID"]
    asked = {"EnableHarvesting": True, "DQMConfigCacheID": configuration, "DQMUploadUrl": "https://one.example/dqm/dev"}
    document["createRequest"] |= asked
    assert operator.post(URL, {"document": document, "request_name": "olga_dqm"}).status_code == 201
    document["createRequest"]["DQMUploadUrl"] += ";https://one.example/dqmx;https://two.example/dqm"
    body = problem(
        operator.post(URL, {"document": document, "request_name": "olga_dqm2"}), 422, "document_refused", field="DQMUploadUrl"
    )
    assert (
        "https://one.example/dqmx, https://two.example/dqm: WMS2 uploads to https://one.example/dqm/ and below only"
        in body["detail"]
    )
