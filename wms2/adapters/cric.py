"""CRIC: names of sites and which processing sites read which storage (docs/design/services.md, CRIC). Slots are the pool's."""

from __future__ import annotations

import re
from collections.abc import Callable

from wms2.adapters import wire
from wms2.adapters.http import HttpService
from wms2.adapters.types import SiteRow
from wms2.errors import ServiceRejected

SERVICE = "cric"
#: The type of the names of processing sites.
PSN = "psn"
#: Names of sites and storage stand in submit files, in lists with commas, and in columns of so many characters.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Cric:
    """One CRIC instance. An empty answer is refused: taken for the truth it would disable every site."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def site_names(self) -> wire.Rows[SiteRow]:
        """All names of all sites."""
        return self._table("site-names", ("site_name", "alias", "type"), "site_names", _site)

    def processing_pairs(self) -> wire.Rows[tuple[str, str]]:
        """``(rse, psn)``: the storage (formerly PhEDEx node) that each processing site reads; many-to-many. Of a row that cannot
        be read its psn."""
        return self._table("data-processing", ("phedex_name", "psn_name"), "processing_pairs", _pair)

    def _table(self, preset: str, columns: tuple[str, ...], operation: str, made: Callable[..., wire.T]) -> wire.Rows[wire.T]:
        """A row that cannot be read comes as what its last column has, None where that is not known."""
        # "json" is a flag, it has no value.
        path = f"/api/cms/site/query/?json&preset={preset}&rcsite_state=ANY"
        table = self._http.get_json(wire.CricTable, path, operation=operation)
        missing = [column for column in columns if column not in table.desc.columns]
        if missing:
            raise ServiceRejected(SERVICE, operation, f"preset {preset} has no column {', '.join(missing)}: {table.desc.columns}")
        if not table.result:
            raise ServiceRejected(SERVICE, operation, f"preset {preset} is empty; not taken for the truth")
        places = [table.desc.columns.index(column) for column in columns]
        width = len(table.desc.columns)

        def read(row: object) -> wire.T:
            values = [row[place] for place in places] if isinstance(row, list) and len(row) == width else []
            if not values or not all(isinstance(value, str) for value in values):
                raise ValueError(f"{str(row)[:200]} is no row of texts for {', '.join(columns)}")
            return made(*values)

        rows = wire.readable(table.result, read, service=SERVICE, operation=operation)
        last = [row[places[-1]] if isinstance(row, list) and len(row) == width else None for row in rows.unread]
        return rows._replace(unread=last)


def _site(site_name: str, alias: str, kind: str) -> SiteRow:
    return SiteRow(site_name, _name(alias) if kind == PSN else alias, kind)


def _pair(rse: str, psn: str) -> tuple[str, str]:
    return _name(rse), _name(psn)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name of a site or of a storage")
    return text
