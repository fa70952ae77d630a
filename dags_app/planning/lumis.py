"""Set algebra on luminosity sections, kept as intervals per run.

Owns the one representation of "which lumis" that planning, claims and masks share: a ``LumiRanges`` maps a run to sorted,
disjoint, non-adjacent inclusive intervals; runs stand in ascending order and none is empty. Every function returns a new
value in that form. Costs go with the number of intervals, never with the number of lumis. Does not know files or masks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from dags_app.planning.specs import LumiRanges
from wms2.runtime.json_columns import numbered

Interval = tuple[int, int]

_FIRST = itemgetter(0)


def from_pairs(pairs: Iterable[tuple[int, int]]) -> LumiRanges:
    """Ranges that hold exactly the given (run, lumi) pairs, in any order, repeated or not."""
    found: dict[int, list[Interval]] = {}
    run: int | None = None
    first = last = 0
    for each, lumi in sorted(pairs):
        if each == run and lumi <= last + 1:
            last = lumi
            continue
        if run is not None:
            found.setdefault(run, []).append((first, last))
        run, first, last = each, lumi, lumi
    if run is not None:
        found.setdefault(run, []).append((first, last))
    return {run: tuple(intervals) for run, intervals in found.items()}


def from_intervals(intervals: Iterable[tuple[int, int, int]]) -> LumiRanges:
    """Ranges that hold exactly the given (run, first, last) intervals, which may overlap.

    Raises:
        ValueError: an interval ends before it begins.
    """
    ranges: LumiRanges = {}
    for run, group in groupby(sorted(intervals), key=_FIRST):
        ranges[run] = merged((first, last) for _, first, last in group)
    return ranges


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Sorted, disjoint, non-adjacent intervals out of intervals sorted by their begin."""
    result: list[Interval] = []
    for first, last in intervals:
        if last < first:
            raise ValueError(f"interval {first}-{last} ends before it begins")
        if result and first <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return tuple(result)


def union(*many: LumiRanges) -> LumiRanges:
    """Lumis that are in any of the given ranges."""
    by_run: dict[int, list[Interval]] = {}
    for ranges in many:
        for run, intervals in ranges.items():
            by_run.setdefault(run, []).extend(intervals)
    return {run: merged(sorted(by_run[run])) for run in sorted(by_run)}


def intersect(left: LumiRanges, right: LumiRanges) -> LumiRanges:
    """Lumis that are in both."""
    result: LumiRanges = {}
    for run in sorted(left.keys() & right.keys()):
        common = tuple(_common(left[run], right[run]))
        if common:
            result[run] = common
    return result


def _common(left: tuple[Interval, ...], right: tuple[Interval, ...]) -> Iterator[Interval]:
    """One file against a long certification list: its place is looked up, the list is not walked from its start."""
    few, many = (left, right) if len(left) < len(right) else (right, left)
    for few_first, few_last in few:
        at = max(bisect_left(many, (few_first + 1, -1)) - 1, 0)
        while at < len(many) and many[at][0] <= few_last:
            first, last = max(few_first, many[at][0]), min(few_last, many[at][1])
            if first <= last:
                yield first, last
            at += 1


def subtract(left: LumiRanges, right: LumiRanges) -> LumiRanges:
    """Lumis of ``left`` that are not in ``right``."""
    result: LumiRanges = {}
    for run in sorted(left):
        kept = tuple(_without(left[run], right[run])) if run in right else left[run]
        if kept:
            result[run] = kept
    return result


def _without(left: tuple[Interval, ...], right: tuple[Interval, ...]) -> Iterator[Interval]:
    at = 0
    for first, last in left:
        while at < len(right) and right[at][1] < first:
            at += 1
        cut = at
        while first <= last and cut < len(right) and right[cut][0] <= last:
            if first < right[cut][0]:
                yield first, right[cut][0] - 1
            first = right[cut][1] + 1
            cut += 1
        if first <= last:
            yield first, last


def restrict_runs(ranges: LumiRanges, *, whitelist: Container[int] | None, blacklist: Container[int]) -> LumiRanges:
    """Lumis of the runs in ``whitelist`` (None: all runs) that are not in ``blacklist``."""
    return {
        run: intervals for run, intervals in ranges.items() if (whitelist is None or run in whitelist) and run not in blacklist
    }


def count(ranges: LumiRanges) -> int:
    """Number of lumis."""
    return sum(last - first + 1 for intervals in ranges.values() for first, last in intervals)


def iterate(ranges: LumiRanges) -> Iterator[tuple[int, int, int]]:
    """The intervals as (run, first, last), ascending."""
    for run, intervals in ranges.items():
        for first, last in intervals:
            yield run, first, last


def to_json(ranges: LumiRanges) -> dict[str, list[list[int]]]:
    """CMS's JSON form: ``{"run": [[first, last], ...]}``."""
    return {str(run): [[first, last] for first, last in intervals] for run, intervals in ranges.items()}


def from_json(stored: Mapping[str, Iterable[Sequence[int]]]) -> LumiRanges:
    """The ranges of CMS's JSON form, whatever its order."""
    found = list(numbered(stored))
    if len(found) == 1:  # most files: no runs to sort
        ((run, intervals),) = found
        return {run: merged(sorted((first, last) for first, last in intervals))} if intervals else {}
    return from_intervals((run, first, last) for run, intervals in found for first, last in intervals)


#: A lumi with so many times its file's average of events is odd.
_ODD = 1.25


def odd(counts: Iterable[tuple[int, int, int | None]], events: int) -> tuple[tuple[int, int, int, int], ...]:
    """Of a file's lumis (run, lumi, events if they were counted) that an average does not describe, being without events or
    with many more: (run, first, last, events of each), ascending. ``events``: of the file.

    DBS keeps no count for a lumi of 0 events: where others of the file have one, none is 0.
    """
    ordered = sorted(counts, key=lambda each: each[:2])
    average, found = events / max(len(ordered), 1), list[tuple[int, int, int, int]]()
    if not any(count for _, _, count in ordered):
        return ()  # they were not counted, or there is nothing to count
    for run, lumi, known in ordered:
        count = known or 0
        if 0 < count <= average * _ODD:
            continue
        if found and (found[-1][0], found[-1][2] + 1, found[-1][3]) == (run, lumi, count):
            found[-1] = (run, found[-1][1], lumi, count)
        else:
            found.append((run, lumi, lumi, count))
    return tuple(found)


def round_half_even(dividend: int, divisor: int) -> int:
    """``dividend / divisor`` as the nearest whole number, halves to the even one. Both at least 0, the divisor above."""
    whole, rest = divmod(dividend, divisor)
    return whole + 1 if 2 * rest > divisor or (2 * rest == divisor and whole % 2 == 1) else whole


def round_to_lumis(events_per_job: int, events_per_lumi: int) -> int:
    """``events_per_job`` as a multiple of ``events_per_lumi``: the nearest, half to even, at least one lumi; 0: as it is.

    1250 with 300 gives 1200, 1180 with 300 also 1200 (more than asked), 100 with 300 gives 300.
    """
    if not events_per_lumi:
        return events_per_job
    return max(round_half_even(events_per_job, events_per_lumi), 1) * events_per_lumi
