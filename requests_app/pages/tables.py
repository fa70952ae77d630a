"""Lists as files, for those who go on with them elsewhere."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence

from django.http import HttpResponse, JsonResponse

#: With one of these at its begin a program of tables takes a cell for a formula.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def csv_answer(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    """A list as CSV, to be kept under a name; moments as ISO 8601."""
    answer = HttpResponse(content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    writer = csv.writer(answer)
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return answer


def json_answer(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> JsonResponse:
    """The same as JSON: an object with the list under its name."""
    return JsonResponse({name: [dict(zip(header, row, strict=True)) for row in rows]})


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULAS) else text
