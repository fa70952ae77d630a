"""Which part of upstream files a node of a later task reads, or one of several cmsRun. Pure; owns the dealing (ADR 0008).

The planner says only "part 2 of 3", because how many events and lumis an earlier task really leaves is known when it has run.
Every node of the file computes all parts from the same accepted report, so each event is in exactly one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..contract.lumis import LumiCounts, LumiSet, add_counts, lumi_set


class Part(NamedTuple):
    """A part of a file: a range of its events (from 0, inclusive), or some of its lumis. ``events`` None: not known."""

    events: int | None
    first_event: int | None = None
    lumis: LumiSet | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read: other nodes read all of the file."""
        return not self.lumis if self.lumis is not None else self.events == 0


class Held(NamedTuple):
    """What a file holds, or what there is to read of it."""

    events: int
    lumis: LumiCounts


NOTHING = Part(events=0, lumis=set())


def parts_of(files: Sequence[Held], part: int, parts: int, *, by_lumi: bool) -> list[Part | None]:
    """What part ``part`` (from 0) of ``parts`` of some files, taken one after the other, is of each of them; None: all of it.

    The first part also has files without events, or by lumis without lumis; a lumi of several files is in one part with all.
    No range of events holds a lumi that a filter has left without events: beside others such a file is shared by its lumis.
    """
    total, counts = sum(file.events for file in files), _together(files)
    by_lumi = by_lumi or any(file.events and 0 in lumis.values() for file in files for lumis in file.lumis.values())
    if not by_lumi and total > 0:
        return _ranges(files, part * total // parts, (part + 1) * total // parts, part)
    lumis = [(run, lumi, counts[run][lumi]) for run in sorted(counts) for lumi in sorted(counts[run])]
    if not by_lumi or not lumis:
        return [None if part == 0 else NOTHING for _ in files]
    places = _places([lumi[2] for lumi in lumis], parts)
    mine = {(run, lumi) for (run, lumi, _), at in zip(lumis, places) if at == part}
    return [_lumis_of(file, mine) if lumi_set(file.lumis) else (None if part == 0 else NOTHING) for file in files]


def _together(files: Sequence[Held]) -> LumiCounts:
    total: LumiCounts = {}
    for file in files:
        add_counts(total, file.lumis)
    return total


def _ranges(files: Sequence[Held], first: int, end: int, part: int) -> list[Part | None]:
    """What of each file lies in the events from ``first`` up to ``end`` of all."""
    found: list[Part | None] = []
    before = 0
    for file in files:
        low, high = max(first, before), min(end, before + file.events)
        if file.events == 0 and part == 0:
            found.append(None)
        else:
            found.append(Part(events=high - low, first_event=low - before) if low < high else NOTHING)
        before += file.events
    return found


def _lumis_of(file: Held, wanted: LumiSet) -> Part:
    mine = lumi_set(file.lumis) & wanted
    held = [file.lumis[run][lumi] for run, lumi in mine]
    return Part(events=None if None in held else sum(number or 0 for number in held), lumis=mine)


def _places(events: Sequence[int | None], parts: int) -> list[int]:
    """The part of each lumi: where its middle lies. Lumis without events, or without a count of them, are taken as equal."""
    weights = [number or 0 for number in events]
    if None in events or not any(weights):
        weights = [1] * len(events)
    total, before, places = sum(weights), 0, []
    for weight in weights:
        places.append(min(parts * (2 * before + weight) // (2 * total), parts - 1))
        before += weight
    return places
