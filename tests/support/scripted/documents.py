"""Request documents for the scripted world: small, with names of their own."""

from __future__ import annotations

import itertools
from typing import Any

from wms2.adapters.types import ConfigDocument, OutputModule

EVENTS_PER_JOB = 100
EVENTS_PER_LUMI = 10
_GEN, _RECO, _RERECO = "1" * 32, "2" * 32, "3" * 32
_numbers = itertools.count(1)

CONFIGS = {
    _GEN: ConfigDocument("process = 1\n", "a" * 32, (OutputModule("RAWSIMoutput", "GEN-SIM", ""),)),
    _RECO: ConfigDocument("process = 2\n", "b" * 32, (OutputModule("AODSIMoutput", "AODSIM", ""),)),
    _RERECO: ConfigDocument("process = 3\n", "c" * 32, (OutputModule("AODoutput", "AOD", ""),)),
}
SITES = {"T1_US_FNAL": "T1_US_FNAL_Disk", "T2_CH_CERN": "T2_CH_CERN", "T2_US_Purdue": "T2_US_Purdue"}


def _common(tag: str) -> dict[str, Any]:
    return {
        "RequestName": f"tester_scripted_{tag}",
        "Requestor": "tester",
        "RequestPriority": 100_000,
        "Campaign": "Scripted",
        "PrepID": f"SCR-{tag}",
        "ProcessingVersion": 1,
        "CMSSWVersion": "CMSSW_14_0_0",
        "ScramArch": ["el8_amd64_gcc12"],
        "GlobalTag": "140X_v1",
        "ConfigCacheUrl": "https://cmsweb.cern.ch/couchdb",
        "CouchDBName": "reqmgr_config_cache",
        "Memory": 2000,
        "Multicore": 1,
        "TimePerEvent": 0.1,
        "SizePerEvent": 8,
        "SiteWhitelist": list(SITES),
        "MergedLFNBase": "/store/mc",
        "UnmergedLFNBase": "/store/unmerged",
    }


def generation(events: int = 400) -> dict[str, Any]:
    """Two steps from scratch, both kept; one job makes ``EVENTS_PER_JOB`` events."""
    tag = f"g{next(_numbers)}"
    return _common(tag) | {
        "RequestType": "StepChain",
        "StepChain": 2,
        "AcquisitionEra": {"Gen": "Era", "Reco": "Era"},
        "ProcessingString": {"Gen": tag, "Reco": tag},
        "Step1": {
            "StepName": "Gen",
            "ConfigCacheID": _GEN,
            "PrimaryDataset": f"Primary{tag}",
            "RequestNumEvents": events,
            "EventsPerJob": EVENTS_PER_JOB,
            "EventsPerLumi": EVENTS_PER_LUMI,
            "SplittingAlgo": "EventBased",
        },
        "Step2": {
            "StepName": "Reco",
            "ConfigCacheID": _RECO,
            "InputStep": "Gen",
            "InputFromOutputModule": "RAWSIMoutput",
            "SplittingAlgo": "EventAwareLumiBased",
        },
    }


def reprocessing(
    dataset: str, *, files_per_job: int = 0, events_per_job: int = 0, lumis_per_job: int = 0, **more: Any
) -> dict[str, Any]:
    """Over an input dataset, FileBased, EventBased or LumiBased, whichever number is given; ``more`` keys of the document."""
    tag = f"r{next(_numbers)}"
    split: dict[str, Any] = {"SplittingAlgo": "EventBased", "EventsPerJob": events_per_job}
    if files_per_job:
        split = {"SplittingAlgo": "FileBased", "FilesPerJob": files_per_job}
    if lumis_per_job:
        split = {"SplittingAlgo": "LumiBased", "LumisPerJob": lumis_per_job}
    return _common(tag) | split | more | {
        "RequestType": "ReReco",
        "AcquisitionEra": "Era",
        "ProcessingString": tag,
        "ConfigCacheID": _RERECO,
        "InputDataset": dataset,
    }  # fmt: skip
