"""Luminosity sections in the two forms the side files use. Pure.

Ranges: ``{run: [(first, last), ...]}``, sorted, disjoint, inclusive; JSON ``{"1": [[1, 8]]}``.
Counts: ``{run: {lumi: events or None}}``; JSON ``{"1": [[lumi, events], ...]}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Optional

from .convert import Json
from .reading import Value

LumiSet = set[tuple[int, int]]  # (run, lumi)
LumiCounts = dict[int, dict[int, Optional[int]]]


def expand(ranges: Value) -> LumiSet:
    """All (run, lumi) of a JSON ranges object."""
    return {(run, lumi) for run, first, last in range_triples(ranges) for lumi in range(first, last + 1)}


def range_triples(ranges: Value) -> list[tuple[int, int, int]]:
    """``(run, first, last)`` of every interval, in the order of runs and lumis."""
    triples = []
    for run, intervals in ranges.entries():
        if not run.isdigit():
            raise intervals.refuse("a run number was expected as the key")
        for interval in intervals.items():
            bounds = [bound.integer() for bound in interval.items()]
            if len(bounds) != 2 or bounds[0] > bounds[1]:
                raise interval.refuse("expected [first, last] with first <= last")
            triples.append((int(run), bounds[0], bounds[1]))
    return sorted(triples)


def compact(lumis: Iterable[tuple[int, int]]) -> dict[str, list[list[int]]]:
    """JSON ranges of a collection of (run, lumi)."""
    return compact_ranges((run, lumi, lumi) for run, lumi in lumis)


def compact_ranges(spans: Iterable[tuple[int, int, int]]) -> dict[str, list[list[int]]]:
    """JSON ranges of (run, first, last) in any order; those that overlap or touch become one."""
    result: dict[str, list[list[int]]] = {}
    for run, first, last in sorted(spans):
        intervals = result.setdefault(str(run), [])
        if intervals and first <= intervals[-1][1] + 1:
            intervals[-1][1] = max(intervals[-1][1], last)
        else:
            intervals.append([first, last])
    return result


def lumi_set(counts: LumiCounts) -> LumiSet:
    """All (run, lumi) of a counts mapping."""
    return {(run, lumi) for run, lumis in counts.items() for lumi in lumis}


def add_counts(target: LumiCounts, other: LumiCounts) -> None:
    """Add ``other`` into ``target``; a lumi with an unknown number of events stays unknown."""
    for run, lumis in other.items():
        into = target.setdefault(run, {})
        for lumi, events in lumis.items():
            have = into.get(lumi, 0)
            into[lumi] = None if have is None or events is None else have + events


def counts_to_json(counts: LumiCounts) -> dict[str, list[list[Any]]]:
    """JSON form of a counts mapping, in order."""
    return {str(run): [[lumi, counts[run][lumi]] for lumi in sorted(counts[run])] for run in sorted(counts)}


def counts_from_json(document: Value) -> LumiCounts:
    """Counts of a JSON ``{"run": [[lumi, events or null], ...]}``."""
    counts: LumiCounts = {}
    for run, pairs in document.entries():
        if not run.isdigit():
            raise pairs.refuse("a run number was expected as the key")
        lumis = counts.setdefault(int(run), {})
        for pair in pairs.items():
            values = list(pair.items())
            if len(values) != 2:
                raise pair.refuse("expected [lumi, events]")
            lumis[values[0].integer()] = None if values[1].raw is None else values[1].integer()
    return counts


def describe(lumis: LumiSet, limit: int = 10) -> str:
    """A short text of a set of lumis for messages: ``1:3-8, 2:1`` and how many were left out."""
    parts = [f"{run}:{a}" if a == b else f"{run}:{a}-{b}" for run, iv in compact(lumis).items() for a, b in iv]
    more = f" and {len(parts) - limit} more ranges" if len(parts) > limit else ""
    return ", ".join(parts[:limit]) + more


#: A field with the second form.
Counts = Annotated[LumiCounts, Json(read=counts_from_json, write=counts_to_json)]
