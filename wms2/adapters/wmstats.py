"""WMStats: which directories of unmerged files CMS's MSUnmerged leaves alone (docs/coexistence.md). Nothing else is asked."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import TypeAdapter

from wms2 import clock
from wms2.adapters import wire
from wms2.adapters.http import HttpService

SERVICE = "wmstats"
#: An answer is as good as new for this long; MSUnmerged itself runs every few hours.
KEPT = timedelta(minutes=5)
_ANSWER = TypeAdapter(wire.ReqMgr2Answer)


class WMStats:
    """One WMStats server; ``http`` has ``…/wmstatsserver/data`` as its base."""

    def __init__(self, http: HttpService) -> None:
        self._http = http
        self._kept: tuple[datetime, frozenset[str]] | None = None

    def protected_lfns(self) -> frozenset[str]:
        """Directories of all requests that ReqMgr2 has as active."""
        if self._kept is None or self._kept[0] < clock.now() - KEPT:
            answer = self._http.get_json(_ANSWER, "/protectedlfns", operation="protected_lfns")
            self._kept = clock.now(), frozenset(map(str, answer.result))
        return self._kept[1]
