"""What a request will make: output datasets, unmerged LFN bases and the parentage of its chain.

ReqMgr2 computes these from the request and the output modules of its ConfigCache documents, at creation and again at
assignment (when era, string and version may change): ``/primary/era[-filter]-string-vN/TIER``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.simulators.reqmgr2.checking import InvalidSpec
from deploy.simulators.reqmgr2.kinds import to_bool
from deploy.simulators.reqmgr2.lexicon import LexiconError, lfn_base, processed_dataset
from deploy.simulators.reqmgr2.states import elements_of

FindConfig = Callable[[str], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class OutputModule:
    """An output module of a PSet."""

    name: str
    tier: str
    filter_name: str


@dataclass(frozen=True, slots=True)
class Element:
    """A step or task (or the whole of a request without a chain) and what it writes."""

    label: str
    name: str
    own: Mapping[str, Any]
    modules: tuple[OutputModule, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outputs:
    """The three things ReqMgr2 writes into the document."""

    datasets: list[str]
    lfn_bases: list[str]
    parentage: dict[str, dict[str, Any]]


def load_modules(find_config: FindConfig, config_id: Any) -> tuple[OutputModule, ...]:
    """The output modules of a ConfigCache document, in its order.

    Raises:
        InvalidSpec: no such document, or its PSet tweak does not list its modules.
    """
    if not isinstance(config_id, str):
        raise InvalidSpec(f"unhashable type: '{type(config_id).__name__}'")
    if not config_id.strip():
        raise InvalidSpec("ConfigCacheID is invalid and cannot be loaded")
    document = find_config(config_id)
    if document is None:
        text = f"Failure to load ConfigCache while validating workload: Document with id {config_id} not found in couch"
        raise InvalidSpec(text).as_printed_exception("ConfigCacheException")
    try:
        process = document["pset_tweak_details"]["process"]
        facts = {name: process[name].get("dataset") or {} for name in process["outputModules_"]}
    except (KeyError, TypeError, AttributeError) as error:
        text = f"Could not find {error} in psetTweaks['process'] while getting output modules."
        raise InvalidSpec(text).as_printed_exception("ConfigCacheException") from error
    return tuple(OutputModule(name, fact.get("dataTier") or "", fact.get("filterName") or "") for name, fact in facts.items())


def elements(document: Mapping[str, Any], find_config: FindConfig) -> list[Element]:
    """The steps, tasks or the one processing of a request.

    Raises:
        InvalidSpec: a ConfigCache document is missing or unusable.
    """
    request_type = document["RequestType"]
    if request_type == "DQMHarvest":
        return []
    if request_type == "ReReco":
        return _rereco_elements(document, find_config)
    found = []
    for label, own in elements_of(document).items():
        modules = load_modules(find_config, own["ConfigCacheID"]) if own.get("ConfigCacheID") else ()
        dropped = set(own.get("TransientOutputModules") or []) | set(document.get("IgnoredOutputModules") or [])
        keep = to_bool(own.get("KeepOutput", True))
        kept = tuple(module.name for module in modules if keep and module.name not in dropped)
        found.append(Element(label, own.get("StepName") or own["TaskName"], own, modules, kept))
    return found


def _rereco_elements(document: Mapping[str, Any], find_config: FindConfig) -> list[Element]:
    modules = tuple(sorted(load_modules(find_config, document["ConfigCacheID"]), key=lambda module: module.name))
    transient = document.get("TransientOutputModules") or []
    kept = tuple(module.name for module in modules if module.name not in transient)
    found = [Element(label="DataProcessing", name="DataProcessing", own={}, modules=modules, kept=kept)]
    number = 1
    while f"SkimName{number}" in document:
        skim = load_modules(find_config, document[f"Skim{number}ConfigCacheID"])
        names = tuple(module.name for module in skim)
        found.append(Element(label=f"Skim{number}", name=document[f"SkimName{number}"], own={}, modules=skim, kept=names))
        number += 1
    return found


def primary_dataset(document: Mapping[str, Any]) -> str:
    """The primary dataset of all outputs: named in the request, else that of the input, else (as in ReqMgr2) the word None."""
    first = next(iter(elements_of(document).values()), {})
    dataset = first.get("InputDataset") or document.get("InputDataset")
    named = first.get("PrimaryDataset") or document.get("PrimaryDataset")
    if document["RequestType"] == "ReReco" or not named:
        named = dataset.split("/")[1] if dataset else named
    return str(named)


def compute(document: Mapping[str, Any], assigned: Mapping[str, Any], find_config: FindConfig) -> Outputs:
    """Outputs of a request with ``assigned`` arguments on top of the document.

    Raises:
        InvalidSpec: a name does not fit CMS's rules, a map by step lacks a step, or a ConfigCache document is unusable.
    """
    found = elements(document, find_config)
    if not found:
        return Outputs(datasets=[], lfn_bases=[], parentage={})
    primary = primary_dataset(document)
    merged = assigned.get("MergedLFNBase") or document["MergedLFNBase"]
    unmerged = assigned.get("UnmergedLFNBase") or document["UnmergedLFNBase"]
    datasets: list[str] = []
    bases: list[str] = []
    by_element: dict[str, dict[str, str]] = {}
    for element in found:
        era = _name_part("AcquisitionEra", element, document, assigned)
        string = _name_part("ProcessingString", element, document, assigned)
        version = int(_name_part("ProcessingVersion", element, document, assigned))
        written = by_element.setdefault(element.name, {})
        for module in element.modules:
            tail = "-".join(str(part) for part in (module.filter_name, string, f"v{version}") if part)
            for base in (unmerged, merged):
                lfn_base(f"{base}/{era}/{primary}/{module.tier}/{tail}")
            bases.append(f"{unmerged}/{era}/{primary}/{module.tier}/{tail}")
            if module.name in element.kept:
                written[module.name] = f"/{primary}/{era}-{tail}/{module.tier}"
                datasets.append(written[module.name])
    lfn_bases = list(dict.fromkeys(base for base in bases if base.startswith("/store/unmerged")))
    return Outputs(datasets=datasets, lfn_bases=lfn_bases, parentage=_parentage(document, found, by_element))


def _name_part(key: str, element: Element, document: Mapping[str, Any], assigned: Mapping[str, Any]) -> Any:
    """Era, string or version of one element: assigned (a map goes by step name), else its own, else the request's."""
    value = assigned.get(key)
    if value is None:
        if element.own.get(key):
            return element.own[key]
        value = document.get(key)
        # at creation a map need not have every step: the version is then 1, the others become the word None
        return value.get(element.name, 1 if key == "ProcessingVersion" else None) if isinstance(value, dict) else value
    if not isinstance(value, dict):
        return value
    if element.name not in value:
        raise InvalidSpec(f"'{element.name}'")
    return value[element.name]


