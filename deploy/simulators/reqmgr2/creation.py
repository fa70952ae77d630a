"""POST /request and /request/clone: from what was sent to a new request document."""

import copy
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.simulators.reqmgr2.arguments import Args, create_arguments, element_arguments
from deploy.simulators.reqmgr2.checking import InvalidSpec, check_arguments, refuse_unknown, set_defaults
from deploy.simulators.reqmgr2.kinds import to_bool
from deploy.simulators.reqmgr2.outputs import FindConfig, compute, load_modules
from deploy.simulators.reqmgr2.states import REQUEST_TYPES, START, elements_of

MAX_CHAIN_LENGTH = 10
TARGET_JOB_SECONDS = 12 * 3600
_ELEMENT = re.compile(r"^(Task|Step)\d{1,2}$")


@dataclass(frozen=True, slots=True)
class Requestor:
    """Who calls: login and certificate subject, from the front end's headers."""

    login: str
    dn: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What ReqMgr2 asks of its neighbours: ConfigCache, DBS, and its own CouchDB's address (as the caller sees it)."""

    find_config: FindConfig
    dataset_exists: Callable[[str], bool]
    has_parents: Callable[[str], bool]
    data_tiers: Callable[[], set[str]]
    couch_url: str = ""


def create(sent: dict[str, Any], requestor: Requestor, around: Surroundings) -> dict[str, Any]:
    """The document of a new request (status new).

    Raises:
        InvalidSpec: what was sent is not a request ReqMgr2 would take.
    """
    request_type = _needed(sent, "RequestType")
    document = dict(sent)
    _initialize(document, requestor, around)
    definition = _definition(request_type)
    set_defaults(document, definition, skip_none=False)
    if not document.get("Campaign") and isinstance(document.get("AcquisitionEra"), str):
        document["Campaign"] = document["AcquisitionEra"]
    return _construct(document, definition, around)


def clone(original: Mapping[str, Any], overrides: dict[str, Any], requestor: Requestor, around: Surroundings) -> dict[str, Any]:
    """A new request with the creation arguments of ``original``, one processing version further, and ``overrides`` on top.

    Raises:
        InvalidSpec: the result is not a request ReqMgr2 would take.
    """
    request_type = original["RequestType"]
    definition = _definition(request_type)
    inner = element_arguments(request_type, first=False, generator=False) if request_type in ("StepChain", "TaskChain") else {}
    document: dict[str, Any] = {}
    for key, value in copy.deepcopy(dict(original)).items():
        if _ELEMENT.match(key) and isinstance(value, dict):
            document[key] = {name: item for name, item in value.items() if name in inner}
        elif key in definition or key.startswith("Skim"):
            document[key] = value
    _increment_versions(document)
    _override(document, overrides)
    _initialize(document, requestor, around)
    return _construct(document, definition, around)


def _needed(sent: Mapping[str, Any], key: str) -> Any:
    if key not in sent:
        raise InvalidSpec(f"'{key}'")
    return sent[key]


def _definition(request_type: Any) -> Args:
    definition = create_arguments(request_type) if isinstance(request_type, str) else None
    if definition is not None:
        return definition
    if request_type in REQUEST_TYPES:
        raise InvalidSpec(f"RequestType {request_type} is not simulated; StepChain, TaskChain, ReReco and DQMHarvest are")
    raise InvalidSpec(f"No module named 'WMCore.WMSpec.StdSpecs.{request_type}'")


