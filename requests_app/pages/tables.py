"""Lists as files, for those who go on with them elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpResponse, JsonResponse

from wms2.api.csv_lists import csv_table


def _json_table(name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> JsonResponse:
    """An object with the list under its name."""
    return JsonResponse({name: [dict(zip(header, row, strict=True)) for row in rows]})


#: What an address asks for with ``as`` -> how a list is answered: its name, its columns, its rows.
FILES: Mapping[str, Callable[[str, Sequence[str], Iterable[Sequence[Any]]], HttpResponse]] = {
    "csv": csv_table,
    "json": _json_table,
}
