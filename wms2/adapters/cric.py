"""CRIC: names of sites and which processing sites read which storage (docs/design/services.md, CRIC). Slots are the pool's."""

from __future__ import annotations

from pydantic import TypeAdapter

from wms2.adapters import wire
from wms2.adapters.http import HttpService
from wms2.adapters.types import ProcessingPair, SiteRow
from wms2.errors import ServiceRejected, ServiceUnavailable

SERVICE = "cric"
_TABLE = TypeAdapter(wire.CricTable)


class Cric:
    """One CRIC instance. An empty answer is refused: taken for the truth it would disable every site."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def site_names(self) -> list[SiteRow]:
        """All names of all sites."""
        rows = self._table("site-names", ("site_name", "alias", "type"), "site_names")
        return [SiteRow(*row) for row in rows]

    def processing_pairs(self) -> list[ProcessingPair]:
        """``(rse, psn)``: the storage that each processing site reads; many-to-many."""
        rows = self._table("data-processing", ("phedex_name", "psn_name"), "processing_pairs")
        return [ProcessingPair(*row) for row in rows]

    def _table(self, preset: str, columns: tuple[str, ...], operation: str) -> list[tuple[str, ...]]:
        # "json" is a flag, it has no value.
        path = f"/api/cms/site/query/?json&preset={preset}&rcsite_state=ANY"
        table = self._http.get_json(_TABLE, path, operation=operation)
        missing = [column for column in columns if column not in table.desc.columns]
        if missing:
            raise ServiceRejected(SERVICE, operation, f"preset {preset} has no column {', '.join(missing)}: {table.desc.columns}")
        if not table.result:
            raise ServiceRejected(SERVICE, operation, f"preset {preset} is empty; not taken for the truth")
        places = [table.desc.columns.index(column) for column in columns]
        return [self._row(row, places, len(table.desc.columns), operation) for row in table.result]

    @staticmethod
    def _row(row: list[object], places: list[int], width: int, operation: str) -> tuple[str, ...]:
        values = tuple(row[place] for place in places) if len(row) == width else ()
        if not values or not all(isinstance(value, str) for value in values):
            raise ServiceUnavailable(SERVICE, operation, f"row does not fit its {width} columns: {str(row)[:200]}")
        return tuple(str(value) for value in values)
