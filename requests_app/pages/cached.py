"""What all readers of a page see alike and costs more than its rest: read or drawn at most once in ``CACHED_SECONDS``.

Samples and failures come no sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from requests_app.selectors.samples import chart
from wms2.runtime.cached import Cached
from wms2.web.time_range import TimeRange

T = TypeVar("T")
CACHED_SECONDS = 60.0
#: By what was asked for; of those of a hundred kilobytes a few.
_parts, _large_parts = Cached[Any](200), Cached[Any](30)


def cached(key: tuple[object, ...], make: Callable[[], T], *, is_large: bool = False) -> T:
    """The part of a page, made anew when it is older."""
    part: T = (_large_parts if is_large else _parts).get(key, CACHED_SECONDS, make)
    return part


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

    return cached(("chart", measure, range_.name, title, by, site, campaign), draw)
