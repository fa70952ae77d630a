"""Every ReqMgr2 field that intake knows: used, left alone with the reason, accepted with a warning, or asked of a later WMS2.

Owns the tables only. A field in none of them gets a warning, so nothing of a document is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from requests_app.intake.values import is_set, whole

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

#: What of the input is wanted: at the top, or in the first part of a chain.
LISTS = ("LumiList", "RunWhitelist", "RunBlacklist", "BlockWhitelist", "BlockBlacklist", "IncludeParents")

#: Pileup: at the top of a ReReco document, in any part of a chain.
PILEUP = ("MCPileup", "DataPileup")

#: Output modules that are not merged: at the top, or in any part of a chain.
DROPPED = ("TransientOutputModules", "IgnoredOutputModules")

#: May stand at the top and in any part of a chain.
ANYWHERE = (*LISTS, *PILEUP, *DROPPED, "DeterministicPileup", "RequiresGPU", "GPUParams", "LheInputFiles")

#: Reading files at sites that do not hold them.
TRUST = ("TrustSitelists", "TrustPUSitelists")

USED_TOP = frozenset(PER_STEP) | {
    "RequestName", "RequestString", "RequestType", "StepChain", "TaskChain", "RequestPriority", "Requestor", "RequestorDN",
    "Group", "Campaign", "PrepID", "Team", "RequestStatus", "TimePerEvent", "SizePerEvent", "FirstEvent", "FirstLumi",
    "PrimaryDataset", "SiteWhitelist", "SiteBlacklist", "MergedLFNBase", "UnmergedLFNBase", "MinMergeSize", "MaxMergeSize",
    "MaxMergeEvents", "OutputDatasets", "ConfigCacheUrl", "CouchDBName", "OpenRunningTimeout", "JobExtraMatchRequirements",
    "BlockCloseMaxEvents", "BlockCloseMaxFiles", "BlockCloseMaxSize", "BlockCloseMaxWaitTime",
    "EnableHarvesting", "DQMConfigCacheID", "DQMHarvestUnit", "DQMUploadUrl", "DQMUploadProxy", "PeriodicHarvestInterval",
    "HarvestingMemory",
    *WORK, *ANYWHERE, *TRUST,
}  # fmt: skip

_USED_PART = frozenset(PER_STEP) | {"InputFromOutputModule", "PrimaryDataset", *WORK, *ANYWHERE}
USED_STEP = _USED_PART | {"StepName", "InputStep"}
USED_TASK = _USED_PART | {"TaskName", "InputTask", "TimePerEvent", "SizePerEvent", "JobExtraMatchRequirements"}

_BOOKKEEPING = "ReqMgr2's own bookkeeping"
_MONITORING = "a label of the old monitoring"
_HARVESTING = "only read when DQM is harvested without a configuration of its own"
_WATCHDOG = "WMS2 limits a job's time itself, to 48 h"

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
    "RobustMerge": "a merge never leaves a file out", "EnableNewStageout": "WMS2 has one stage-out",
    "Override": "where the old agents archived job logs",
    "Scenario": "the configuration comes from ConfigCache",
    "SubscriptionPriority": "the priority of the old subscriptions",
    "DQMSequences": _HARVESTING, "GlobalTagConnect": _HARVESTING,
}  # fmt: skip

#: The same for what may stand in a step.
IRRELEVANT_STEP: Mapping[str, str] = {
    "Campaign": "a label of the step; the request's Campaign counts",
    "PrepID": "a label of the step; the request's PrepID counts",
}  # fmt: skip

#: Accepted with a warning when they ask for something.
WARNED: Mapping[str, str] = {
    "CustodialSites": "not used: WMS2 chooses the tape RSE by its own rule, once per dataset",
    "NonCustodialSites": "not used: WMS2 protects outputs where they were produced and makes no further disk copies",
    "DeleteFromSource": "not used: WMS2 keeps the rules on the copies where the files were made",
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


def _positive(value: object) -> bool:
    return is_set(value) and whole(0, 2**53)(value) > 0


def _not(*harmless: str) -> Callable[[object], bool]:
    def asks(value: object) -> bool:
        return is_set(value) and value not in harmless

    return asks


#: Not yet supported wherever they stand (top, step or task).
FEATURES: Mapping[str, Feature] = {
    "SecondaryInputDataset": Feature("secondary input (ReqMgr2 calls it MCPileup or DataPileup)", is_set),
    "OverrideCatalog": Feature("a catalogue of the request's own (OverrideCatalog)", is_set),
    "RunNumber": Feature("a run number in LFNs (RunNumber)", _positive),
    "ValidStatus": Feature("registering datasets in another state than PRODUCTION or VALID", _not("PRODUCTION", "VALID")),
}

#: Not yet supported inside a step or task.
STEP_FEATURES: Mapping[str, Feature] = {
    "SiteWhitelist": Feature("site lists per step", is_set),
    "SiteBlacklist": Feature("site lists per step", is_set),
    "OpenRunningTimeout": Feature("input that grows (OpenRunningTimeout) of one step", _positive),
}
#: The same of a step of one job; a task may ask for its own.
ONE_JOB_FEATURES: Mapping[str, Feature] = {
    "JobExtraMatchRequirements": Feature("extra matchmaking requirements of one step", is_set),
}

#: Fields of a generation; a request that reads a dataset does not use them.
GENERATION_ONLY = ("RequestNumEvents", "FilterEfficiency", "Seeding", "FirstEvent", "FirstLumi")

#: Splitting arguments under WMCore's names; only ``plan_request`` reads them (docs/splitting.md, The planner's formats).
PLAN_ONLY = "SplittingParams"

#: Request types of ReqMgr2 that WMS2 does not run, each with what to do instead.
OTHER_TYPES: Mapping[str, str] = {
    "DQMHarvest": "it harvests a dataset that is there already; run it in WMAgent. WMS2 harvests what it makes itself, when the "
    "request that makes it asks for it (EnableHarvesting)",
    "StoreResults": "it copies a user's dataset into the central catalogues without processing it; move the files with Rucio and "
    "register them in DBS, or run it in WMAgent",
    "Resubmission": "an ACDC document says nothing without its original: it is judged by its import, which derives a request "
    "from OriginalRequestName",
}  # fmt: skip

#: ReqMgr2 states in which a request needs no work any more.
ENDED_STATES = (
    "completed", "closed-out", "announced", "normal-archived", "aborted", "aborted-completed", "aborted-archived", "rejected",
    "rejected-archived", "force-complete", "failed",
)  # fmt: skip
