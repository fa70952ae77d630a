"""Adapters are built from the environment, once, and never fall back to anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from tests.support.adapters import adapters_forget
from wms2.adapters import factory
from wms2.errors import ConfigurationError, ServiceUnavailable


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, httpserver: HTTPServer) -> Iterator[pytest.MonkeyPatch]:
    url = httpserver.url_for("")
    for name, value in {
        "INSTANCE": "demo-1",
        "ENVIRONMENT": "test",
        "STATE_DIR": str(tmp_path),
        "SUBMIT_ROOT": str(tmp_path),
        "REQMGR2_URL": f"{url}/reqmgr2/data",
        "CONFIGCACHE_URL": f"{url}/couchdb",
        "DBS_READER_URL": f"{url}/reader",
        "DBS_WRITER_URL": f"{url}/writer",
        "CRIC_URL": url,
        "RUCIO_HOME": str(tmp_path),
        "RUCIO_ACCOUNT": "wms2",
        "SCHEDD_NAME": "schedd@host",
        "COLLECTOR": "127.0.0.1:1",
        "SERVICE_TIMEOUT_SECONDS": "5",
    }.items():
        monkeypatch.setenv(f"WMS2_{name}", value)
    adapters_forget()
    yield monkeypatch
    adapters_forget()


def test_each_service_is_asked_at_its_own_url(environment: pytest.MonkeyPatch, httpserver: HTTPServer) -> None:
    document = {"RequestName": "r", "RequestStatus": "new"}
    httpserver.expect_request("/reqmgr2/data/request").respond_with_json({"result": [{"r": document}]})
    httpserver.expect_request("/reader/datasets").respond_with_json([])
    httpserver.expect_request("/writer/files").respond_with_json([])
    httpserver.expect_request("/api/cms/site/query/").respond_with_json(
        {"desc": {"columns": ["phedex_name", "psn_name"]}, "result": [["T2", "T2"]]}
    )
    assert factory.reqmgr2().request("r") == document
    assert factory.dbs().dataset("/P/E-v1/TIER") is None
    assert factory.dbs().block_files("/P/E-v1/TIER#1") == []
    assert len(factory.cric().processing_pairs().read) == 1
    with pytest.raises(ServiceUnavailable, match=r"HTTP 500, GET .*/couchdb/db/id"):
        factory.configcache().config("https://elsewhere.invalid/couchdb", "db", "id")


def test_an_adapter_is_built_once_and_again_after_reset(environment: pytest.MonkeyPatch) -> None:
    first = factory.htcondor("schedd@host", "127.0.0.1:1")
    assert factory.htcondor("schedd@host", "127.0.0.1:1") is first
    assert factory.htcondor("other@host", "127.0.0.1:1") is not first
    adapters_forget()
    assert factory.htcondor("schedd@host", "127.0.0.1:1") is not first


def test_a_pool_that_is_not_there_is_unavailable_not_empty(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("CONDOR_CONFIG", raising=False)
    with pytest.raises(ServiceUnavailable):
        factory.htcondor("schedd@host", "127.0.0.1:1").watch("demo-1")


def test_a_missing_setting_stops_with_its_name(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("WMS2_DBS_WRITER_URL")
    adapters_forget()
    with pytest.raises(ConfigurationError, match="WMS2_DBS_WRITER_URL"):
        factory.dbs()
