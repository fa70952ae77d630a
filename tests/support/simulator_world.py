"""The simulators as the tests call them: over HTTP, like any client."""

from __future__ import annotations

import copy
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import requests

from deploy.simulators.app import Application
from deploy.simulators.dbs.service import BulkblocksMode
from deploy.simulators.httpd import SimulatorServer
from tests.support.places import ROOT

DEMO = ROOT / "deploy" / "demo"
TIMEOUT_SECONDS = 30

DATASET = "/TestMuon/Run2026A-Prompt-v1/AOD"
BLOCK = f"{DATASET}#0a1b2c3d-0000-4000-8000-000000000001"
CONFIG = {
    "app_name": "cmsRun",
    "release_version": "CMSSW_14_0_0",
    "pset_hash": "76e303993a1c2f842159dbfeeed9a0dd",
    "output_module_label": "Merged",
    "global_tag": "140X_dataRun3_v1",
}


@dataclass
class World:
    """A running server and how to call each service."""

    url: str
    application: Application

    def dbs(
        self,
        method: str,
        api: str,
        json: Any = None,
        *,
        role: Literal["DBSReader", "DBSWriter"] = "DBSWriter",
        **options: Any,
    ) -> requests.Response:
        """A call to DBS; ``json`` is sent as exactly ``application/json``."""
        url = f"{self.url}/dbs/prod/global/{role}/{api}"
        return requests.request(method, url, json=json, timeout=TIMEOUT_SECONDS, **options)

    def dbs_lock(self, *, locked: bool) -> None:
        """Lock DBS's database against writes, or open it again."""
        answer = requests.post(f"{self.url}/admin/dbs-lock", json={"locked": locked}, timeout=TIMEOUT_SECONDS)
        assert answer.status_code == 200, answer.text

    def read(self, api: str, **params: Any) -> list[dict[str, Any]]:
        """A successful GET from the reader."""
        answer = self.dbs("GET", api, role="DBSReader", params=params)
        assert answer.status_code == 200, answer.text
        records: list[dict[str, Any]] = answer.json()
        return records

    def reqmgr2(self, method: str, path: str, json: Any = None, **options: Any) -> requests.Response:
        """A call to ReqMgr2."""
        headers = {"Accept": "application/json", **options.pop("headers", {})}
        url = f"{self.url}/reqmgr2/data/{path}"
        return requests.request(method, url, json=json, headers=headers, timeout=TIMEOUT_SECONDS, **options)

    def couch(self, method: str, path: str, **options: Any) -> requests.Response:
        """A call to CouchDB."""
        return requests.request(method, f"{self.url}/couchdb/{path}", timeout=TIMEOUT_SECONDS, **options)

    def request(self, name: str) -> dict[str, Any]:
        """A request's document."""
        document: dict[str, Any] = self.reqmgr2("GET", f"request?name={name}").json()["result"][0][name]
        return document


@contextmanager
def running(state: Path, mode: BulkblocksMode = "concurrent", *, begins_as: Path | None = None) -> Iterator[World]:
    """A server in a thread of this process, with a copy of another's state at first."""
    if begins_as is not None:
        shutil.copytree(begins_as, state)
    application = Application(state, mode)
    server = SimulatorServer(("127.0.0.1", 0), application.handle)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield World(f"http://127.0.0.1:{server.server_port}", application)
    finally:
        server.shutdown()
        server.server_close()
        assert server.wait_idle(10)
        application.close()


def dbs_error(answer: requests.Response, status: int = 400) -> int:
    """The DBS code of a refusal with this status, after checking that its body has the form of DBS's errors."""
    assert answer.status_code == status, answer.text
    (record,) = answer.json()
    assert set(record) == {"error", "http", "exception", "type", "message"}
    assert set(record["error"]) == {"reason", "message", "function", "code", "stacktrace"}
    assert record["type"] == "HTTPError"
    assert record["exception"] == record["http"]["code"] == answer.status_code
    assert f"Code: {record['error']['code']}" in record["message"]
    code: int = record["error"]["code"]
    return code


def file_record(number: int, **changes: Any) -> dict[str, Any]:
    """A file as POST /files takes it."""
    return {
        "logical_file_name": f"/store/data/Run2026A/TestMuon/AOD/Prompt-v1/00000/file-{number}.root",
        "dataset": DATASET,
        "block_name": BLOCK,
        "file_type": "EDM",
        "file_size": 1000 + number,
        "event_count": 10,
        "check_sum": "123",
        "adler32": "0cc737eb",
        "md5": "NOTSET",
        "auto_cross_section": 0.0,
        "file_lumi_list": [{"run_num": 380001, "lumi_section_num": number, "event_count": 10}],
        **changes,
    }