def _parentage(
    document: Mapping[str, Any], found: list[Element], written: dict[str, dict[str, str]]
) -> dict[str, dict[str, Any]]:
    """``{StepN: {ParentDset, ChildDsets}}``; the parent of a dropped output is the nearest kept one before it, else the input."""
    input_key = {"StepChain": "InputStep", "TaskChain": "InputTask"}.get(document["RequestType"])
    if input_key is None:
        return {}
    by_name = {element.name: element for element in found}

    def parent_of(element: Element) -> str | None:
        parent_name = element.own.get(input_key)
        if parent_name is None:
            return element.own.get("InputDataset")
        if not isinstance(parent_name, str) or parent_name not in by_name:
            raise InvalidSpec("'NoneType' object is not subscriptable")
        parent, module = by_name[parent_name], element.own.get("InputFromOutputModule")
        if isinstance(module, str) and module in written[parent_name]:
            return written[parent_name][module]
        if to_bool(parent.own.get("KeepOutput", True)) and module not in (parent.own.get("TransientOutputModules") or []):
            raise InvalidSpec(f"'{module}'")
        return parent_of(parent)

    return {
        element.label: {"ParentDset": parent_of(element), "ChildDsets": list(written[element.name].values())} for element in found
    }


def check_assignable(datasets: list[str], known_tiers: set[str]) -> None:
    """What ReqMgr2 asks of output datasets before it assigns a request.

    Raises:
        InvalidSpec: duplicates, a bad processed dataset name, or a tier that DBS does not have.
    """
    if len(datasets) != len(set(datasets)):
        raise InvalidSpec(f"Output dataset contains duplicates and it has to be fixed! {datasets}")
    for dataset in datasets:
        try:
            processed_dataset(dataset.split("/")[2])
        except LexiconError as error:
            raise InvalidSpec(f"Bad output dataset name, check the processed dataset name.\n {error}") from error
    bad = sorted({dataset.split("/")[3] for dataset in datasets} - known_tiers)
    if bad:
        raise InvalidSpec(f"Bad datatier(s): {bad} not available in DBS.")
