"""Which part of an upstream file a node of a later task reads. Pure; owns the dealing (ADR 0043).

The planner says only "part 2 of 3", because how many events and lumis an earlier task really leaves is known when it has run.
Every node of the file computes all parts from the same accepted report, so each event is in exactly one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..contract.lumis import LumiCounts, LumiSet


@dataclass(frozen=True)
class Part:
    """A part of a file: a range of its events (from 0, inclusive), or some of its lumis. ``events`` None: not known."""

    events: int | None
    first_event: int | None = None
    lumis: LumiSet | None = None

    @property
    def last_event(self) -> int | None:
        """Last event of a range; before the first when the range is empty."""
        return None if self.first_event is None or self.events is None else self.first_event + self.events - 1

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read: other nodes read all of the file."""
        return not self.lumis if self.lumis is not None else self.events == 0


def part_of(events: int, counts: LumiCounts, part: int, parts: int, *, by_lumi: bool) -> Part | None:
    """Part ``part`` (from 0) of ``parts`` of a file; None: all of it. When nothing can be divided, that is the first part."""
    lumis = [(run, lumi, counts[run][lumi]) for run in sorted(counts) for lumi in sorted(counts[run])]
    if not by_lumi and events > 0:
        first = part * events // parts
        return Part(events=(part + 1) * events // parts - first, first_event=first)
    if not by_lumi or not lumis:
        return None if part == 0 else Part(events=0, lumis=set())
    mine = [lumi for lumi, at in zip(lumis, _places([lumi[2] for lumi in lumis], parts)) if at == part]
    held = [lumi[2] for lumi in mine]
    return Part(
        events=None if None in held else sum(number or 0 for number in held), lumis={(run, lumi) for run, lumi, _ in mine}
    )


def _places(events: Sequence[int | None], parts: int) -> list[int]:
    """The part of each lumi: where its middle lies. Lumis without events, or whose events nobody counted, are taken as equal."""
    weights = [number or 0 for number in events]
    if None in events or not any(weights):
        weights = [1] * len(events)
    total, before, places = sum(weights), 0, []
    for weight in weights:
        places.append(min(parts * (2 * before + weight) // (2 * total), parts - 1))
        before += weight
    return places
