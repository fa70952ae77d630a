"""Luminosity sections in the two forms the side files use. Pure.

Ranges: ``{run: [(first, last), ...]}``, sorted, disjoint, inclusive; JSON ``{"1": [[1, 8]]}``.
Counts: ``{run: {lumi: events or None}}``; JSON ``{"1": [[lumi, events], ...]}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Optional

from .convert import Json
from .reading import Value

LumiSet = set[tuple[int, int]]  # (run, lumi)
LumiCounts = dict[int, dict[int, Optional[int]]]


def expand(triples: Iterable[tuple[int, int, int]]) -> LumiSet:
    """All (run, lumi) of intervals."""
    return {(run, lumi) for run, first, last in triples for lumi in range(first, last + 1)}


def _runs(document: Value) -> Iterator[tuple[int, Value]]:
    for run, found in document.entries():
        if not run.isdigit():
            raise found.refuse("a run number was expected as the key")
        yield int(run), found


def range_triples(ranges: Value) -> list[tuple[int, int, int]]:
    """``(run, first, last)`` of every interval, in the order of runs and lumis."""
    triples = []
    for run, intervals in _runs(ranges):
        for interval in intervals.items():
            bounds = [bound.integer() for bound in interval.items()]
            if len(bounds) != 2 or bounds[0] > bounds[1]:
                raise interval.refuse("expected [first, last] with first <= last")
            triples.append((run, bounds[0], bounds[1]))
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


def counts_from_json(document: Value) -> LumiCounts:
    """Counts of a JSON ``{"run": [[lumi, events or null], ...]}``."""
    counts: LumiCounts = {}
    for run, pairs in _runs(document):
        lumis = counts.setdefault(run, {})
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
Counts = Annotated[
    LumiCounts,
    Json(
        read=counts_from_json,
        write=lambda counts: {str(run): [[*pair] for pair in sorted(lumis.items())] for run, lumis in sorted(counts.items())},
    ),
]
