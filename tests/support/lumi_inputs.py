"""Input datasets by lumis, for tests on the stack: files that share lumis, parents, blocks that come later."""

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

EVENTS_PER_LUMI = 5


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
        return f"/TestLumis{self.tag}/TestRun2026-v1/{self.tier}"

    def add_block(self, *files: SourceFile) -> list[str]:
        """Make one block of these files, all at the first one's RSE; their LFNs."""
        self.blocks += 1
        records = [self._record(file) for file in files]
        block = {"block_name": f"{self.name}#{uuid.uuid4()}", "origin_site_name": files[0].rse, "files": records}
        entry = {"dataset": self.name, "primary_ds_type": "data", "dataset_access_type": "VALID", "blocks": [block]}
        document = self.directory / f"{self.tag}-{self.tier}-{self.blocks}.json"
        document.write_text(json.dumps({"dbs": {"data_tiers": [self.tier], "datasets": [entry]}}))
        storage = Path(os.environ["WMS2_STATE_DIR"]) / "storage"
        write_inputs(document, storage)
        base = os.environ["WMS2_REQMGR2_URL"].removesuffix("/reqmgr2/data")
        seed.apply(Caller(base, login="seed"), document, storage_root=storage)
        register(document, storage)
        return [record["lfn"] for record in records]

    def _record(self, file: SourceFile) -> dict[str, Any]:
        each = file.events_per_lumi
        return {
            "lfn": f"/store/data/TestRun2026/TestLumis{self.tag}/{self.tier}/v1/00000/{uuid.uuid4()}.root",
            "events": each * len(file.lumis),
            "first_event": file.first_event,
            "lumis": [{"run": run, "lumi": lumi, "events": each} for run, lumi in file.lumis],
            "parents": list(file.parents),
        }
