"""WMStats: which directories of unmerged files CMS's MSUnmerged leaves alone (docs/coexistence.md). Nothing else is asked."""

from __future__ import annotations

from wms2.adapters.http import HttpService
from wms2.adapters.wire import Wire
from wms2.errors import ServiceRejected

SERVICE = "wmstats"


class _Answer(Wire):
    result: list[str]


class WMStats:
    """One WMStats server; ``http`` has ``…/wmstatsserver/data`` as its base."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def protected_lfns(self) -> frozenset[str]:
        """Directories of all requests that ReqMgr2 has as active. Raises ServiceRejected: none, as MSUnmerged has it."""
        answer = self._http.get_json(_Answer, "/protectedlfns", operation="protected_lfns")
        if not answer.result:
            raise ServiceRejected(SERVICE, "protected_lfns", "the list is empty; not taken for the truth")
        return frozenset(answer.result)
