"""Input datasets of a test's own: in DBS, in Rucio, as ROOT files at their sites; with shared lumis, parents, later blocks."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.demo.inputs import register, write_inputs
from deploy.simulators import seed
from deploy.simulators.client import Caller
from tests.support.places import ROOT

RSES = ("T1_US_FNAL_Disk", "T2_CH_CERN", "T2_US_Purdue")
EVENTS_PER_LUMI = 5


def caller(login: str) -> Caller:
    """Somebody who speaks to the simulated services of the test stack."""
    return Caller(os.environ["WMS2_REQMGR2_URL"].removesuffix("/reqmgr2/data"), login=login)


@dataclass(frozen=True)
class SourceFile:
    """A file to be; its lumis are (run, lumi). ``events_per_lumi`` 0 makes an empty file with lumis."""

    lumis: Sequence[tuple[int, int]]
    rse: str
    first_event: int = 1
    parents: tuple[str, ...] = ()
    events_per_lumi: int = EVENTS_PER_LUMI


@dataclass
class InputDataset:
    """A dataset of this name in DBS, Rucio and storage, block by block, one RSE a block."""

    directory: Path
    tier: str = "RAW"
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    blocks: int = 0

    @property
    def name(self) -> str:
        """As in DBS."""
        return f"/TestInput{self.tag}/TestRun2026-v1/{self.tier}"

    def add_block(self, *files: SourceFile) -> list[str]:
        """Make one block of these files, all at the first one's RSE; their LFNs."""
        return self.add_blocks(files)[0]

    def add_blocks(self, *blocks: Sequence[SourceFile]) -> list[list[str]]:
        """Several at once."""
        self.blocks += len(blocks)
        records = [[self._record(file) for file in files] for files in blocks]
        made = [
            {"block_name": f"{self.name}#{uuid.uuid4()}", "origin_site_name": files[0].rse, "files": each}
            for files, each in zip(blocks, records, strict=True)
        ]
        entry = {"dataset": self.name, "primary_ds_type": "data", "dataset_access_type": "VALID", "blocks": made}
        document = self.directory / f"{self.tag}-{self.tier}-{self.blocks}.json"
        document.write_text(json.dumps({"dbs": {"data_tiers": [self.tier], "datasets": [entry]}}))
        storage = Path(os.environ["WMS2_STATE_DIR"]) / "storage"
        write_inputs(document, storage)
        seed.apply(caller("seed"), document, storage_root=storage)
        register(document, storage)
        return [[record["lfn"] for record in each] for each in records]

    def _record(self, file: SourceFile) -> dict[str, Any]:
        each = file.events_per_lumi
        return {
            "lfn": f"/store/data/TestRun2026/TestInput{self.tag}/{self.tier}/v1/00000/{uuid.uuid4()}.root",
            "events": each * len(file.lumis),
            "first_event": file.first_event,
            "lumis": [{"run": run, "lumi": lumi, "events": each} for run, lumi in file.lumis],
            "parents": list(file.parents),
        }


def seeded_input(directory: Path, *, files_per_site: int = 2, events: int = 10, rses: Sequence[str] = RSES) -> str:
    """A small dataset with so many files at each of these places, of so many events; its name."""
    dataset, lumis = InputDataset(directory), events // EVENTS_PER_LUMI
    places = [rse for rse in rses for _ in range(files_per_site)]
    files = [
        SourceFile([(1, number * lumis + lumi + 1) for lumi in range(lumis)], rse, number * events + 1)
        for number, rse in enumerate(places)
    ]
    dataset.add_blocks(*([file for file in files if file.rse == rse] for rse in rses))
    return dataset.name


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
