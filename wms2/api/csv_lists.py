"""Lists as CSV, for spreadsheets: the columns of the JSON, sent while they are read; and short tables, whole."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from wms2.api.pagination import FORMATS
from wms2.api.problems import bad_field

#: How a formula begins, which a spreadsheet would compute; also in full width.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_TYPE = "text/csv; charset=utf-8"


class _Line:
    """What ``csv`` writes to."""

    def write(self, text: str) -> str:
        """The line itself."""
        return text


def csv_asked(request: Request) -> bool:
    """Whether an address asks for it. Raises ProblemError: for something else."""
    asked = request.query_params.get("format", FORMATS[0])
    if asked not in FORMATS:
        raise bad_field("format", f"must be one of: {', '.join(FORMATS)}")
    return asked == "csv"


def csv_answer(rows: Iterable[dict[str, Any]], names: Sequence[str], file_name: str) -> StreamingHttpResponse:
    """A head of these names, then a line for each row."""
    lines = _lines(names, ([row[name] for name in names] for row in rows))
    return StreamingHttpResponse(lines, content_type=_TYPE, headers=_headers(file_name))


def csv_table(file_name: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """The same of a table that has an end, in one piece."""
    return HttpResponse(_lines(names, rows), content_type=_TYPE, headers=_headers(file_name))


def _headers(file_name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{file_name}.csv"'}


def _lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    writer = csv.writer(_Line())
    for row in chain([names], rows):
        yield writer.writerow([_cell(value) for value in row])  # what write() returned


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list):
        return json.dumps(value, default=str)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
