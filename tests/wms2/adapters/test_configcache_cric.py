"""ConfigCache and CRIC against the simulators, and documents and tables that must not be believed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from tests.support.simulators import Simulators
from wms2.adapters.configcache import ConfigCache, couch_fault
from wms2.adapters.cric import Cric
from wms2.adapters.http import HttpService
from wms2.adapters.types import OutputModule, SiteRow
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable

DATABASE = "reqmgr_config_cache"
PSET = "import FWCore.ParameterSet.Config as cms\nprocess = cms.Process('SIM')\n"
TWEAKS = {
    "process": {
        "outputModules_": ["RAWSIMoutput", "plain"],
        "RAWSIMoutput": {"dataset": {"dataTier": "GEN-SIM", "filterName": ""}, "fileName": "RAWSIM.root"},
        "plain": {"fileName": "x.root"},
    }
}


def configcache(override: str = "", *, allowed: str = "") -> ConfigCache:
    return ConfigCache(
        lambda url: HttpService("configcache", url, timeout_seconds=5, fault_parser=couch_fault),
        override,
        allowed=[allowed] if allowed else [],
    )


def store(simulators: Simulators, document: dict[str, Any], pset: bytes | None = PSET.encode()) -> str:
    identifier = uuid.uuid4().hex
    path = f"/couchdb/{DATABASE}/{identifier}"
    revision = simulators.call("PUT", path, document)["rev"]
    if pset is not None:
        simulators.call("PUT", f"{path}/configFile?rev={revision}", pset, "text/plain")
    return identifier


def test_a_pset_comes_with_its_hash_and_its_output_modules(simulators: Simulators) -> None:
    identifier = store(simulators, {"pset_hash": "76e3", "md5_hash": "0123", "pset_tweak_details": TWEAKS})
    url = f"{simulators.url}/couchdb"
    document = configcache(allowed=f"{url}/").config(url, DATABASE, identifier)
    assert (document.pset, document.pset_hash) == (PSET, "76e3")
    assert document.output_modules == (OutputModule("RAWSIMoutput", "GEN-SIM", ""), OutputModule("plain", "", ""))


def test_the_configured_url_replaces_the_documents(simulators: Simulators) -> None:
    identifier = store(simulators, {"md5_hash": "0123", "pset_tweak_details": TWEAKS})
    document = configcache(f"{simulators.url}/couchdb").config("https://nowhere.invalid/couchdb", DATABASE, identifier)
    assert document.pset_hash == "0123"


def test_a_url_that_is_not_allowed_is_never_called(httpserver: HTTPServer) -> None:
    inside = httpserver.url_for("/admin")
    for other in (inside, inside + "/couchdb", httpserver.url_for("/couchdb").replace("localhost", "127.0.0.1")):
        with pytest.raises(ServiceRejected, match=r"is no ConfigCache that WMS2 asks; it asks https://cmsweb\.cern\.ch/couchdb"):
            configcache(allowed="https://CMSWEB.cern.ch:443/couchdb/").config(other, DATABASE, "x")
    assert httpserver.log == []


@pytest.mark.parametrize(
    "url", ["https://cmsweb.cern.ch:99999/couchdb", "https://cmsweb.cern.ch:x/couchdb", "https://[::1/couchdb"]
)
def test_a_url_that_is_none_is_refused_like_any_other(url: str) -> None:
    assert "is no ConfigCache that WMS2 asks" in str(configcache(allowed="https://cmsweb.cern.ch/couchdb").problem(url))


def test_the_allowed_url_is_asked_whatever_else_the_documents_says(httpserver: HTTPServer) -> None:
    httpserver.expect_request(f"/couchdb/{DATABASE}/x").respond_with_json({"error": "not_found"}, 404)
    url = httpserver.url_for("/couchdb")
    with pytest.raises(NotFoundInService):
        configcache(allowed=url).config(url.replace("://", "://eve:secret@") + "/?a=", DATABASE, "x")
    ((sent, _),) = httpserver.log
    assert (sent.path, sent.query_string, sent.authorization) == (f"/couchdb/{DATABASE}/x", b"", None)


@pytest.mark.parametrize("status", [200, 302, 403, 404, 500])
def test_nothing_of_a_strange_answer_is_passed_on_and_no_redirect_is_followed(httpserver: HTTPServer, status: int) -> None:
    url = httpserver.url_for("/couchdb")
    headers = {"Location": httpserver.url_for("/elsewhere?secret=1")} if status == 302 else {}
    for body in ("secret", '{"error": "secret", "reason": "secret"}', '{"error": "forbidden", "reason": "secret"}'):
        httpserver.clear()
        httpserver.expect_request(f"/couchdb/{DATABASE}/x").respond_with_data(body, status, headers)
        with pytest.raises((ServiceRejected, ServiceUnavailable)) as caught:
            configcache(allowed=url).config(url, DATABASE, "x")
        assert "secret" not in str(caught.value)
        assert {entry[0].path for entry in httpserver.log} <= {f"/couchdb/{DATABASE}/x"}


def test_what_is_not_there_is_not_found(simulators: Simulators) -> None:
    url = f"{simulators.url}/couchdb"
    without_pset = store(simulators, {"pset_hash": "76e3", "pset_tweak_details": TWEAKS}, pset=None)
    for database, identifier in ((DATABASE, "missing"), ("no_such_database", "x"), (DATABASE, without_pset)):
        with pytest.raises(NotFoundInService, match="not_found"):
            configcache(allowed=url).config(url, database, identifier)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"pset_hash": "1", "pset_tweak_details": {}}, "lists no output modules"),
        (
            {"pset_hash": "1", "pset_tweak_details": {"process": {"outputModules_": ["a"]}}},
            "lists output module 'a' but does not",
        ),
        ({"pset_hash": "1", "pset_tweak_details": {"process": {"outputModules_": ["a"], "a": {"dataset": 7}}}}, "module 'a'"),
        ({"pset_hash": "1", "pset_tweak_details": {"process": {"outputModules_": [["a"]]}}}, "but does not describe it"),
        ({"pset_hash": None, "pset_tweak_details": TWEAKS}, "neither pset_hash nor md5_hash"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_saying_why(
    simulators: Simulators, document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ServiceRejected, match=problem):
        url = f"{simulators.url}/couchdb"
        configcache(allowed=url).config(url, DATABASE, store(simulators, document))


@pytest.mark.parametrize(("pset", "problem"), [(b" \n", "is empty"), (b"\xff\xfe", "is not UTF-8")])
def test_a_pset_that_is_none_is_refused(simulators: Simulators, pset: bytes, problem: str) -> None:
    identifier = store(simulators, {"pset_hash": "1", "pset_tweak_details": TWEAKS}, pset)
    with pytest.raises(ServiceRejected, match=problem):
        configcache(f"{simulators.url}/couchdb").config("", DATABASE, identifier)


def cric(url: str) -> Cric:
    return Cric(HttpService("cric", url, timeout_seconds=5))


def test_site_names_and_processing_pairs_are_read(simulators: Simulators) -> None:
    service = cric(simulators.url)
    assert SiteRow("FNAL", "T1_US_FNAL", "psn") in service.site_names().read
    pairs = service.processing_pairs().read
    assert {("T1_US_FNAL_Disk", "T1_US_FNAL"), ("T3_US_FNALLPC", "T1_US_FNAL")} <= set(pairs)


@pytest.mark.parametrize(
    ("answer", "error", "problem"),
    [
        ({"desc": {"columns": ["phedex_name", "psn_name"]}, "result": []}, ServiceRejected, "is empty; not taken for the truth"),
        ({"desc": {"columns": ["phedex_name"]}, "result": [["T2"]]}, ServiceRejected, "has no column psn_name"),
        ({"result": {}}, ServiceUnavailable, "unexpected shape"),
    ],
)
def test_an_empty_or_torn_table_is_never_taken_for_the_truth(
    httpserver: HTTPServer, answer: object, error: type[Exception], problem: str
) -> None:
    httpserver.expect_request("/api/cms/site/query/").respond_with_json(answer)
    with pytest.raises(error, match=problem):
        cric(httpserver.url_for("")).processing_pairs()