def _initialize(document: dict[str, Any], requestor: Requestor, around: Surroundings) -> None:
    """What ReqMgr2 sets itself: requestor, status, dates, its databases, the name."""
    now = time.time()
    priority = _needed(document, "RequestPriority")
    document["Requestor"] = requestor.login.partition("@")[0]
    document["RequestorDN"] = requestor.dn
    document["RequestStatus"] = START
    document["RequestTransition"] = [{"Status": START, "UpdateTime": int(now), "DN": requestor.dn}]
    document["RequestDate"] = list(time.gmtime(now)[:6])
    document["PriorityTransition"] = [{"Priority": priority, "UpdateTime": int(now), "DN": requestor.dn}]
    document["CouchURL"] = around.couch_url
    document["CouchWorkloadDBName"] = "reqmgr_workload_cache"
    document["CouchDBName"] = "reqmgr_config_cache"
    document["RequestName"] = request_name(document["Requestor"], document.get("RequestString"), now)
    if "DbsUrl" in document and document["DbsUrl"] is None:
        raise InvalidSpec("'NoneType' object has no attribute 'replace'")
    if isinstance(document.get("DbsUrl"), str):
        document["DbsUrl"] = document["DbsUrl"].replace("cmsweb.cern.ch", "cmsweb-prod.cern.ch").rstrip("/")


def request_name(login: str, request_string: Any, at: float) -> str:
    """``<login>_<RequestString>_<yymmdd>_<HHMMSS>_<ten-thousandths of the second>``."""
    stamp = time.strftime("%y%m%d_%H%M%S", time.localtime(at))
    return f"{login}_{request_string}_{stamp}_{int(10000 * (at % 1.0))}"


def _construct(document: dict[str, Any], definition: Args, around: Surroundings) -> dict[str, Any]:
    request_type = document["RequestType"]
    try:
        refuse_unknown(document, definition, request_type=request_type)
        check_arguments(document, definition, "create")
        _check_input(document, request_type, around)
    except InvalidSpec as refusal:
        raise refusal.as_printed_exception() from refusal
    if request_type in ("StepChain", "TaskChain"):
        _check_chain(document, request_type, around)
    elif request_type == "ReReco":
        _check_rereco(document, around)
    elif document["DQMConfigCacheID"] is not None:
        load_modules(around.find_config, document["DQMConfigCacheID"])
    outputs = compute(document, {}, around.find_config)
    if request_type in ("StepChain", "TaskChain"):
        document["ChainParentageMap"] = outputs.parentage
        _derive_splitting(next(iter(elements_of(document).values())), document)
    else:
        _derive_event_count(document)
    document["RequestWorkflow"] = f"{document['CouchURL']}/reqmgr_workload_cache/{document['RequestName']}/spec"
    document["OutputDatasets"] = outputs.datasets
    document["InitialPriority"] = document["RequestPriority"]
    return document


def _check_input(document: Mapping[str, Any], request_type: str, around: Surroundings) -> None:
    """Input and pile-up datasets are in DBS; parents are there when the request wants them."""
    first: Any = document.get({"StepChain": "Step1", "TaskChain": "Task1"}.get(request_type, ""), document)
    if not isinstance(first, dict):
        raise InvalidSpec(f"'{type(first).__name__}' object has no attribute 'get'")
    dataset, parents = first.get("InputDataset"), first.get("IncludeParents")
    if parents and not dataset:
        raise InvalidSpec("IncludeParents flag is True but InputDataset value has not been provided")
    named: list[Any] = [dataset, first.get("MCPileup"), first.get("DataPileup")]
    for name in named:
        if name is not None and not around.dataset_exists(name):
            raise InvalidSpec(f"Dataset {name} doesn't exist in DBS {document['DbsUrl']}")
    if dataset and parents and to_bool(parents) and not around.has_parents(dataset):
        raise InvalidSpec(f"IncludeParents flag is True but the input dataset {dataset} has no parents")


