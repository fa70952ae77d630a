"""A small input dataset of its own for each test that needs one: in DBS, in Rucio, and as ROOT files at its sites."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.demo.inputs import register, write_inputs
from deploy.simulators import seed
from deploy.simulators.client import Caller
from tests.support.stack import ROOT

RSES = ("T1_US_FNAL_Disk", "T2_CH_CERN", "T2_US_Purdue")
EVENTS_PER_LUMI = 5


def seeded_input(directory: Path, *, files_per_site: int = 2, events: int = 10, rses: Sequence[str] = RSES) -> str:
    """Make it; returns the dataset's name."""
    tag = uuid.uuid4().hex[:8]
    dataset = f"/TestInput{tag}/TestRun2026-v1/RAW"
    blocks, first_event, lumi = [], 1, 1
    for rse in rses:
        files = []
        for _ in range(files_per_site):
            lumis = [
                {"run": 1, "lumi": lumi + n, "events": EVENTS_PER_LUMI} for n in range(events // EVENTS_PER_LUMI)
            ]  # fmt: skip
            lfn = f"/store/data/TestRun2026/TestInput{tag}/RAW/v1/00000/{uuid.uuid4()}.root"
            files.append({"lfn": lfn, "events": events, "first_event": first_event, "lumis": lumis})
            first_event, lumi = first_event + events, lumi + len(lumis)
        blocks.append({"block_name": f"{dataset}#{uuid.uuid4()}", "origin_site_name": rse, "files": files})
    entry = {"dataset": dataset, "primary_ds_type": "data", "dataset_access_type": "VALID", "blocks": blocks}
    file = directory / "input.json"
    file.write_text(json.dumps({"dbs": {"data_tiers": ["RAW"], "datasets": [entry]}}))
    storage = Path(os.environ["WMS2_STATE_DIR"]) / "storage"
    write_inputs(file, storage)
    base = os.environ["WMS2_REQMGR2_URL"].removesuffix("/reqmgr2/data")
    seed.apply(Caller(base, login="seed"), file, storage_root=storage)
    register(file, storage)
    return dataset


def small_reprocessing(dataset: str) -> dict[str, Any]:
    """The demo's request with input over this dataset, two files a job, under a name of its own."""
    document: dict[str, Any] = json.loads((ROOT / "deploy/demo/requests/rereco_input.json").read_text())
    tag = uuid.uuid4().hex[:8]
    document["createRequest"] |= {
        "InputDataset": dataset,
        "RequestString": f"test_{tag}",
        "AcquisitionEra": "TestRun2026",
        "ProcessingString": f"Test{tag}",
        "FilesPerJob": 2,
    }
    document["assignRequest"] |= {"AcquisitionEra": "TestRun2026", "ProcessingString": f"Test{tag}"}
    return document
