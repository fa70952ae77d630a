"""Configurations made up for a request document: for every step a PSet that the simulated cmsRun runs, as ConfigCache keeps it.

The output modules are those that later steps read, those that are not merged, and those that ``OutputDatasets`` declares; a step
of which nothing is known writes one module. The text of these PSets is in ``configcache/forms``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.demo.documents import name_of, value_of

_FORMS = Path(__file__).with_name("configcache") / "forms"
_MIXING_TYPES = {"mc": "PreMixingModule", "data": "DataMixingModule"}
#: Tiers for modules of which no document tells the tier; each is used once in a request.
TIERS = (
    "GEN-SIM", "GEN-SIM-DIGI-RAW", "GEN-SIM-RAW", "AODSIM", "MINIAODSIM", "NANOAODSIM", "RECO", "AOD", "MINIAOD", "NANOAOD",
    "DQMIO", "ALCARECO", "USER", "GEN", "SIM", "DIGI", "RAW", "RAW-RECO", "LHE", "PREMIX",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Module:
    """An output module."""

    label: str
    tier: str
    filter_name: str = ""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One ConfigCache document to be made."""

    config_id: str
    process: str
    generates: bool
    mixing: tuple[str, ...]  # kinds of pileup
    modules: tuple[Module, ...]
    harvests: bool = False


def needed(top: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Iterator[Configuration]:
    """The configuration of each step or task, in order, and that which harvests."""
    free = list(TIERS)
    for dataset in top.get("OutputDatasets") or ():
        if dataset.rpartition("/")[2] in free:
            free.remove(dataset.rpartition("/")[2])
    for number, part in enumerate(parts, start=1):
        if not part.get("ConfigCacheID"):
            continue  # a request of a kind that WMS2 refuses
        yield Configuration(
            config_id=part["ConfigCacheID"],
            process=f"P{number}",
            generates=number == 1 and not part.get("InputDataset"),
            mixing=tuple(kind for kind, key in (("mc", "MCPileup"), ("data", "DataPileup")) if part.get(key)),
            modules=_modules(top, part, parts, free),
        )
    if top.get("EnableHarvesting") and top.get("DQMConfigCacheID"):
        yield Configuration(top["DQMConfigCacheID"], "HARVESTING", generates=False, mixing=(), modules=(), harvests=True)


def _modules(
    top: Mapping[str, Any], part: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], free: list[str]
) -> tuple[Module, ...]:
    name = name_of(part)
    dropped = [*(part.get("TransientOutputModules") or ()), *(part.get("IgnoredOutputModules") or ())]
    read = [other["InputFromOutputModule"] for other in parts if (other.get("InputStep") or other.get("InputTask")) == name]
    declared = list(_declared(top, part)) if part.get("KeepOutput", True) else []
    modules: dict[str, Module] = {}
    for label in dict.fromkeys([*read, *dropped]):
        plain = [one for one in declared if not one.filter_name and one.tier != "LHE"]
        if label not in dropped and plain:  # one of the declared datasets is what the next step reads
            declared.remove(plain[0])
            modules[label] = Module(label, plain[0].tier)
        else:
            modules[label] = Module(label, free.pop(0))
    for one in declared:
        modules[one.label] = one
    if not modules:
        tier = free.pop(0)
        label = f"{tier.replace('-', '')}output"
        modules[label] = Module(label, tier)
    return tuple(modules.values())


def _declared(top: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[Module]:
    """What ``OutputDatasets`` says of one step: the datasets with its era, string and version."""
    era, string, version = (value_of(top, part, key) for key in ("AcquisitionEra", "ProcessingString", "ProcessingVersion"))
    end = f"{string}-v{version or 1}"
    for dataset in top.get("OutputDatasets") or ():
        _, _, processed, tier = dataset.split("/")
        if processed.startswith(f"{era}-") and processed.endswith(end):
            filter_name = processed[len(era) + 1 : len(processed) - len(end)].strip("-")
            yield Module(f"{tier.replace('-', '')}{filter_name}output", tier, filter_name)


def entry(config: Configuration) -> dict[str, Any]:
    """The entry of a seed: document and PSet."""
    text = pset(config)
    process: dict[str, Any] = {
        module.label: {
            "dataset": {"dataTier": module.tier, "filterName": module.filter_name},
            "fileName": f"file:{module.label}.root",
        }
        for module in config.modules
    }
    process["outputModules_"] = [module.label for module in config.modules]
    document = {
        "_id": config.config_id,
        "type": "config",
        "pset_hash": hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
        "pset_tweak_details": {"process": process},
    }
    return {"document": document, "pset": text}


def pset(config: Configuration) -> str:
    """The PSet as text."""
    reads = "DQMRootSource" if config.harvests else "PoolSource"
    source = '"EmptySource"' if config.generates else f'"{reads}", fileNames=cms.untracked.vstring()'
    process, mixing, output, saver = (
        (_FORMS / f"{name}.txt").read_text() for name in ("process", "mixing", "output", "harvesting")
    )
    parts = [process.format(process=config.process, source=source)]
    parts += [mixing.format(label=f"mix_{kind}", type=_MIXING_TYPES[kind]) for kind in config.mixing]
    parts += [output.format(label=one.label, tier=one.tier, filter=one.filter_name) for one in config.modules]
    return "".join([*parts, saver] if config.harvests else parts)
