"""Builds request documents and ConfigCache answers in CMS's form, and reads them the way the services do."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from dags_app.planning.specs import WorkflowSpec
from requests_app.intake import Draft, complete, parse
from tests.support.places import REAL_INPUTS
from wms2.conf import Limits
from wms2.errors import DocumentRefused

Document = dict[str, Any]

LIMITS = Limits(default_memory_per_core_mb=2000, max_memory_per_core_mb=3000)
SITES = ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue")


@dataclass(frozen=True)
class Module:
    """An output module as the ConfigCache adapter answers it."""

    label: str
    data_tier: str
    filter_name: str = ""


@dataclass(frozen=True)
class Config:
    """A ConfigCache document as the adapter answers it."""

    output_modules: tuple[Module, ...]
    pset: str = "process = cms.Process('X')"
    pset_hash: str = "0123456789abcdef0123456789abcdef"


CHAIN_CONFIGS = {
    "a" * 32: Config((Module("RAWSIMoutput", "GEN-SIM"), Module("LHEoutput", "LHE"))),
    "b" * 32: Config((Module("PREMIXRAWoutput", "GEN-SIM-RAW"),)),
    "c" * 32: Config((Module("AODSIMoutput", "AODSIM"), Module("ALCARECOoutput", "ALCARECO", "TkAlMinBias"))),
}
REPROCESSING_CONFIGS = {"d" * 32: Config((Module("AODoutput", "AOD"), Module("MINIAODoutput", "MINIAOD")))}


def chain(**top: Any) -> Document:
    """A whole StepChain document from scratch with three steps, the second transient; ``changed`` at the top."""
    document: Document = {
        "RequestName": "tester_Run3Test_260101_120000_1234",
        "RequestType": "StepChain",
        "StepChain": 3,
        "RequestPriority": 400_000,
        "Requestor": "tester",
        "Group": "DATAOPS",
        "Campaign": "Run3Test",
        "PrepID": "TST-Run3Test-00001",
        "AcquisitionEra": {"Gen": "Run3TestGS", "Digi": "Run3TestDR", "Reco": "Run3TestDR"},
        "ProcessingString": {"Gen": "140X_test", "Digi": "140X_test", "Reco": "140X_test"},
        "ProcessingVersion": 2,
        "CMSSWVersion": "CMSSW_14_0_0",
        "ScramArch": ["el8_amd64_gcc12"],
        "GlobalTag": "140X_mcRun3_v1",
        "ConfigCacheUrl": "https://cmsweb.cern.ch/couchdb",
        "CouchDBName": "reqmgr_config_cache",
        "Memory": 8000,
        "Multicore": 4,
        "TimePerEvent": 10,
        "SizePerEvent": 1500,
        "SiteWhitelist": ["T1_US_FNAL", "T2_CH_CERN"],
        "MergedLFNBase": "/store/mc",
        "UnmergedLFNBase": "/store/unmerged",
        "Step1": {
            "StepName": "Gen", "ConfigCacheID": "a" * 32, "PrimaryDataset": "MinBias_TuneCP5", "RequestNumEvents": 10_000,
            "EventsPerJob": 1_000, "EventsPerLumi": 100, "SplittingAlgo": "EventBased",
        },
        "Step2": {
            "StepName": "Digi", "ConfigCacheID": "b" * 32, "InputStep": "Gen", "InputFromOutputModule": "RAWSIMoutput",
            "SplittingAlgo": "EventAwareLumiBased", "KeepOutput": False,
        },
        "Step3": {
            "StepName": "Reco", "ConfigCacheID": "c" * 32, "InputStep": "Digi", "InputFromOutputModule": "PREMIXRAWoutput",
            "SplittingAlgo": "EventAwareLumiBased",
        },
    }  # fmt: skip
    return changed(document, top)


def reprocessing(**top: Any) -> Document:
    """A whole ReReco document over a dataset, FileBased."""
    document: Document = {
        "RequestName": "tester_Run2024C_260101_120000_1234", "RequestType": "ReReco", "RequestPriority": 400_000,
        "Campaign": "Run2024C_test", "AcquisitionEra": "Run2024C", "ProcessingString": "Test_v1", "ProcessingVersion": 1,
        "CMSSWVersion": "CMSSW_14_0_0", "ScramArch": "el8_amd64_gcc12", "GlobalTag": "140X_dataRun3_v1",
        "ConfigCacheID": "d" * 32, "InputDataset": "/MuonEG/Run2024C-v1/RAW", "SplittingAlgo": "FileBased", "FilesPerJob": 2,
        "Memory": 4000, "Multicore": 2, "TimePerEvent": 8, "SizePerEvent": 100, "SiteWhitelist": ["T1_US_FNAL"],
        "MergedLFNBase": "/store/data",
    }  # fmt: skip
    return changed(document, top)


def tasks(**top: Any) -> Document:
    """A whole TaskChain: GenSim, read by Reco and by Nano, two branches with resources of their own."""
    document: Document = {
        "RequestName": "tester_TaskTest_260101_120000_1234",
        "RequestType": "TaskChain",
        "TaskChain": 3,
        "Campaign": "TaskTest",
        "AcquisitionEra": {"GenSim": "Run3TestGS", "Reco": "Run3TestDR", "Nano": "Run3TestNano"},
        "ProcessingString": "140X_test",
        "ProcessingVersion": 1,
        "CMSSWVersion": "CMSSW_14_0_0",
        "ScramArch": ["el8_amd64_gcc12"],
        "GlobalTag": "140X_mcRun3_v1",
        "Memory": 2500,
        "Multicore": 1,
        "TimePerEvent": 2,
        "SizePerEvent": 100,
        "SiteWhitelist": ["T1_US_FNAL", "T2_CH_CERN"],
        "MergedLFNBase": "/store/mc",
        "Task1": {
            "TaskName": "GenSim", "ConfigCacheID": "a" * 32, "PrimaryDataset": "MinBias_TuneCP5", "RequestNumEvents": 10_000,
            "EventsPerJob": 1_000, "EventsPerLumi": 100, "SplittingAlgo": "EventBased", "TimePerEvent": 40,
            "SizePerEvent": 1500, "TransientOutputModules": ["RAWSIMoutput"],
        },
        "Task2": {
            "TaskName": "Reco", "ConfigCacheID": "c" * 32, "InputTask": "GenSim", "InputFromOutputModule": "RAWSIMoutput",
            "SplittingAlgo": "EventAwareLumiBased", "EventsPerJob": 3_000, "Memory": 8000, "Multicore": 4,
        },
        "Task3": {
            "TaskName": "Nano", "ConfigCacheID": "b" * 32, "InputTask": "GenSim", "InputFromOutputModule": "RAWSIMoutput",
            "SplittingAlgo": "LumiBased", "LumisPerJob": 10,
        },
    }  # fmt: skip
    return changed(document, top)


def with_task(number: int, document: Document | None = None, **fields: Any) -> Document:
    """A TaskChain whose task ``number`` has some fields changed; the value ``...`` removes one."""
    document = tasks() if document is None else document
    changed(document[f"Task{number}"], fields)
    return document


def changed(document: Document, changes: Mapping[str, Any]) -> Document:
    """``document`` with top-level fields changed; the value ``...`` removes one."""
    for key, value in changes.items():
        if value is ...:
            document.pop(key, None)
        else:
            document[key] = value
    return document


def with_step(number: int, document: Document | None = None, **fields: Any) -> Document:
    """A chain document whose step ``number`` has some fields changed; the value ``...`` removes one."""
    document = chain() if document is None else document
    changed(document[f"Step{number}"], fields)
    return document


def read(document: object, *, name: str | None = None, limits: Limits = LIMITS) -> Draft:
    """Parse, with the three mock sites known."""
    return parse(document, request_name=name, limits=limits, known_sites=SITES)


def typed(document: Document, configs: Mapping[str, Config] | None = None) -> WorkflowSpec:
    """Parse and complete."""
    return complete(read(document), {**CHAIN_CONFIGS, **REPROCESSING_CONFIGS} if configs is None else configs)


def problems(document: object, **options: Any) -> dict[str, str]:
    """What a document is refused for, {field: problem}; fails when it is not refused."""
    with pytest.raises(DocumentRefused) as refused:
        read(document, **options)
    return _by_field(refused.value)


def not_refused(
    document: Callable[..., Document], values: Mapping[str, Sequence[Any]], prefix: str = "", *, alone: bool = False
) -> list[tuple[str, Any, list[str]]]:
    """The values that are not refused under their field, or not under it ``alone``; each with what was refused instead."""
    found = []
    for field, them in values.items():
        for value in them:
            refused: list[str] = []
            try:
                read(document(**{field: value}))
            except DocumentRefused as error:
                refused = list(_by_field(error))
            if prefix + field not in refused or (alone and len(refused) > 1):
                found.append((field, value, refused))
    return found


def incomplete(document: Document, configs: Mapping[str, Config] | None = None) -> dict[str, str]:
    """What a document is refused for once its ConfigCache documents are known."""
    draft = read(document)
    with pytest.raises(DocumentRefused) as refused:
        complete(draft, {**CHAIN_CONFIGS, **REPROCESSING_CONFIGS} if configs is None else configs)
    return _by_field(refused.value)


def _by_field(refused: DocumentRefused) -> dict[str, str]:
    found: dict[str, str] = {}
    for problem in refused.problems:
        found[problem.field] = f"{found[problem.field]}; {problem.problem}" if problem.field in found else problem.problem
    return found


def real_document(name: str) -> Document:
    """One of the real documents, or a skipped test."""
    path = REAL_INPUTS / "requests" / name
    if not path.is_file():
        pytest.skip(f"the real request documents are not here ({path}); set WMS2_REAL_INPUTS")
    found: Document = json.loads(path.read_text())
    return found


def filled(document: Document) -> Document:
    """A template with its placeholders filled in, the way ReqMgr2's test requests are injected."""
    values = {
        "AcquisitionEra-OVERRIDE-ME": "Integ_Test", "ProcessingString-OVERRIDE-ME": "Test_WMS2",
        "ProcessingVersion-OVERRIDE-ME": 3,
        "SiteWhitelist-OVERRIDE-ME": "T2_CH_CERN", "Campaign-OVERRIDE-ME": "Integ_Campaign", "RequestString-OVERRIDE-ME": "Integ",
    }  # fmt: skip

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [fill(inner) for inner in value]
        return values.get(value, value) if isinstance(value, str) else value

    return fill(copy.deepcopy(document))
