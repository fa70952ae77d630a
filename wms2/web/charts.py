"""What a chart shows: the same numbers for the drawing, for its table, and for CSV and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe


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

    @property
    def csv_address(self) -> str:
        """The address with ``format=csv``."""
        return f"{self.address}{'&' if '?' in self.address else '?'}format=csv"


def chart_table(chart: Chart) -> SafeString:
    """The numbers of a chart as a table, which its drawing is made from (``charts.js``). A tag: hundreds of lines in a template
    would cost ten times as much."""
    head = format_html_join("", '<th scope="col" class="number">{}</th>', ((line.label,) for line in chart.lines))
    rows = zip(chart.times, zip(*(line.values for line in chart.lines), strict=True), strict=True)
    body = mark_safe("\n".join(_row(at, values) for at, values in rows))  # noqa: S308 moments and numbers alone
    return format_html(
        '<table class="small"><thead><tr><th scope="col">UTC</th>{}</tr></thead>\n<tbody>{}</tbody></table>', head, body
    )


def _row(at: datetime, values: Iterable[float | None]) -> str:
    """Of nothing that needs escaping."""
    # with commas; nothing where nothing is known
    texts = ("" if value is None else f"{int(value):,}" if value == int(value) else f"{value:,}" for value in values)
    cells = "".join([f'<td class="number">{text}</td>' for text in texts])
    return f'<tr><th scope="row"><time datetime="{at.isoformat()}">{at:%Y-%m-%d %H:%M}</time></th>{cells}</tr>'
