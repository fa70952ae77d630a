"""Input and pileup datasets made up for a request document, in the form of a seed: small, and with all that its lists name.

Runs and lumis are those that the document wants and some that it does not; listed blocks exist under their names, and one more.
Deterministic: the same document always gives the same files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_NAMESPACE = uuid.UUID("1f0a4c0e-9a35-4a5e-8a53-6d7b2e5c8f10")
FILES_PER_BLOCK, LUMIS_PER_FILE, EVENTS_PER_LUMI = 3, 5, 10
_MAX_RUNS, _MAX_LUMIS_OF_RUN, _MAX_BLOCKS = 3, 25, 3
_PILEUP_EVENTS = 20

Record = dict[str, Any]


def inputs(top: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], rses: Sequence[str]) -> Iterator[Record]:
    """The input dataset of the first part, behind its parents when these are read, too."""
    first = parts[0]
    dataset = first.get("InputDataset")
    if not dataset:
        return
    everywhere = bool(top.get("TrustSitelists"))
    blocks = _blocks(dataset, top, first)
    wanted = {**top, **{key: value for key, value in first.items() if value}}
    lumis = _wanted_lumis(wanted)
    per_block = -(-len(lumis) // len(blocks))
    made, parents, event = [], [], 1
    for index, name in enumerate(blocks):
        held = list(rses) if everywhere else [rses[index % len(rses)]]
        files = []
        chunk = lumis[index * per_block : (index + 1) * per_block] or lumis[:LUMIS_PER_FILE]
        for start in range(0, len(chunk), LUMIS_PER_FILE):
            part = chunk[start : start + LUMIS_PER_FILE]
            files.append(_file(dataset, f"{name}/{start}", event, part))
            event += len(part) * EVENTS_PER_LUMI
        made.append(_block(name, held, files))
        if wanted.get("IncludeParents") in (True, "True", "true"):
            parents.append(_with_parents(dataset, made[-1]))
    if parents:
        yield _dataset(_parent_of(dataset), parents)
    yield _dataset(dataset, made)


def pileups(parts: Sequence[Mapping[str, Any]], rses: Sequence[str]) -> Iterator[Record]:
    """Every pileup dataset: one block at each pair of neighbouring sites."""
    names = dict.fromkeys(part[key] for part in parts for key in ("MCPileup", "DataPileup") if part.get(key))
    for dataset in names:
        blocks = []
        for index in range(len(rses)):
            name = f"{dataset}#{uuid.uuid5(_NAMESPACE, f'{dataset}/{index}')}"
            held = list(dict.fromkeys((rses[index], rses[(index + 1) % len(rses)])))
            files = []
            for n in range(FILES_PER_BLOCK):
                lumis = [(1, 2 * (FILES_PER_BLOCK * index + n) + k) for k in (1, 2)]
                files.append(_file(dataset, f"{name}/{n}", 1 + _PILEUP_EVENTS * n, lumis))
            blocks.append(_block(name, held, files))
        yield _dataset(dataset, blocks)


def _blocks(dataset: str, top: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """Names of the blocks: those that are listed, and one or two that are not."""
    white = list(first.get("BlockWhitelist") or top.get("BlockWhitelist") or ())[:_MAX_BLOCKS]
    black = list(first.get("BlockBlacklist") or top.get("BlockBlacklist") or ())[:1]
    more = [f"{dataset}#{uuid.uuid5(_NAMESPACE, f'{dataset}/{n}')}" for n in range(1 if white else 2)]
    return list(dict.fromkeys([*white, *black, *more]))


def _wanted_lumis(wanted: Mapping[str, Any]) -> list[tuple[int, int]]:
    """(run, lumi) of the dataset: all that are wanted up to a limit, a few of the same runs that are not, and one run beside."""
    mask = wanted.get("LumiList") or {}
    runs = [int(run) for run in (mask or wanted.get("RunWhitelist") or ())][:_MAX_RUNS] or [1]
    found: list[tuple[int, int]] = []
    for run in runs:
        spans = mask.get(str(run)) or [[1, _MAX_LUMIS_OF_RUN]]
        lumis = [lumi for first, last in spans for lumi in range(int(first), int(last) + 1)][:_MAX_LUMIS_OF_RUN]
        found += [(run, lumi) for lumi in sorted({*lumis, max(lumis) + 1})]
    black = [int(run) for run in wanted.get("RunBlacklist") or ()][:1]
    beside = max(runs) + 1
    return [*found, *((run, lumi) for run in {*black, beside} for lumi in range(1, LUMIS_PER_FILE + 1))]


def _file(dataset: str, key: str, first_event: int, lumis: Sequence[tuple[int, int]]) -> Record:
    _, primary, processed, tier = dataset.split("/")
    era, _, version = processed.partition("-")
    base = f"/store/{_kind(dataset)}/{era}/{primary}/{tier}/{version}/00000"
    return {
        "lfn": f"{base}/{uuid.uuid5(_NAMESPACE, key)}.root",
        "events": len(lumis) * EVENTS_PER_LUMI,
        "first_event": first_event,
        "lumis": [{"run": run, "lumi": lumi, "events": EVENTS_PER_LUMI} for run, lumi in lumis],
    }


def _with_parents(dataset: str, block: Record) -> Record:
    """A block of the parent dataset with one parent for each file; the files learn of it."""
    parent = _parent_of(dataset)
    files = []
    for record in block["files"]:
        lumis = [(lumi["run"], lumi["lumi"]) for lumi in record["lumis"]]
        files.append(_file(parent, f"parent/{record['lfn']}", record["first_event"], lumis))
        record["parents"] = [files[-1]["lfn"]]
    return _block(f"{parent}#{uuid.uuid5(_NAMESPACE, block['block_name'])}", block["rses"], files)


def _parent_of(dataset: str) -> str:
    head, _, tier = dataset.rpartition("/")
    return f"{head}/{'GEN-SIM' if _kind(dataset) == 'mc' and tier != 'GEN-SIM' else 'RAW' if tier != 'RAW' else 'RAW-RECO'}"


def _block(name: str, rses: Sequence[str], files: Sequence[Record]) -> Record:
    return {"block_name": name, "origin_site_name": rses[0], "rses": list(rses), "files": list(files)}


def _dataset(name: str, blocks: Sequence[Record]) -> Record:
    return {"dataset": name, "primary_ds_type": _kind(name), "dataset_access_type": "VALID", "blocks": list(blocks)}


def _kind(dataset: str) -> str:
    tier = dataset.rpartition("/")[2]
    return "mc" if "SIM" in tier or tier in ("GEN", "PREMIX", "LHE") else "data"
