"""CMS's Site Status Board: the production status of sites, as metric ``sts15min`` has it (docs/design/services.md)."""

from __future__ import annotations

from typing import Any

from wms2.adapters import wire
from wms2.adapters.http import HttpService
from wms2.errors import ServiceRejected

SERVICE = "ssb"


class Ssb:
    """``http`` has the whole address as its base. An empty answer is refused."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def production_statuses(self) -> wire.Rows[wire.SsbRow]:
        """A row for each site."""
        rows = self._http.get_json(list[Any], "", operation="production_statuses")
        if not rows:
            raise ServiceRejected(SERVICE, "production_statuses", "the list is empty; not taken for the truth")
        return wire.readable(rows, wire.SsbRow.model_validate, service=SERVICE, operation="production_statuses")
