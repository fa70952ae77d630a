"""What a request document needs of the mock world: a runnable copy of it, and a seed for the simulators, the storage and Rucio.

A template's placeholders are filled in, sites that the mock pool lacks are left out; configurations, input datasets (with masks,
listed blocks and parents) and pileup that no seed of the demo has are made up.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.demo import configurations, datasets, documents
from deploy.htcondor.sites import SITES

_HERE = Path(__file__).parent
_PLACEHOLDER = "-OVERRIDE-ME"
_FILLED: dict[str, Any] = {
    "AcquisitionEra": "DemoEra", "ProcessingString": "DemoString", "ProcessingVersion": 1, "Campaign": "DemoCampaign",
    "SiteWhitelist": "", "Team": "wms2", "Dashboard": "test",
}  # fmt: skip

#: The made-up input does not grow.
_OPEN_SECONDS = 10

Document = dict[str, Any]


@dataclass(slots=True)
class World:
    """A document that the mock world can run, what it needs of that world, and what had to be changed."""

    document: Document
    seed: Document
    notes: list[str] = field(default_factory=list)


def make(document: Mapping[str, Any], *, name: str, known_configs: set[str], known_datasets: set[str]) -> World:
    """The world of a document; ``name`` replaces a placeholder of the request's name.

    ``known_configs`` and ``known_datasets`` are there already and are left alone.
    """
    notes: list[str] = []
    runnable = _runnable(document, name, notes)
    top = documents.merged(runnable)
    parts = documents.parts(top) or [dict(top)]  # a document without them is its own only part
    rses = _rses(top)
    configs = [
        configurations.entry(config) for config in configurations.needed(top, parts) if config.config_id not in known_configs
    ]
    made = [
        dataset
        for dataset in (*datasets.inputs(top, parts, rses), *datasets.pileups(parts, rses))
        if dataset["dataset"] not in known_datasets
    ]
    tiers = sorted({dataset["dataset"].rpartition("/")[2] for dataset in made} | set(configurations.TIERS))
    return World(runnable, {"configcache": configs, "dbs": {"data_tiers": tiers, "datasets": made}}, list(dict.fromkeys(notes)))


def _runnable(document: Mapping[str, Any], name: str, notes: list[str]) -> Document:
    found: Document = _fill(copy.deepcopy(dict(document)), name, "", notes)
    for part in (found, *(part for part in found.values() if isinstance(part, dict))):
        if "SiteWhitelist" in part:
            part["SiteWhitelist"] = _mock_sites(part["SiteWhitelist"], notes)
    for part in _maps(found):
        if part.get("RequiresGPU") == "required":
            part["RequiresGPU"] = "optional"
            notes.append("RequiresGPU: the mock pool has no GPUs, so they are optional here")
        if isinstance(part.get("OpenRunningTimeout"), int) and part["OpenRunningTimeout"] > _OPEN_SECONDS:
            part["OpenRunningTimeout"] = _OPEN_SECONDS
            notes.append(f"OpenRunningTimeout: {_OPEN_SECONDS} s, since nothing is added to the dataset here")
        if part.pop("JobExtraMatchRequirements", ""):
            notes.append("JobExtraMatchRequirements: left out, the mock pool has nothing that would match")
    return found


def _fill(value: Any, name: str, key: str, notes: list[str]) -> Any:
    if isinstance(value, dict):
        return {inner_key: _fill(inner, name, key if key in _FILLED else inner_key, notes) for inner_key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, name, key, notes) for inner in value]
    if not (isinstance(value, str) and value.endswith(_PLACEHOLDER)):
        return value
    filled = _FILLED.get(key, name)
    if filled:
        notes.append(f"{key}: the placeholder is {filled!r} here")
    return filled


def _mock_sites(listed: Any, notes: list[str]) -> list[str]:
    mock = [site.cms_name for site in SITES]
    named = [site for site in ([listed] if isinstance(listed, str) else listed) if site in mock]
    if sorted(named) != sorted(set(listed)):
        notes.append(f"SiteWhitelist: {', '.join(named or mock)}, which the mock pool has")
    return named or mock


def _rses(top: Mapping[str, Any]) -> tuple[str, ...]:
    listed = top.get("SiteWhitelist") or [site.cms_name for site in SITES]
    black = top.get("SiteBlacklist") or ()
    return tuple(site.disk_rse for site in SITES if site.cms_name in listed and site.cms_name not in black)


def _maps(document: Document) -> Iterator[Document]:
    yield document
    for value in document.values():
        if isinstance(value, dict):
            yield from _maps(value)


def known() -> tuple[set[str], set[str]]:
    """ConfigCache ids and datasets that the demo's own seeds have."""
    configs: set[str] = set()
    names: set[str] = set()
    for path in (_HERE / "seed.json", _HERE / "rereco_input_dataset.json"):
        seed = json.loads(path.read_text())
        for entry in seed.get("configcache", ()):
            configs.add(json.loads((_HERE / entry["document_file"]).read_text())["_id"])
        names.update(dataset["dataset"] for dataset in seed["dbs"].get("datasets", ()))
    return configs, names


def write(file: Path, directory: Path) -> list[str]:
    """Write the world of the document in a file as ``request.json`` and ``seed.json``; returns what was changed, a line each."""
    document = json.loads(file.read_text())
    if isinstance(document, dict) and set(document) == {"result"}:
        document, *_ = document["result"][0].values()
    configs, names = known()
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", file.stem)
    world = make(document, name=f"demo_{stem}", known_configs=configs, known_datasets=names)
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (("request.json", world.document), ("seed.json", world.seed)):
        (directory / name).write_text(json.dumps(content, indent=1) + "\n")
    return world.notes
