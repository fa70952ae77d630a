"""DQM of a request that has completed is harvested by a job on a real pool, and is with the DQM server once that takes it."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
import requests

from deploy.simulators import seed
from deploy.simulators.client import Caller
from requests_app.models import Harvest, HarvestState, RequestStatus
from tests.support.calls import overdue
from tests.support.outcomes import ended, imported, status
from tests.support.payload_psets import pset
from tests.support.stack import small_request, worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
SOURCE = 'process.source = cms.Source("{}",\n    fileNames = cms.untracked.vstring()\n)'


@pytest.fixture(name="simulators")
def _simulators() -> str:
    return os.environ["WMS2_REQMGR2_URL"].removesuffix("/reqmgr2/data")


def harvesting_request(simulators: str, directory: Path) -> dict[str, Any]:
    """The small chain, whose last step writes DQMIO too, and a configuration that harvests it."""
    reco, harvesting = uuid.uuid4().hex, uuid.uuid4().hex
    outputs = {"AODSIMoutput": "AODSIM", "DQMoutput": "DQMIO"}
    modules = {label: {"dataset": {"dataTier": tier, "filterName": ""}} for label, tier in outputs.items()}
    written = pset("RECO", SOURCE.format("PoolSource"), outputs).replace(
        'DQMoutput = cms.OutputModule("PoolOutputModule"', 'DQMoutput = cms.OutputModule("DQMRootOutputModule"'
    )
    saver = 'process.dqmSaver = cms.EDAnalyzer("DQMFileSaver", workflow = cms.untracked.string("/A/B/C"))\n'
    entries = [
        {"id": reco, "pset": written, "document": tweaked(outputModules_=list(outputs), **modules)},
        {
            "id": harvesting,
            "pset": pset("HARVESTING", SOURCE.format("DQMRootSource"), {}) + saver,
            "document": tweaked(outputModules_=[]),
        },
    ]
    path = directory / "configcache.json"
    path.write_text(json.dumps({"configcache": entries}))
    seed.apply(Caller(simulators, login="seed"), path)
    document = small_request(events=20, steps=3)
    document["createRequest"] |= {"EnableHarvesting": True, "DQMConfigCacheID": harvesting}
    document["createRequest"]["Step3"]["ConfigCacheID"] = reco
    return document


def tweaked(**process: Any) -> dict[str, Any]:
    return {"type": "config", "pset_hash": uuid.uuid4().hex, "pset_tweak_details": {"process": process}}


@pytest.mark.deep("tests/requests_app/harvesting/test_jobs.py::test_each_run_becomes_a_file_of_its_own")
def test_it_is_uploaded_when_the_server_is_back_and_the_request_did_not_wait(
    ready: None, simulators: str, tmp_path: Path
) -> None:
    server = f"{simulators}/dqm/t{uuid.uuid4().hex[:8]}"
    request = imported(harvesting_request(simulators, tmp_path))
    down(simulators, is_down=True)
    try:
        with worker(WMS2_DQM_UPLOAD_URL=server, WMS2_STORAGE_CHECKS_ENABLED="false") as running:
            running.wait(lambda: ended(request), seconds=300)
            assert status(request) == RequestStatus.COMPLETED
            row = Harvest.objects.get(request=request)
            running.wait(lambda: Harvest.objects.filter(pk=row.pk, attempts=1).exists(), seconds=300)
            row.refresh_from_db()
            assert (row.run, row.state) == (1, HarvestState.WAITING)
            assert "did not take DQM_V0001_R000000001__TestPrimary" in row.problem
            assert "HTTP 503" in row.problem

            down(simulators, is_down=False)
            Harvest.objects.update(next_try_at=overdue())
            running.wait(lambda: Harvest.objects.filter(pk=row.pk, state=HarvestState.DONE).exists(), seconds=300)
    finally:
        down(simulators, is_down=False)
    row.refresh_from_db()
    (upload,) = row.uploads
    assert upload["name"] == f"DQM_V0001_R000000001{row.dataset.replace('/', '__')}.root"
    assert requests.get(f"{server}/data/browse", timeout=30).json() == [f"0001/{upload['name']}"]
    stored = requests.get(f"{server}/data/browse/0001/{upload['name']}", timeout=30).content
    assert (len(stored), stored[:4]) == (upload["size_bytes"], b"root")
    assert status(request) == RequestStatus.COMPLETED


def down(simulators: str, *, is_down: bool) -> None:
    assert requests.post(f"{simulators}/admin/dqm", json={"down": is_down}, timeout=30).json() == {"down": is_down}
