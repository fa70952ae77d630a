"""The steps or tasks of a document, whatever its type: a view of each that knows where each value stands. Owns the look-up order.

Of a field that may differ per part a map at the top (it comes from the assignment) wins over the part's own value, which wins
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
_MAX_PARTS = 10  # as ReqMgr2
_PART_KEY = re.compile(r"(Step|Task)\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChainKind:
    """How a chain spells its parts."""

    request_type: str  # also the field with their number
    part: str  # "Step": Step1, Step2, ...
    name_field: str
    input_field: str


STEP_CHAIN = ChainKind("StepChain", "Step", "StepName", "InputStep")
TASK_CHAIN = ChainKind("TaskChain", "Task", "TaskName", "InputTask")
CHAINS = {kind.request_type: kind for kind in (STEP_CHAIN, TASK_CHAIN)}


@dataclass(frozen=True, slots=True)
class StepView:
    """One step or task: its 1-based number, name, own fields, and the document around it."""

    number: int
    name: str
    prefix: str  # "Step2.", "Task2." or empty
    own: Mapping[str, object]
    top: Mapping[str, object]
    kind: ChainKind | None = None  # None: the one step of a document without a chain

    @property
    def is_task(self) -> bool:
        """Whether it runs in jobs of its own."""
        return self.kind is TASK_CHAIN

    def value(self, key: str) -> tuple[str, object]:
        """A field of the part alone: (its name for messages, its value)."""
        return self.prefix + key, self.own.get(key)

    def inherited(self, key: str) -> tuple[str, object]:
        """A field that the part may take from the top: (its name for messages, its value)."""
        above = self.top.get(key)
        if isinstance(above, dict) and above.get(self.name) is not None:
            return (self.prefix or f"{key}.") + (key if self.prefix else self.name), above[self.name]
        own = self.own.get(key)
        if self.prefix and own is not None and own != "":
            return self.prefix + key, own
        return (self.prefix + key, None) if isinstance(above, dict) else (key, above)

    def either(self, key: str, findings: Findings) -> tuple[str, object]:
        """A field that stands in the part or at the top, where two different values would leave open which one is meant."""
        own, above = self.own.get(key), self.top.get(key)
        if not self.prefix or not is_set(own):
            return (key, above) if is_set(above) else self.value(key)
        if is_set(above) and above != own:
            findings.problem(key, f"differs from {self.prefix}{key}; give it once")
        return self.prefix + key, own


def reprocessing_step(document: Mapping[str, object], findings: Findings) -> tuple[StepView, ...]:
    """The one step of a document without a chain."""
    for key in document:
        if _PART_KEY.fullmatch(key) or (key in CHAINS and is_set(document[key])):
            findings.problem(key, "a request of this type has no steps and no tasks")
    view = StepView(number=1, name=RERECO_STEP, prefix="", own=document, top=document)
    _check_maps(document, (view,), findings)
    return (view,)


def chain_steps(document: Mapping[str, object], kind: ChainKind, findings: Findings) -> tuple[StepView, ...]:
    """The parts of a chain, in order; only those that are there and are maps."""
    count = findings.require(kind.request_type, document.get(kind.request_type), whole(1, _MAX_PARTS), 0)
    views: list[StepView] = []
    for number in range(1, count + 1):
        key = f"{kind.part}{number}"
        own = document.get(key)
        if not isinstance(own, dict):
            findings.problem(
                key, f"is missing: {kind.request_type} says {count}" if own is None else f"must be a map, not {shown(own)}"
            )
            continue
        own_name = findings.require(f"{key}.{kind.name_field}", own.get(kind.name_field), name(lexicon.STEP_NAME), "")
        views.append(StepView(number=number, name=own_name, prefix=f"{key}.", own=own, top=document, kind=kind))
    _check_strangers(document, kind, count, findings)
    _check_names(views, findings)
    if count and len(views) == count:  # else a map would seem to name strangers
        _check_maps(document, tuple(views), findings)
    return tuple(views)


def _check_strangers(document: Mapping[str, object], kind: ChainKind, count: int, findings: Findings) -> None:
    """Parts that the chain does not count, and the count of another kind of chain."""
    expected = {f"{kind.part}{number}" for number in range(1, count + 1)}
    for key in document:
        if count and _PART_KEY.fullmatch(key) and key not in expected:
            findings.problem(key, f"is not one of the {count} {kind.part.lower()}(s) that {kind.request_type} says")
        elif key in CHAINS and key != kind.request_type and is_set(document[key]):
            findings.problem(key, f"has no meaning in a {kind.request_type}")


def _check_names(views: list[StepView], findings: Findings) -> None:
    seen: dict[str, StepView] = {}
    for view in views:
        first = seen.setdefault(view.name, view)
        if view.name and first is not view and view.kind is not None:
            findings.problem(
                f"{view.prefix}{view.kind.name_field}", f"{view.name} is already the name of {first.prefix.rstrip('.')}"
            )


def _check_maps(document: Mapping[str, object], views: tuple[StepView, ...], findings: Findings) -> None:
    known = {view.name for view in views}
    part = "task" if views[0].is_task else "step"
    for key in PER_STEP:
        above = document.get(key)
        if isinstance(above, dict):
            for step_name in above:
                if step_name not in known:
                    steps = ", ".join(sorted(filter(None, known))) or "none"
                    findings.problem(key, f"names no {part} of the request: {shown(step_name)} ({part}s: {steps})")
