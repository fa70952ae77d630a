"""A small finished request with real ROOT files, for doctoring: 2 datasets of 2 files, 400 events, 8 lumis, one block each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import uproot

from deploy.demo import storage
from deploy.demo.facts import (
    Asked,
    CondorJob,
    DagRow,
    DatasetFacts,
    DbsBlock,
    DbsFile,
    EventId,
    Ledger,
    LumiId,
    Planned,
    PoolFacts,
    RequestFacts,
    RootFile,
    RucioBlock,
    RucioFile,
    Rule,
)

FIRST_EVENT, EVENTS, FIRST_LUMI, PER_LUMI = 10_001, 400, 101, 50
ASKED = Asked(steps_kept=("GenSim", "Reco"), numbers=(FIRST_EVENT, EVENTS, FIRST_LUMI), share=1.0)
RSES = ("T1_US_FNAL_Disk", "T2_CH_CERN")
TAPE = "T1_US_FNAL_Tape"
POOL = PoolFacts(
    jobs=(CondorJob(7, "dag-1", 4, 0),),
    unmerged=(),
    tape_rses=frozenset({TAPE, "T1_DE_KIT_Tape"}),
    constraints=frozenset({"one_live_dag_per_workflow", "live_claims_disjoint", "anything_else"}),
)
PLANNED = (
    Planned(1, FIRST_EVENT, FIRST_EVENT + 199, FIRST_LUMI, PER_LUMI),
    Planned(1, FIRST_EVENT + 200, FIRST_EVENT + 399, FIRST_LUMI + 4, PER_LUMI),
)


def events_of(job: Planned) -> list[EventId]:
    """The events of one job, worked out here by hand and not by the code under test."""
    found = []
    for offset in range(job.last_event - job.first_event + 1):
        found.append((job.run, job.first_lumi + offset // job.events_per_lumi, job.first_event + offset))
    return found


def write_root(path: Path, events: Iterable[EventId], empty_lumis: Iterable[LumiId] = ()) -> Path:
    """A ROOT file as the simulated cmsRun writes it, with these events and their lumis."""
    rows = list(events)
    path.parent.mkdir(parents=True, exist_ok=True)
    lumis = sorted({(run, lumi) for run, lumi, _ in rows} | set(empty_lumis))
    with uproot.recreate(path) as file:
        tree = file.mktree("Events", {"run": "u4", "luminosityBlock": "u4", "event": "u8"})
        if rows:
            columns = [np.array(column) for column in zip(*rows, strict=True)]
            tree.extend(
                {"run": columns[0].astype("u4"), "luminosityBlock": columns[1].astype("u4"), "event": columns[2].astype("u8")}
            )
        tree = file.mktree("LuminosityBlocks", {"run": "u4", "luminosityBlock": "u4"})
        if lumis:
            tree.extend({"run": np.array([r for r, _ in lumis], "u4"), "luminosityBlock": np.array([n for _, n in lumis], "u4")})
    return path


def catalogued(file: RootFile, block: str) -> tuple[DbsFile, RucioFile]:
    """The file as both catalogues would list it truly."""
    lumis: dict[LumiId, int | None] = dict.fromkeys(file.lumis, 0)
    lumis |= Counter((run, lumi) for run, lumi, _ in file.events)
    dbs = DbsFile(file.lfn, block, file.size_bytes, file.adler32, len(file.events), True, lumis)
    return dbs, RucioFile(file.lfn, block, file.size_bytes, file.adler32, {file.rse: f"file://localhost:0{file.path}"})


def dataset(directory: Path, name: str, jobs: Iterable[Planned] = PLANNED) -> DatasetFacts:
    """A dataset with one merged file per job, each at another site, everything in order."""
    block = f"{name}#block-1"
    tier = name.rpartition("/")[2]
    files = []
    for number, (job, rse) in enumerate(zip(jobs, RSES, strict=True)):
        lfn = f"/store/mc/Era/Primary/{tier}/Proc-v1/00000/{number}.root"
        path = write_root(directory / rse / lfn.lstrip("/"), events_of(job))
        files.append(storage.open_file(lfn, rse, path))
    return register(name, block, files)


def register(name: str, block: str, files: list[RootFile]) -> DatasetFacts:
    """The dataset that has exactly these files in its one block."""
    pairs = [catalogued(file, block) for file in files]
    size = sum(file.size_bytes for file in files)
    return DatasetFacts(
        name=name,
        in_dbs=True,
        dbs_blocks=(DbsBlock(block, False, files[0].rse, len(files), size),),
        dbs_files=tuple(dbs for dbs, _ in pairs),
        rucio_blocks=(RucioBlock(block, False),),
        rucio_files=tuple(rucio for _, rucio in pairs),
        rules=(
            *(Rule(f"rule-{file.lfn}", file.lfn, file.rse, "OK", 1) for file in files),
            Rule("tape", block, TAPE, "REPLICATING", 1),
        ),
        on_disk=tuple(files),
        unregistered=(),
    )


def with_file(facts: DatasetFacts, number: int, file: RootFile) -> DatasetFacts:
    """The dataset with one file's bytes changed on disk; the catalogues know nothing of it."""
    return replace(facts, on_disk=tuple(file if n == number else old for n, old in enumerate(facts.on_disk)))


def rewritten(facts: DatasetFacts, number: int, events: Iterable[EventId]) -> DatasetFacts:
    """The dataset with one file made of other events, and both catalogues in agreement with that."""
    old = facts.on_disk[number]
    new = storage.open_file(old.lfn, old.rse, write_root(Path(old.path), events))
    files = [new if n == number else file for n, file in enumerate(facts.on_disk)]
    return register(facts.name, facts.dbs_blocks[0].name, files)


def request(directory: Path) -> RequestFacts:
    """The whole request."""
    names = ("/Primary/Era-Proc-v1/GEN-SIM", "/Primary/Era-Proc-v1/AODSIM")
    return RequestFacts(
        name="demo_request",
        status="completed",
        asked=ASKED,
        dataset_steps=("GenSim", "Reco"),
        planned=PLANNED,
        lost_numbers=0,
        input_events=(),
        input_lumis=frozenset(),
        input_problems=(),
        datasets=tuple(dataset(directory, name) for name in names),
        dags=(DagRow("dag-1", "completed", "7", False),),
        open_effects=(),
        ledger=Ledger("events", all=EVENTS, done=EVENTS, planned=0, excluded=0, left=0),
    )
