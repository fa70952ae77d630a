"""Every ReqMgr2 field that intake knows: used, left alone with the reason, accepted with a warning, or asked of a later WMS2.

Owns the tables only. A field in none of them gets a warning, so nothing of a document is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from requests_app.intake.values import flag, is_set, whole

#: Fields that may differ per step; at the top they may be one value for all steps or a map {StepName: value}.
PER_STEP = (
    "AcquisitionEra", "ProcessingString", "ProcessingVersion", "CMSSWVersion", "ScramArch", "GlobalTag", "Memory", "Multicore",
    "EventStreams",
)  # fmt: skip

#: Work of the request: at the top of a ReReco document, in ``Step1`` of a StepChain.
WORK = (
    "InputDataset", "SplittingAlgo", "EventsPerJob", "EventsPerLumi", "FilesPerJob", "LumisPerJob", "RequestNumEvents",
    "FilterEfficiency", "Seeding", "ConfigCacheID", "KeepOutput",
)  # fmt: skip

USED_TOP = frozenset(PER_STEP) | {
    "RequestName", "RequestString", "RequestType", "StepChain", "RequestPriority", "Requestor", "RequestorDN", "Group",
    "Campaign", "PrepID", "Team", "RequestStatus", "TimePerEvent", "SizePerEvent", "FirstEvent", "FirstLumi",
    "PrimaryDataset", "SiteWhitelist", "SiteBlacklist", "MergedLFNBase", "UnmergedLFNBase", "MinMergeSize", "MaxMergeSize",
    "MaxMergeEvents", "OutputDatasets", "ConfigCacheUrl", "CouchDBName", *WORK,
}  # fmt: skip

USED_STEP = frozenset(PER_STEP) | {"StepName", "InputStep", "InputFromOutputModule", "PrimaryDataset", *WORK}

_BOOKKEEPING = "ReqMgr2's own bookkeeping"
_MONITORING = "a label of the old monitoring"
_HARVESTING = "only read when DQM harvesting runs"
_WATCHDOG = "WMS2 limits a job's time by its own max_wall_seconds"
_BLOCKS = "WMS2 closes blocks by its own block_target_bytes"

#: Fields that change nothing in WMS2, each with the reason.
IRRELEVANT: Mapping[str, str] = {
    "_id": _BOOKKEEPING, "_rev": _BOOKKEEPING, "RequestTransition": _BOOKKEEPING, "PriorityTransition": _BOOKKEEPING,
    "InitialPriority": _BOOKKEEPING, "RequestDate": _BOOKKEEPING, "RequestWorkflow": _BOOKKEEPING, "CouchURL": _BOOKKEEPING,
    "CouchWorkloadDBName": _BOOKKEEPING, "ChainParentageMap": _BOOKKEEPING, "ParentageResolved": _BOOKKEEPING,
    "TotalEstimatedJobs": _BOOKKEEPING, "TotalInputEvents": _BOOKKEEPING, "TotalInputFiles": _BOOKKEEPING,
    "TotalInputLumis": _BOOKKEEPING, "OutputModulesLFNBases": "rebuilt from the names, like every LFN base",
    "SubRequestType": "a label", "Comments": "free text, kept with the document", "VoGroup": "of the old job submission",
    "VoRole": "of the old job submission",
    "DbsUrl": "WMS2 reads the DBS it is configured with",
    "Dashboard": _MONITORING, "DashboardHost": _MONITORING, "DashboardPort": _MONITORING,
    "HardTimeout": _WATCHDOG, "SoftTimeout": _WATCHDOG, "GracePeriod": _WATCHDOG,
    "MaxWaitTime": "a work unit is merged when it is done",
    "BlockCloseMaxEvents": _BLOCKS, "BlockCloseMaxFiles": _BLOCKS, "BlockCloseMaxSize": _BLOCKS, "BlockCloseMaxWaitTime": _BLOCKS,
    "RobustMerge": "a merge never leaves a file out", "EnableNewStageout": "WMS2 has one stage-out",
    "Override": "where the old agents archived job logs",
    "Scenario": "the configuration comes from ConfigCache", "GPUParams": "only read when RequiresGPU asks for one",
    "SubscriptionPriority": "the priority of the old subscriptions",
    "DQMConfigCacheID": _HARVESTING, "DQMHarvestUnit": _HARVESTING, "DQMSequences": _HARVESTING, "DQMUploadProxy": _HARVESTING,
    "DQMUploadUrl": _HARVESTING, "PeriodicHarvestInterval": _HARVESTING, "HarvestingMemory": _HARVESTING,
    "GlobalTagConnect": _HARVESTING,
}  # fmt: skip

#: The same for what may stand in a step.
IRRELEVANT_STEP: Mapping[str, str] = {
    "Campaign": "a label of the step; the request's Campaign counts",
    "PrepID": "a label of the step; the request's PrepID counts",
    "GPUParams": "only read when RequiresGPU asks for one",
}  # fmt: skip

#: Accepted with a warning when they ask for something.
WARNED: Mapping[str, str] = {
    "EnableHarvesting": "DQM harvesting is not done by WMS2 yet; the outputs are produced without it",
    "CustodialSites": "not used: WMS2 chooses the tape RSE by its own rule, once per dataset",
    "NonCustodialSites": "not used: WMS2 protects outputs where they were produced and makes no further disk copies",
    "DeleteFromSource": "not used: source copies go when the tape rule is done",
    "AllowOpportunistic": "not used: jobs run at the sites of SiteWhitelist only",
    "DatasetLifetime": "not used: WMS2 makes rules without a lifetime",
    "SandboxUrl": "not a ReqMgr2 field, not used",
    "PayloadConfig": "not a ReqMgr2 field, not used",
}


@dataclass(frozen=True, slots=True)
class Feature:
    """Something a document may ask for that WMS2 cannot do yet."""

    what: str
    asks: Callable[[object], bool]  # may raise Unreadable


def _any(value: object) -> bool:
    return is_set(value)


def _positive(value: object) -> bool:
    return is_set(value) and whole(0, 2**53)(value) > 0


def _true(value: object) -> bool:
    return is_set(value) and flag(value)


def _not(*harmless: str) -> Callable[[object], bool]:
    def asks(value: object) -> bool:
        return is_set(value) and value not in harmless

    return asks


#: Not yet supported wherever they stand (top, step or task).
FEATURES: Mapping[str, Feature] = {
    "MCPileup": Feature("pileup input (MCPileup)", _any),
    "DataPileup": Feature("pileup input (DataPileup)", _any),
    "DeterministicPileup": Feature("deterministic pileup", _true),
    "SecondaryInputDataset": Feature("secondary input (ReqMgr2 calls it MCPileup or DataPileup)", _any),
    "RequiresGPU": Feature("GPUs (RequiresGPU other than forbidden)", _not("forbidden")),
    "JobExtraMatchRequirements": Feature("extra matchmaking requirements", _any),
    "LumiList": Feature("lumi masks (LumiList)", _any),
    "RunWhitelist": Feature("run lists (RunWhitelist)", _any),
    "RunBlacklist": Feature("run lists (RunBlacklist)", _any),
    "BlockWhitelist": Feature("block lists (BlockWhitelist)", _any),
    "BlockBlacklist": Feature("block lists (BlockBlacklist)", _any),
    "IncludeParents": Feature("reading parent files (IncludeParents)", _true),
    "TransientOutputModules": Feature("dropping single output modules (TransientOutputModules)", _any),
    "IgnoredOutputModules": Feature("dropping single output modules (IgnoredOutputModules)", _any),
    "LheInputFiles": Feature("LHE input files", _true),
    "OverrideCatalog": Feature("a catalogue of the request's own (OverrideCatalog)", _any),
    "OpenRunningTimeout": Feature("input datasets that grow (OpenRunningTimeout above 0)", _positive),
    "RunNumber": Feature("a run number in LFNs (RunNumber)", _positive),
    "ValidStatus": Feature("registering datasets in another state than PRODUCTION", _not("PRODUCTION")),
}

#: What of these changes the planning of jobs in a way that nothing in a list of files allows: it names no blocks.
BLOCK_FEATURES: Mapping[str, Feature] = {key: FEATURES[key] for key in ("BlockWhitelist", "BlockBlacklist")}

#: Not yet supported inside a step or task.
STEP_FEATURES: Mapping[str, Feature] = {
    "SiteWhitelist": Feature("site lists per step", _any),
    "SiteBlacklist": Feature("site lists per step", _any),
}

#: Fields of a generation; a request that reads a dataset does not use them.
GENERATION_ONLY = ("RequestNumEvents", "FilterEfficiency", "Seeding", "FirstEvent", "FirstLumi")

#: Refused only where they would change something (:func:`features.check_trusted_sites`).
TRUST = ("TrustSitelists", "TrustPUSitelists")

#: Splitting arguments under WMCore's names; only ``plan_request`` reads them (``splitting.md``).
PLAN_ONLY = "SplittingParams"

#: Request types that ReqMgr2 has and WMS2 not yet.
LATER_TYPES = ("TaskChain", "DQMHarvest", "StoreResults", "Resubmission")

#: ReqMgr2 states in which a request needs no work any more.
ENDED_STATES = (
    "completed", "closed-out", "announced", "normal-archived", "aborted", "aborted-completed", "aborted-archived", "rejected",
    "rejected-archived", "force-complete", "failed",
)  # fmt: skip
