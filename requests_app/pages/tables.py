"""Lists of pages as files, for those who go on with them elsewhere: ``format`` in the page's address, as over REST."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse

from wms2.api.csv_lists import csv_table
from wms2.models import AuditEntry

#: Rows of one file.
MOST = 10_000


class Table(NamedTuple):
    """A list with its columns."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]


def _json_table(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> JsonResponse:
    """An object with the list under its name."""
    return JsonResponse({name: [dict(zip(columns, row, strict=True)) for row in rows]})


_FORMATS: Mapping[str, Callable[[str, Sequence[str], Iterable[Sequence[Any]]], HttpResponse]] = {
    "csv": csv_table,
    "json": _json_table,
}


#: What files say of what was done.
AUDIT = ("at", "actor", "action", "target_type", "target", "outcome", "reason")


def audit_of(target_type: str, name: str) -> QuerySet[AuditEntry]:
    """What was done to one thing, the newest first."""
    return AuditEntry.objects.filter(target_type=target_type, target=name).order_by("-id")


def table_of(rows: QuerySet[Any], *columns: str) -> Callable[[], Table]:
    """Columns of rows, as far as one file has room, to be read when they are asked for."""
    return lambda: Table(columns, rows[:MOST].values_list(*columns))


def file_asked(request: HttpRequest, **lists: Callable[[], Table]) -> HttpResponse | None:
    """The list of a page that an address asks for with ``format`` and ``list`` (without it the first), whole; None: it asks for
    the page. Only that list is read. Raises Http404: there is no such list or format."""
    given, name = request.GET.get("format"), request.GET.get("list") or next(iter(lists))
    if not given:
        return None
    if given not in _FORMATS or name not in lists:
        raise Http404(f"there are the formats {' and '.join(_FORMATS)} of the list {' or '.join(lists)}")
    return _FORMATS[given](name, *lists[name]())
