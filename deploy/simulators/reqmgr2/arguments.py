"""Which arguments ReqMgr2 2.4.5 knows, by request type and moment (creation, chain element, assignment), with types and defaults.

An argument that is not listed here is refused. ``optional`` counts at creation, ``assign_optional`` at assignment.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from deploy.simulators.reqmgr2 import lexicon
from deploy.simulators.reqmgr2.kinds import ANY_TEXT, BOOL, DICT, FLOAT, INT, LIST, LUMI_LIST, NON_EMPTY_LIST, RAW_LIST, STR, Kind

GIB = 1024**3
ALGORITHMS = ("EventBased", "LumiBased", "EventAwareLumiBased", "FileBased")
DEFAULT_DBS_URL = "https://cmsweb-prod.cern.ch/dbs/prod/global/DBSReader"
DEFAULT_COUCH_URL = "https://cmsweb.cern.ch/couchdb"


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: its type, default, rules. ``check`` returns False or raises ``LexiconError``; ``rule`` says it in words."""

    kind: Kind = STR
    default: Any = None
    optional: bool = True
    assign_optional: bool = True
    null: bool = False
    check: Callable[[Any], bool] | None = field(default=None, repr=False)
    rule: str = ""


Args = dict[str, Arg]


def _all_values(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """For chains: one number, or a map of numbers by step or task."""
    return lambda value: all(check(number) for number in (value.values() if isinstance(value, dict) else [value]))


def _each(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda values: all(check(value) for value in values)


def _positive(kind: Kind, default: Any = None, **rules: Any) -> Arg:
    return Arg(kind, default, check=lambda value: bool(value > 0), rule="value > 0", **rules)


def _at_least(kind: Kind, least: int, default: Any = None, **rules: Any) -> Arg:
    return Arg(kind, default, check=_all_values(lambda number: number >= least), rule=f"value >= {least}", **rules)


def _natural(kind: Kind, default: Any = None, **rules: Any) -> Arg:
    return Arg(kind, default, check=lambda value: bool(value >= 0), rule="value >= 0", **rules)


def _choice(*allowed: str, default: Any, **rules: Any) -> Arg:
    return Arg(STR, default, check=lambda value: value in allowed, rule=f"one of {list(allowed)}", **rules)


_FLAG = Arg(BOOL, False)
_PRIORITY = Arg(INT, 8000, check=lambda value: 0 <= value < 1e6, rule="0 <= value < 1e6")
_ERA = Arg(check=lexicon.acquisition_era)
_STRING = Arg(check=lexicon.processing_string)
_VERSION = Arg(INT, 1, check=lexicon.processing_version)
_GPU = _choice("forbidden", "optional", "required", default="forbidden")
_GPU_PARAMS = Arg(STR, json.dumps(None), check=lexicon.gpu_parameters)
_SITES = Arg(LIST, [], check=_each(lexicon.cms_site))
_RUNS = Arg(LIST, [], check=_each(lambda value: isinstance(value, int) and value > 0), rule="each a whole number > 0")
_BLOCKS = Arg(LIST, [], check=_each(lexicon.block))
_RELEASE = Arg(check=lexicon.release, rule="a known CMSSW release")
_ARCHITECTURES = Arg(NON_EMPTY_LIST, check=lexicon.architectures, rule="known architectures")
_EXTRA_REQUIREMENTS = Arg(STR, "", check=lambda value: len(value) < 10000, rule="shorter than 10000")

_NULL = Arg(null=True)
_MERGE_LIMITS: Args = {
    "MinMergeSize": _positive(INT, 2 * GIB),
    "MaxMergeSize": _positive(INT, 4 * GIB),
    "MaxWaitTime": _positive(INT, 24 * 3600),
    "MaxMergeEvents": _positive(INT, 100_000_000),
}
_READING: Args = {
    **dict.fromkeys(("RunBlacklist", "RunWhitelist"), _RUNS),
    **dict.fromkeys(("BlockBlacklist", "BlockWhitelist"), _BLOCKS),
    "SplittingAlgo": _choice(*ALGORITHMS, default="EventAwareLumiBased"),
    "EventsPerJob": _positive(INT, null=True),
    "LumisPerJob": _positive(INT, 8),
    "FilesPerJob": _positive(INT, 1),
}

_BASE_CREATE: Args = {
    "RequestType": Arg(default="StdBase", optional=False),
    **dict.fromkeys(("RequestString", "GlobalTag", "ConfigCacheID"), Arg(optional=False)),
    "Campaign": Arg(default="", check=lexicon.campaign),
    "CMSSWVersion": replace(_RELEASE, optional=False),
    "ScramArch": replace(_ARCHITECTURES, optional=False),
    "RequestPriority": _PRIORITY,
    "Group": Arg(default="DATAOPS"),
    **dict.fromkeys(("PrepID", "GlobalTagConnect", "DQMUploadProxy", "DQMConfigCacheID", "OverrideCatalog"), _NULL),
    "LumiList": Arg(LUMI_LIST, {}),
    "DbsUrl": Arg(default=DEFAULT_DBS_URL, null=True, check=lexicon.service_url),
    "DashboardHost": Arg(default="cms-jobmon.cern.ch"),
    "DashboardPort": _positive(INT, 8884),
    "TimePerEvent": _positive(FLOAT, 12.0),
    "SizePerEvent": _positive(FLOAT, 512.0),
    **dict.fromkeys(("PeriodicHarvestInterval", "OpenRunningTimeout"), _natural(INT, 0)),
    "DQMHarvestUnit": Arg(default="byRun"),
    "DQMUploadUrl": Arg(default="https://cmsweb.cern.ch/dqm/dev"),
    "DQMSequences": Arg(LIST, []),
    **dict.fromkeys(("EnableHarvesting", "EnableNewStageout", "IncludeParents", "DeleteFromSource"), _FLAG),
    "ConfigCacheUrl": Arg(default=DEFAULT_COUCH_URL, check=lexicon.couch_url),
    **dict.fromkeys(("VoGroup", "VoRole"), Arg(default="unknown")),
    "ValidStatus": _choice("PRODUCTION", "VALID", default="PRODUCTION"),
    "RunNumber": Arg(INT, 0),
    "RobustMerge": Arg(BOOL, True),
    "Comments": Arg(default=""),
    "SubRequestType": Arg(default="", check=lexicon.sub_request_type),
    "RequiresGPU": _GPU,
    "GPUParams": _GPU_PARAMS,
    "JobExtraMatchRequirements": _EXTRA_REQUIREMENTS,
    **_MERGE_LIMITS,
    "AcquisitionEra": replace(_ERA, optional=False),
    "ProcessingString": replace(_STRING, optional=False),
    "ProcessingVersion": _VERSION,
    "Memory": _positive(FLOAT, 2300.0),
    "HarvestingMemory": _positive(FLOAT, 3000.0),
    "Multicore": _positive(INT, 1),
    "EventStreams": _natural(INT, 0, null=True),
    "MergedLFNBase": Arg(default="/store/data"),
    "UnmergedLFNBase": Arg(default="/store/unmerged"),
    # set by ReqMgr2 itself
    **dict.fromkeys(("Requestor", "RequestorDN"), Arg(optional=False)),
    "RequestName": Arg(optional=False, check=lexicon.identifier),
    "RequestStatus": Arg(optional=False, check=lambda value: value == "new", rule="'new'"),
    **dict.fromkeys(("RequestTransition", "PriorityTransition", "RequestDate"), Arg(RAW_LIST, optional=False)),
    "CouchURL": Arg(default=DEFAULT_COUCH_URL, check=lexicon.couch_url),
    "CouchDBName": Arg(default="reqmgr_config_cache", check=lexicon.identifier),
    "CouchWorkloadDBName": Arg(default="reqmgr_workload_cache", check=lexicon.identifier),
}

_PROCESSING_CREATE: Args = {
    **_BASE_CREATE,
    "InputDataset": Arg(optional=False, check=lexicon.dataset),
    "Scenario": Arg(null=True),
    "PrimaryDataset": Arg(null=True, check=lexicon.primary_dataset),
    **_READING,
}

_CHAIN_CREATE: Args = {
    **_BASE_CREATE,
    "ConfigCacheID": Arg(null=True),
    "ChainParentageMap": Arg(DICT, {}),
    "FirstEvent": _positive(INT, 1),
    "FirstLumi": _positive(INT, 1),
    "RequiresGPU": replace(_GPU, default=None, null=True),
    "Multicore": _at_least(INT, 1, 1),
    "EventStreams": _at_least(INT, 0, 0, null=True),
}

_CREATE: dict[str, Args] = {
    "ReReco": {
        **_PROCESSING_CREATE,
        "RequestType": Arg(default="ReReco", optional=False),
        "TransientOutputModules": Arg(LIST, []),
    },
    "DQMHarvest": {
        **_PROCESSING_CREATE,
        "RequestType": Arg(default="DQMHarvest"),
        "ConfigCacheID": Arg(null=True),
        "DQMConfigCacheID": Arg(optional=False),
        "DQMUploadUrl": Arg(optional=False),
    },
    "StepChain": {
        **_CHAIN_CREATE,
        "RequestType": Arg(default="StepChain", optional=False),
        "Step1": Arg(DICT, {}, optional=False),
        "StepChain": _positive(INT, 1, optional=False),
        "DeterministicPileup": _FLAG,
        "PrimaryDataset": Arg(null=True, check=lexicon.primary_dataset),
        "ParentageResolved": _FLAG,
    },
    "TaskChain": {
        **_CHAIN_CREATE,
        "RequestType": Arg(default="TaskChain", optional=False),
        "Task1": Arg(DICT, {}, optional=False),
        "TaskChain": _positive(INT, 1, optional=False),
        "IgnoredOutputModules": Arg(LIST, []),
        "TimePerEvent": _at_least(FLOAT, 0, 12.0),
        "Memory": _at_least(FLOAT, 1, 2300.0),
    },
}

_ASSIGN: Args = {
    "RequestPriority": replace(_PRIORITY, default=None),
    "RequestStatus": Arg(assign_optional=False, check=lambda value: value == "assigned", rule="'assigned'"),
    "Team": Arg(ANY_TEXT, "", assign_optional=False, check=lambda value: len(value) > 0, rule="not empty"),
    "AcquisitionEra": _ERA,
    "ProcessingString": _STRING,
    "ProcessingVersion": replace(_VERSION, default=None),
    "Memory": _positive(FLOAT),
    "Multicore": _positive(INT),
    "EventStreams": _natural(INT, null=True),
    **dict.fromkeys(("SiteBlacklist", "CustodialSites", "NonCustodialSites"), _SITES),
    "SiteWhitelist": Arg(NON_EMPTY_LIST, [], assign_optional=False, check=_each(lexicon.cms_site)),
    "SubscriptionPriority": Arg(
        default="Low",
        check=lambda value: value.lower() in ("low", "normal", "high", "reserved"),
        rule="low, normal, high, reserved",
    ),
    **dict.fromkeys(("UnmergedLFNBase", "MergedLFNBase"), Arg()),
    **_MERGE_LIMITS,
    **dict.fromkeys(("TrustSitelists", "TrustPUSitelists", "AllowOpportunistic", "DeleteFromSource"), _FLAG),
    "SoftTimeout": _positive(INT, 129_600),
    "GracePeriod": _positive(INT, 300),
    "HardTimeout": _positive(INT, 129_900),
    "BlockCloseMaxWaitTime": _positive(INT, 66_400),
    "BlockCloseMaxFiles": _positive(INT, 500),
    "BlockCloseMaxEvents": _positive(INT, 25_000_000),
    "BlockCloseMaxSize": _positive(INT, 5_000_000_000_000),
    "Dashboard": Arg(default="production", check=lexicon.dashboard_activity),
    "Override": Arg(DICT, {"eos-lfn-prefix": "root://eoscms.cern.ch//eos/cms/store/logs/prod/recent/PRODUCTION"}),
    "DatasetLifetime": _natural(INT, 0),
}


def create_arguments(request_type: str) -> Args | None:
    """The arguments of a creation, or None for a type the simulator does not speak."""
    return _CREATE.get(request_type)


def assign_arguments(request_type: str) -> Args:
    """The arguments of an assignment."""
    if request_type in ("StepChain", "TaskChain"):
        by_element = {"Memory": _at_least(FLOAT, 1), "Multicore": _at_least(INT, 1), "EventStreams": _at_least(INT, 0)}
        return {**_ASSIGN, **by_element, "ChainParentageMap": Arg(DICT, {})}
    return _ASSIGN


def element_arguments(request_type: str, *, first: bool, generator: bool) -> Args:
    """The arguments of ``StepN`` or ``TaskN``. The first needs an input dataset or, as a generator, a number of events."""
    found: Args = {
        "AcquisitionEra": _ERA,
        "Campaign": Arg(check=lexicon.campaign),
        "CMSSWVersion": replace(_RELEASE, null=True),
        "ConfigCacheID": Arg(optional=False),
        "DataPileup": Arg(check=lexicon.dataset),
        "EventStreams": _natural(INT, null=True),
        "EventsPerLumi": _positive(INT, null=True),
        "FilterEfficiency": _positive(FLOAT, 1.0),
        "GlobalTag": Arg(optional=False),
        "IncludeParents": _FLAG,
        "InputDataset": Arg(optional=generator or not first, check=lexicon.dataset),
        "InputFromOutputModule": Arg(optional=first),
        "KeepOutput": Arg(BOOL, True),
        "LheInputFiles": _FLAG,
        "LumiList": Arg(LUMI_LIST, {}),
        "MCPileup": Arg(check=lexicon.dataset),
        "Memory": _positive(FLOAT, null=True),
        "Multicore": _positive(INT, 0),
        "PrepID": Arg(null=True),
        "RequiresGPU": _GPU,
        "GPUParams": _GPU_PARAMS,
        "PrimaryDataset": Arg(check=lexicon.primary_dataset),
        "ProcessingString": _STRING,
        "ProcessingVersion": replace(_VERSION, default=None),
        "RequestNumEvents": _positive(INT, optional=not generator),
        "ScramArch": replace(_ARCHITECTURES, null=True),
        "Seeding": _choice("ReproducibleSeeding", "AutomaticSeeding", default="AutomaticSeeding"),
        **_READING,
    }
    name = Arg(optional=False, check=lexicon.task_or_step_name)
    if request_type == "StepChain":
        return {**found, "StepName": name, "InputStep": Arg(optional=first)}
    return {
        **found,
        "TaskName": name,
        "InputTask": Arg(optional=first),
        "GlobalTag": Arg(),
        "PrimaryDataset": Arg(optional=not generator, check=lexicon.primary_dataset),
        "TransientOutputModules": Arg(LIST, []),
        "DeterministicPileup": _FLAG,
        **dict.fromkeys(("TimePerEvent", "SizePerEvent"), _positive(FLOAT)),
        "JobExtraMatchRequirements": _EXTRA_REQUIREMENTS,
    }
