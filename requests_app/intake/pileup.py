"""Pileup that a step mixes in, as ReqMgr2 names it: MCPileup, DataPileup, DeterministicPileup. Resolving it is planning's."""

from __future__ import annotations

from collections.abc import Sequence

from dags_app.payload.contract.documents import Pileup
from requests_app.intake import lexicon
from requests_app.intake.chain import Part
from requests_app.intake.known import PILEUP, TRUST
from requests_app.intake.values import flag, is_set, name

#: Field -> the kind by which the PSet's mixing modules know it.
_KINDS = dict(zip(PILEUP, ("mc", "data"), strict=True))


def read_pileup(part: Part) -> tuple[Pileup, ...]:
    """The datasets that one step mixes in, by kind."""
    found = ((kind, part.read(key, name(lexicon.DATASET), "")) for key, kind in _KINDS.items())
    return tuple(Pileup(kind=kind, dataset=dataset) for kind, dataset in found if dataset)


def read_deterministic(part: Part) -> bool:
    """Whether every job mixes the same pileup events into the same input events."""
    return part.read_inherited("DeterministicPileup", flag, fallback=False)


def refuse_pileup_above_steps(document: Part, parts: Sequence[Part]) -> None:
    """At the top of a chain nobody can tell which step mixes it."""
    for key in PILEUP if parts and parts[0].prefix else ():
        if is_set(document.own.get(key)):
            document.problem(key, f"has no effect at the top of a chain; give it in the {parts[0].word} that mixes it")


def read_trust(document: Part, *, reads_input: bool, reads_pileup: bool) -> tuple[bool, bool]:
    """(TrustSitelists, TrustPUSitelists), each only where there are such files to read."""
    found = []
    for key, matters in zip(TRUST, (reads_input, reads_pileup), strict=True):
        trusted = document.read(key, flag, fallback=False)
        if trusted and not matters:
            document.warn(key, "has no effect: the request reads no such files")
        found.append(trusted and matters)
    return found[0], found[1]
