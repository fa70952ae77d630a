"""WMStats: which directories of unmerged files CMS's MSUnmerged leaves alone (docs/coexistence.md). Nothing else is asked."""

from __future__ import annotations

from pydantic import TypeAdapter

from wms2.adapters import wire
from wms2.adapters.http import HttpService

SERVICE = "wmstats"
_ANSWER = TypeAdapter(wire.ReqMgr2Answer)


class WMStats:
    """One WMStats server; ``http`` has ``…/wmstatsserver/data`` as its base."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def protected_lfns(self) -> frozenset[str]:
        """Directories of all requests that ReqMgr2 has as active."""
        answer = self._http.get_json(_ANSWER, "/protectedlfns", operation="protected_lfns")
        return frozenset(map(str, answer.result))
