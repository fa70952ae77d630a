"""What all readers of a page see alike and costs more than its rest: drawn up at most once in ``CACHED_SECONDS``.

Samples and failures come no sooner.
"""

from __future__ import annotations

from collections.abc import Callable

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from requests_app.selectors.samples import chart
from wms2.runtime.cached import Cached
from wms2.web.time_range import TimeRange

CACHED_SECONDS = 60.0
#: By what was asked for.
_texts = Cached[SafeString](100)


def cached(key: tuple[str, ...], draw: Callable[[], SafeString]) -> SafeString:
    """The text, drawn anew when it is older."""
    return _texts.get(key, CACHED_SECONDS, draw)


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
