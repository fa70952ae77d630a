"""What all readers of a page see alike and costs more than its rest: drawn up at most once in ``KEPT_SECONDS``.

Samples and failures come no sooner. A process keeps the latest.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from requests_app.selectors.samples import chart
from wms2.web.time_range import TimeRange

KEPT_SECONDS, MOST_KEPT = 60.0, 100
#: What was asked for -> the text, and until when it is shown.
_kept: dict[tuple[str, ...], tuple[SafeString, float]] = {}


def kept(key: tuple[str, ...], draw: Callable[[], SafeString]) -> SafeString:
    """The text, drawn anew when it is older."""
    text, until = _kept.get(key, (SafeString(), 0.0))
    if time.monotonic() >= until:
        text = draw()
        _kept.pop(key, None)
        _kept[key] = text, time.monotonic() + KEPT_SECONDS
        for old in list(_kept)[:-MOST_KEPT]:
            _kept.pop(old, None)
    return text


def chart_drawn(
    measure: str, range_: TimeRange, *, title: str = "", by: str = "", site: str = "", campaign: str = ""
) -> SafeString:
    """A chart of a series up to now, with its table. One statement, or none.

    Raises:
        UnknownSeries: it is not sampled like that.
    """

    def draw() -> SafeString:
        found = chart(measure, range_, title=title, by=by, site=site, campaign=campaign)
        return render_to_string("parts/chart.html", {"chart": found})

    return kept(("chart", measure, range_.name, title, by, site, campaign), draw)
