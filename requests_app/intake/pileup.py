"""Pileup that a step mixes in, as ReqMgr2 names it: MCPileup, DataPileup, DeterministicPileup. Resolving it is planning's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dags_app.payload.contract.documents import Pileup
from requests_app.intake import lexicon
from requests_app.intake.chain import StepView
from requests_app.intake.findings import Findings
from requests_app.intake.known import PILEUP, TRUST
from requests_app.intake.values import flag, is_set, name

#: Field -> the kind by which the PSet's mixing modules know it.
_KINDS = dict(zip(PILEUP, ("mc", "data"), strict=True))


def read_pileup(view: StepView, findings: Findings) -> tuple[Pileup, ...]:
    """The datasets that one step mixes in, by kind."""
    found = []
    for key, kind in _KINDS.items():
        dataset = findings.read(*view.value(key), name(lexicon.DATASET), "")
        if dataset:
            found.append(Pileup(kind=kind, dataset=dataset))
    return tuple(found)


def read_deterministic(view: StepView, findings: Findings) -> bool:
    """Whether every job mixes the same pileup events into the same input events."""
    return findings.read(*view.inherited("DeterministicPileup"), flag, fallback=False)


def refuse_pileup_above_steps(document: Mapping[str, object], views: Sequence[StepView], findings: Findings) -> None:
    """At the top of a chain nobody can tell which step mixes it."""
    for view in views[:1]:
        for key in PILEUP if view.prefix else ():
            if is_set(document.get(key)):
                findings.problem(key, f"has no effect at the top of a chain; give it in the {_part(view)} that mixes it")


def read_trust(document: Mapping[str, object], *, reads_input: bool, reads_pileup: bool, findings: Findings) -> tuple[bool, bool]:
    """(TrustSitelists, TrustPUSitelists), each only where there are such files to read."""
    found = []
    for key, matters in zip(TRUST, (reads_input, reads_pileup), strict=True):
        trusted = findings.read(key, document.get(key), flag, fallback=False)
        if trusted and not matters:
            findings.warn(key, "has no effect: the request reads no such files")
        found.append(trusted and matters)
    return found[0], found[1]


def _part(view: StepView) -> str:
    return view.kind.part.lower() if view.kind else "step"