def _check_chain(document: dict[str, Any], request_type: str, around: Surroundings) -> None:
    word = "Step" if request_type == "StepChain" else "Task"
    length, part = document[request_type], word.lower()
    if length > MAX_CHAIN_LENGTH:
        raise InvalidSpec(
            f"Workflow exceeds the maximum allowed number of {part}s. Limited to up to 10 {part}s, found {length} {part}s."
        )
    last = _needed(document, f"{word}{length}")
    if isinstance(last, dict) and not to_bool(last.get("KeepOutput", True)):
        raise InvalidSpec(
            f"Dropping the output (KeepOutput=False) of the last {part} is prohibited.\n"
            f"You probably want to remove that {part} completely and try again."
        )
    seen: set[tuple[str, str]] = set()
    for number in range(1, length + 1):
        label = f"{word}{number}"
        if label not in document:
            raise InvalidSpec(f"{word} '{label}' not present in the request schema.")
        element = document[label]
        if not isinstance(element, dict):
            raise InvalidSpec(f"{word} '{label}' not defined as a dictionary. It could be an indicator of JSON error.\n")
        first = number == 1
        definition = element_arguments(request_type, first=first, generator=first and "InputDataset" not in element)
        refuse_unknown(element, definition)
        check_arguments(element, definition, "create")
        modules = load_modules(around.find_config, element["ConfigCacheID"]) if element["ConfigCacheID"] else ()
        if request_type == "StepChain" and to_bool(element.get("KeepOutput", True)):
            for module in modules:
                if (module.name, module.tier) in seen:
                    raise InvalidSpec(
                        "StepChain cannot save output of different steps using the same output module AND datatier(s).\n"
                        f"{label} re-using outputModule: {module.name} and datatier: {module.tier}"
                    )
                seen.add((module.name, module.tier))


def _check_rereco(document: Mapping[str, Any], around: Surroundings) -> None:
    modules = load_modules(around.find_config, document["ConfigCacheID"])
    pairs = [(module.tier, module.filter_name) for module in modules]
    if any(not tier for tier, _ in pairs):
        raise InvalidSpec("No DataTier in output module.").as_printed_exception("ConfigCacheException")
    if len(set(pairs)) != len(pairs):
        raise InvalidSpec("Duplicate dataTier/filterName combination.").as_printed_exception("ConfigCacheException")


def _derive_splitting(element: dict[str, Any], document: Mapping[str, Any]) -> None:
    """EventsPerJob and EventsPerLumi of the first step, as ReqMgr2 writes them back: the first a multiple of the second."""
    generator = "InputDataset" not in element
    algorithm = "EventBased" if generator else element.get("SplittingAlgo", "EventAwareLumiBased")
    if algorithm not in ("EventBased", "EventAwareLumiBased"):
        return
    wanted = (
        int(element["RequestNumEvents"] / element.get("FilterEfficiency", 1.0)) if generator else element.get("RequestNumEvents")
    )
    per_job = element.get("EventsPerJob")
    if per_job is None:
        per_job = int(TARGET_JOB_SECONDS / (element.get("TimePerEvent") or document["TimePerEvent"]))
    if wanted:
        per_job = min(per_job, wanted)
    per_lumi = element.get("EventsPerLumi")
    if per_lumi is None or per_lumi > per_job:
        per_lumi = per_job
    else:
        per_job = per_lumi * max(round(per_job / per_lumi), 1)
    if per_job:  # an event may take longer than a job is meant to: then nothing is written back
        element["EventsPerJob"], element["EventsPerLumi"] = per_job, per_lumi


def _derive_event_count(document: dict[str, Any]) -> None:
    if document["RequestType"] == "ReReco" and document["SplittingAlgo"] in ("EventBased", "EventAwareLumiBased"):
        document["EventsPerJob"] = document.get("EventsPerJob") or int(TARGET_JOB_SECONDS / document["TimePerEvent"])


def _increment_versions(document: dict[str, Any]) -> None:
    for key, value in document.items():
        if key == "ProcessingVersion" and isinstance(value, int):
            document[key] = value + 1
        elif key == "ProcessingVersion" and isinstance(value, dict):
            document[key] = {name: number + 1 for name, number in value.items()}
        elif isinstance(value, dict) and isinstance(value.get("ProcessingVersion"), int):
            value["ProcessingVersion"] += 1


def _override(document: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Maps are merged key by key, everything else is replaced (so a LumiList only grows)."""
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(document.get(key), dict):
            _override(document[key], value)
        else:
            document[key] = value
