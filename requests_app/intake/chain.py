"""A document of any type and its steps or tasks: each knows where its values stand and reads them. Owns the look-up order.

Of a field that may differ per part a map at the top (it comes from the assignment) wins over the part's own value, which wins
over one value at the top. A ReReco document is its own single step, named ``DataProcessing`` as in ReqMgr2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from requests_app.intake import lexicon
from requests_app.intake.findings import Findings
from requests_app.intake.known import PER_STEP
from requests_app.intake.values import is_set, name, shown, whole

T = TypeVar("T")

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
class Part:
    """A step or task: its 1-based number, name, own fields, and the document around it; or, with number 0, the document itself.

    What is wrong or remarkable goes to ``findings`` under the field's whole name.
    """

    own: Mapping[str, object]
    top: Mapping[str, object]
    findings: Findings
    number: int = 0
    name: str = ""
    prefix: str = ""  # "Step2.", "Task2."; empty for a document, and for the one step of one without a chain
    kind: ChainKind | None = None

    @property
    def is_task(self) -> bool:
        """Whether it runs in jobs of its own."""
        return self.kind is TASK_CHAIN

    @property
    def word(self) -> str:
        """What it is called in messages."""
        return self.kind.part.lower() if self.kind else "step"

    @property
    def document(self) -> Part:
        """The document around it."""
        return Part(self.top, self.top, self.findings)

    def part(self, kind: ChainKind, number: int, own: Mapping[str, object]) -> Part:
        """A step or task of this document, its name as it stands there."""
        return Part(own, self.top, self.findings, number, str(own.get(kind.name_field) or ""), f"{kind.part}{number}.", kind)

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

    def read(self, key: str, convert: Callable[[object], T], fallback: T) -> T:
        """A field of the part alone, as :meth:`Findings.read` reads it."""
        return self.findings.read(*self.value(key), convert, fallback)

    def require(self, key: str, convert: Callable[[object], T], fallback: T) -> T:
        """A field of the part alone that must be there."""
        return self.findings.require(*self.value(key), convert, fallback)

    def read_inherited(self, key: str, convert: Callable[[object], T], fallback: T) -> T:
        """A field that the part may take from the top."""
        return self.findings.read(*self.inherited(key), convert, fallback)

    def require_inherited(self, key: str, convert: Callable[[object], T], fallback: T) -> T:
        """The same, if it must be there."""
        return self.findings.require(*self.inherited(key), convert, fallback)

    def read_either(self, key: str, convert: Callable[[object], T], fallback: T) -> T:
        """A field that stands in the part or at the top, where two different values would leave open which one is meant."""
        own, above = self.own.get(key), self.top.get(key)
        if not self.prefix or not is_set(own):
            return self.findings.read(*((key, above) if is_set(above) else self.value(key)), convert, fallback)
        if is_set(above) and above != own:
            self.findings.problem(key, f"differs from {self.prefix}{key}; give it once")
        return self.read(key, convert, fallback)

    def problem(self, key: str, text: str) -> None:
        """Record that a field of the part is wrong."""
        self.findings.problem(self.prefix + key, text)

    def later(self, key: str, what: str) -> None:
        """Record that a field of the part asks for something WMS2 cannot do yet."""
        self.problem(key, f"not yet supported: {what}")

    def warn(self, key: str, text: str) -> None:
        """Record a warning about a field of the part."""
        self.findings.warn(self.prefix + key, text)


def reprocessing_step(document: Part) -> tuple[Part, ...]:
    """The one step of a document without a chain."""
    for key, value in document.own.items():
        if _PART_KEY.fullmatch(key) or (key in CHAINS and is_set(value)):
            document.problem(key, "a request of this type has no steps and no tasks")
    step = replace(document, number=1, name=RERECO_STEP)
    _check_maps((step,))
    return (step,)


def chain_steps(document: Part, kind: ChainKind) -> tuple[Part, ...]:
    """The parts of a chain, in order; only those that are there and are maps."""
    count = document.require(kind.request_type, whole(1, _MAX_PARTS), 0)
    parts: list[Part] = []
    for number in range(1, count + 1):
        key = f"{kind.part}{number}"
        own = document.own.get(key)
        if not isinstance(own, dict):
            document.problem(
                key, f"is missing: {kind.request_type} says {count}" if own is None else f"must be a map, not {shown(own)}"
            )
            continue
        part = document.part(kind, number, own)
        parts.append(replace(part, name=part.require(kind.name_field, name(lexicon.STEP_NAME), "")))
    _check_strangers(document, kind, count)
    _check_names(parts)
    if count and len(parts) == count:  # else a map would seem to name strangers
        _check_maps(tuple(parts))
    return tuple(parts)


def _check_strangers(document: Part, kind: ChainKind, count: int) -> None:
    """Parts that the chain does not count, and the count of another kind of chain."""
    expected = {f"{kind.part}{number}" for number in range(1, count + 1)}
    for key, value in document.own.items():
        if count and _PART_KEY.fullmatch(key) and key not in expected:
            document.problem(key, f"is not one of the {count} {kind.part.lower()}(s) that {kind.request_type} says")
        elif key in CHAINS and key != kind.request_type and is_set(value):
            document.problem(key, f"has no meaning in a {kind.request_type}")


def _check_names(parts: list[Part]) -> None:
    seen: dict[str, Part] = {}
    for part in parts:
        first = seen.setdefault(part.name, part)
        if part.name and first is not part and part.kind is not None:
            part.problem(part.kind.name_field, f"{part.name} is already the name of {first.prefix.rstrip('.')}")


def _check_maps(parts: tuple[Part, ...]) -> None:
    known, first = {part.name for part in parts}, parts[0]
    for key in PER_STEP:
        above = first.top.get(key)
        if isinstance(above, dict):
            for step_name in above:
                if step_name not in known:
                    steps = ", ".join(sorted(filter(None, known))) or "none"
                    why = f"names no {first.word} of the request: {shown(step_name)} ({first.word}s: {steps})"
                    first.document.problem(key, why)