def bulkblock(block: str = BLOCK, numbers: range = range(1, 4), **changes: Any) -> dict[str, Any]:
    """A body of POST /bulkblocks with files of these numbers."""
    dataset = block.partition("#")[0]
    files = []
    for number in numbers:
        record = file_record(number)
        del record["dataset"], record["block_name"]
        files.append(record)
    body = {
        "dataset_conf_list": [CONFIG],
        "file_conf_list": [{**CONFIG, "lfn": record["logical_file_name"]} for record in files],
        "files": files,
        "processing_era": {"processing_version": 1, "create_by": "test", "description": ""},
        "acquisition_era": {"acquisition_era_name": "Run2026A", "start_date": 123456789},
        "primds": {"primary_ds_name": dataset.split("/")[1], "primary_ds_type": "data", "create_by": "test", "creation_date": 0},
        "dataset": {
            "dataset": dataset,
            "processed_ds_name": dataset.split("/")[2],
            "data_tier_name": dataset.split("/")[3],
            "physics_group_name": "DataOps",
            "dataset_access_type": "PRODUCTION",
            "prep_id": "TEST",
            "create_by": "test",
        },
        "block": {
            "block_name": block,
            "origin_site_name": "T1_US_FNAL_Disk",
            "open_for_writing": 0,
            "block_size": sum(record["file_size"] for record in files),
            "file_count": len(files),
        },
        "file_parent_list": [],
        "dataset_parent_list": [],
        "block_parent_list": [],
    }
    return {**body, **copy.deepcopy(changes)}


def make_open_block(world: World) -> None:
    """The explicit chain up to an open block without files."""
    for api, record in (
        ("datatiers", {"data_tier_name": "AOD"}),
        ("physicsgroups", {"physics_group_name": "DataOps"}),
        ("primarydatasets", {"primary_ds_name": "TestMuon", "primary_ds_type": "data"}),
        ("acquisitioneras", {"acquisition_era_name": "Run2026A", "start_date": 1}),
        ("processingeras", {"processing_version": 1}),
        ("outputconfigs", CONFIG),
        ("datasets", dataset_record()),
        ("blocks", {"block_name": BLOCK, "open_for_writing": 1, "origin_site_name": "T1_US_FNAL_Disk"}),
    ):
        answer = world.dbs("POST", api, record)
        assert (answer.status_code, answer.json()) == (200, []), (api, answer.text)


def dataset_record(**changes: Any) -> dict[str, Any]:
    """A dataset as POST /datasets takes it."""
    return {
        "dataset": DATASET,
        "primary_ds_name": "TestMuon",
        "processed_ds_name": "Run2026A-Prompt-v1",
        "data_tier_name": "AOD",
        "acquisition_era_name": "Run2026A",
        "processing_version": 1,
        "physics_group_name": "DataOps",
        "dataset_access_type": "PRODUCTION",
        "output_configs": [CONFIG],
        "prep_id": "TEST",
        **changes,
    }


def config_document(**modules: tuple[str, str]) -> dict[str, Any]:
    """A ConfigCache document with these output modules: name to (tier, filter name)."""
    facts = {name: {"dataset": {"dataTier": tier, "filterName": filter_name}} for name, (tier, filter_name) in modules.items()}
    return {"type": "config", "pset_tweak_details": {"process": {"outputModules_": list(modules), **facts}}}


def put_config(world: World, identifier: str, **modules: tuple[str, str]) -> None:
    """Store such a document."""
    assert world.couch("PUT", f"reqmgr_config_cache/{identifier}", json=config_document(**modules)).status_code == 201


def demo(name: str = "stepchain_scratch") -> dict[str, Any]:
    """A pair of the demo."""
    pair: dict[str, Any] = json.loads((DEMO / "requests" / f"{name}.json").read_text())
    return pair


def assert_refused(answer: requests.Response, *words: str) -> None:
    """An "Invalid spec parameter value" refusal with ReqMgr2's headers."""
    assert answer.status_code == 400
    assert answer.headers["X-REST-Status"] == "1102"
    assert answer.headers["X-Error-HTTP"] == "400"
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["X-Error-ID"])
    detail = answer.headers["X-Error-Detail"]
    assert detail.startswith("Invalid spec parameter value: ")
    assert len(detail) <= 200
    assert answer.headers["Content-Type"].startswith("text/html")
    for word in words:
        assert word in detail or word.replace("'", "&#x27;").replace(">", "&gt;") in answer.text, (word, answer.text)
