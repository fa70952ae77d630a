"""What a ReqMgr2 document asks for, read by the verification on its own: nothing of WMS2's intake is used here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from deploy.demo.facts import Asked, LumiId

_PART = re.compile(r"(?:Step|Task)(\d+)", re.ASCII)
#: Name of the one step of a document without steps, as ReqMgr2 calls it.
ONLY_STEP = "DataProcessing"


def merged(document: Mapping[str, Any]) -> dict[str, Any]:
    """One map of a document that comes as one, or as a creation and an assignment (which wins)."""
    if "createRequest" not in document:
        return dict(document)
    return {**document["createRequest"], **document.get("assignRequest", {})}


def parts(top: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Steps or tasks in order."""
    numbered = {int(found.group(1)): top[key] for key in top if (found := _PART.fullmatch(key))}
    return [numbered[number] for number in sorted(numbered)]


def asked(document: Mapping[str, Any]) -> Asked:
    """The numbers to be generated or the dataset to be read, and which steps' outputs stay."""
    top = merged(document)
    steps = parts(top)
    kept = tuple(name_of(step) for step in steps if step.get("KeepOutput", True) and _writes(top, step)) or (ONLY_STEP,)
    first = steps[0] if steps else top
    share = prod(float(step.get("FilterEfficiency") or 1.0) for step in steps) if steps else 1.0
    if first.get("InputDataset"):
        return Asked(kept, None, share, first["InputDataset"])
    window = (int(top.get("MinMergeSize") or 2**31), int(top.get("MaxMergeSize") or 2**32))
    events = int(int(first["RequestNumEvents"]) / float(first.get("FilterEfficiency") or 1.0))
    return Asked(kept, (int(top.get("FirstEvent") or 1), events, int(top.get("FirstLumi") or 1)), share, "", window)


def name_of(step: Mapping[str, Any]) -> str:
    """Of a step or task, or of the one step of a document without them."""
    return str(step.get("StepName") or step.get("TaskName") or ONLY_STEP)


def _writes(top: Mapping[str, Any], step: Mapping[str, Any]) -> bool:
    """Whether a kept step has a dataset: with ``OutputDatasets``, one of its era and string; all its modules may be transient."""
    declared = top.get("OutputDatasets")
    if not declared:
        return True
    era, string = (value_of(top, step, key) for key in ("AcquisitionEra", "ProcessingString"))
    return any(name.split("/")[2].startswith(f"{era}-") and f"{string}-v" in name.split("/")[2] for name in declared)


def value_of(top: Mapping[str, Any], step: Mapping[str, Any], key: str) -> str:
    """Era, string or version of a step: its own, or the document's, which may be a map by steps."""
    above = top.get(key)
    if isinstance(above, dict):
        return str(above.get(name_of(step)) or step.get(key) or "")
    return str(step.get(key) or above or "")


def unmerged_base(document: Mapping[str, Any]) -> str:
    """Below which LFN the request's unmerged files are written."""
    return str(merged(document).get("UnmergedLFNBase") or "/store/unmerged")


def wants(document: Mapping[str, Any], lumi: LumiId, block: str) -> bool:
    """Whether the document's lists let this lumi of this block through."""
    top = merged(document)
    part = {**top, **top.get("Step1", {}), **top.get("Task1", {})}
    run, number = lumi
    if part.get("RunWhitelist") and run not in map(int, part["RunWhitelist"]):
        return False
    if run in map(int, part.get("RunBlacklist") or ()):
        return False
    if part.get("BlockWhitelist") and block not in part["BlockWhitelist"]:
        return False
    if block in (part.get("BlockBlacklist") or ()):
        return False
    listed = part.get("LumiList") or {}
    return not listed or any(int(first) <= number <= int(last) for first, last in listed.get(str(run), ()))
