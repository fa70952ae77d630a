"""CMS's Site Status Board: the production status of sites, as metric ``sts15min`` has it (docs/design/services.md)."""

from __future__ import annotations

from pydantic import TypeAdapter

from wms2.adapters import wire
from wms2.adapters.http import HttpService
from wms2.errors import ServiceRejected

SERVICE = "ssb"
_ROWS = TypeAdapter(list[wire.SsbRow])


class Ssb:
    """``http`` has the whole address as its base. An empty answer is refused."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def production_statuses(self) -> dict[str, str]:
        """By site's name."""
        rows = self._http.get_json(_ROWS, "", operation="production_statuses")
        if not rows:
            raise ServiceRejected(SERVICE, "production_statuses", "the list is empty; not taken for the truth")
        return {row.site: row.status for row in rows}
