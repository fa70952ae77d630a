"""Histograms in bins of 2 %, as JSON: bin -> values in it. Small for any number of values, and added up bin by bin.

Pure. A bin is a power of 1.02, so a value is known within 1 %; what is not above 0 has a bin of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import log, sqrt

_RATIO = 1.02
#: Of what is 0 or below; sorts before the others, which are cut at 1e-12 and 1e18.
_ZERO = -9999
_LOWEST, _HIGHEST = 1e-12, 1e18

Histogram = Mapping[str, int]


def counted(values: Iterable[float]) -> dict[str, int]:
    """The histogram of some values."""
    bins = (_ZERO if value <= 0 else int(log(min(max(value, _LOWEST), _HIGHEST), _RATIO) // 1) for value in values)
    return dict(Counter(map(str, bins)))


def added(*histograms: Histogram) -> dict[str, int]:
    """What all of them hold together."""
    total: Counter[str] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def quantile(histogram: Histogram, share: float) -> float | None:
    """The value that ``share`` of them do not exceed, within 1 %; None of none."""
    most = sum(histogram.values()) * share
    seen = 0
    for number, many in sorted((int(name), many) for name, many in histogram.items()):
        seen += many
        if seen >= most:
            return 0.0 if number == _ZERO else _RATIO**number * sqrt(_RATIO)
    return None
