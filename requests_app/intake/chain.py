"""The steps of a document, whatever its type: one view per step that knows where each value stands. Owns the look-up order only.

Of a field that may differ per step a map at the top (it comes from the assignment) wins over the step's own value, which wins
over one value at the top. A ReReco document is its own single step, named ``DataProcessing`` as in ReqMgr2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from requests_app.intake import lexicon
from requests_app.intake.findings import Findings
from requests_app.intake.known import PER_STEP
from requests_app.intake.values import is_set, name, shown, whole

RERECO_STEP = "DataProcessing"
_CHAIN_KEYS = ("StepChain", "TaskChain")
_MAX_STEPS = 10  # as ReqMgr2
_PART_KEY = re.compile(r"(Step|Task)\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class StepView:
    """One step: its 1-based number, name, own fields, and the document around it."""

    number: int
    name: str
    prefix: str  # "Step2." or empty
    own: Mapping[str, object]
    top: Mapping[str, object]

    def value(self, key: str) -> tuple[str, object]:
        """A field of the step alone: (its name for messages, its value)."""
        return self.prefix + key, self.own.get(key)

    def inherited(self, key: str) -> tuple[str, object]:
        """A field that the step may take from the top: (its name for messages, its value)."""
        above = self.top.get(key)
        if isinstance(above, dict) and above.get(self.name) is not None:
            return (self.prefix or f"{key}.") + (key if self.prefix else self.name), above[self.name]
        own = self.own.get(key)
        if self.prefix and own is not None and own != "":
            return self.prefix + key, own
        return (self.prefix + key, None) if isinstance(above, dict) else (key, above)


def reprocessing_step(document: Mapping[str, object], findings: Findings) -> tuple[StepView, ...]:
    """The one step of a document without a chain."""
    for key in document:
        if _PART_KEY.fullmatch(key) or (key in _CHAIN_KEYS and is_set(document[key])):
            findings.problem(key, "a request of this type has no steps and no tasks")
    view = StepView(number=1, name=RERECO_STEP, prefix="", own=document, top=document)
    _check_maps(document, (view,), findings)
    return (view,)


def chain_steps(document: Mapping[str, object], findings: Findings) -> tuple[StepView, ...]:
    """The steps of a StepChain, in order; only those that are there and are maps."""
    count = findings.require("StepChain", document.get("StepChain"), whole(1, _MAX_STEPS), 0)
    views: list[StepView] = []
    for number in range(1, count + 1):
        key = f"Step{number}"
        own = document.get(key)
        if not isinstance(own, dict):
            findings.problem(key, f"is missing: StepChain says {count}" if own is None else f"must be a map, not {shown(own)}")
            continue
        step_name = findings.require(f"{key}.StepName", own.get("StepName"), name(lexicon.STEP_NAME), "")
        views.append(StepView(number=number, name=step_name, prefix=f"{key}.", own=own, top=document))
    expected = {f"Step{number}" for number in range(1, count + 1)}
    for key in document:
        if count and _PART_KEY.fullmatch(key) and key not in expected:
            findings.problem(key, f"is not one of the {count} step(s) that StepChain says")
    _check_names(views, findings)
    if count and len(views) == count:  # else a map would seem to name strangers
        _check_maps(document, tuple(views), findings)
    return tuple(views)


def _check_names(views: list[StepView], findings: Findings) -> None:
    seen: dict[str, int] = {}
    for view in views:
        if view.name and view.name in seen:
            findings.problem(f"{view.prefix}StepName", f"{view.name} is already the name of Step{seen[view.name]}")
        seen.setdefault(view.name, view.number)


def _check_maps(document: Mapping[str, object], views: tuple[StepView, ...], findings: Findings) -> None:
    known = {view.name for view in views}
    for key in PER_STEP:
        above = document.get(key)
        if isinstance(above, dict):
            for step_name in above:
                if step_name not in known:
                    steps = ", ".join(sorted(filter(None, known))) or "none"
                    findings.problem(key, f"names no step of the request: {shown(step_name)} (steps: {steps})")
