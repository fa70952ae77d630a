"""What a chart shows: the same numbers for the drawing, for its table, and for CSV and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple


class Line(NamedTuple):
    """One category over time; None: nothing is known of that moment."""

    label: str
    values: Sequence[float | None]


class Mark(NamedTuple):
    """Something that happened: a round began, a stop."""

    at: datetime
    label: str


class Chart(NamedTuple):
    """Lines over common moments.

    Attributes:
        name: unique on its page; letters, digits and hyphens.
        unit: of all values, e.g. ``events per hour``.
        times: rising; as many as each line has values.
        address: of the same numbers as JSON; ``format=csv`` added gives CSV.
    """

    name: str
    title: str
    unit: str
    times: Sequence[datetime]
    lines: Sequence[Line]
    address: str
    marks: Sequence[Mark] = ()
