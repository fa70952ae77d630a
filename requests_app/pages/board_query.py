"""What the list of requests is asked for: filters, order and place in the list, all of it in the address.

Filters and paging are those of ``GET /api/v1/requests``, so that a list means the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.urls import reverse
from rest_framework.request import Request as ApiRequest

from requests_app.api.filters import RequestFilters
from requests_app.models import HoldCode, Request, RequestStatus
from requests_app.selectors.requests import SORTED_BY
from wms2.api.pagination import KeysetPagination
from wms2.api.problems import ProblemError

#: What the form asks for; the others come from links and saved views.
_FIELDS = ("status", "search", "campaign", "requestor", "hold_code")
#: Of what a browser and a person ask; ``needs``, ``failing``, ``mine`` among them.
FILTERS = frozenset(RequestFilters.base_filters)
#: What an address of the list may have.
KNOWN = FILTERS | {"ordering", "cursor"}
#: What stays in an address when it is kept.
SAVED = FILTERS | {"ordering"}
#: Columns that sort the list -> what each says, and the order that a first click brings.
COLUMNS = {
    "request_name": ("Request", "request_name"), "status_since": ("Status", "status_since"),
    "priority": ("Priority", "-priority"), "campaign": ("Campaign", "campaign"), "requestor": ("Requestor", "requestor"),
    "created_at": ("Made", "-created_at"),
}  # fmt: skip
#: Those that need a person first, then those that fail, longest in their status first.
DEFAULT = ("attention", "status_since")


class Header(NamedTuple):
    """The head of a column. ``order``: as ``aria-sort`` says it; ``address``: of the list sorted by it, or the other way."""

    label: str
    address: str
    order: str
    number: bool


class BoardQuery:
    """One address of the page. After ``page``: ``errors`` by field, and the address of the next page."""

    hold_codes = HoldCode

    def __init__(self, request: HttpRequest) -> None:
        self.given = request.GET
        self._request = ApiRequest(request)
        self._request.user = request.user
        self.errors: dict[str, str] = {}
        self.older = ""

    @property
    def values(self) -> Mapping[str, str]:
        """What the form shows."""
        return {name: self.given.get(name, "") for name in (*_FIELDS, "ordering", "needs", "failing", "mine")}

    @property
    def others(self) -> list[tuple[str, Any]]:
        """What the form keeps without showing it."""
        to_save = (SAVED - set(_FIELDS)) | {"status"}
        return [(name, self.given[name]) for name in self.given if name in to_save]

    @property
    def filtered(self) -> bool:
        """Whether anything is asked for."""
        return not FILTERS.isdisjoint(self.given)

    @property
    def behind(self) -> bool:
        """Whether this is not the first page."""
        return "cursor" in self.given

    @property
    def to_save(self) -> str:
        """The address behind its question mark, as a view keeps it."""
        return query_to_save(self.given)

    @property
    def filters(self) -> list[tuple[str, Any]]:
        """What narrows the list, for a form about all that is found."""
        return [(name, self.given[name]) for name in self.given if name in FILTERS]

    @property
    def rows_address(self) -> str:
        """The same list over REST."""
        return self._rows_address()

    @property
    def csv_address(self) -> str:
        """The same list as a table for other programs."""
        return self._rows_address(format="csv")

    def _rows_address(self, **more: str) -> str:
        query = {name: value for name, value in self.given.items() if name in SAVED} | more
        return reverse("request-list", query=query or None)

    def headers(self) -> list[Header]:
        """The columns that sort the list."""
        now = self.given.get("ordering", "")
        found = []
        for name, (label, first) in COLUMNS.items():
            other = name if first.startswith("-") else f"-{name}"
            order = "" if now.lstrip("-") != name else "descending" if now.startswith("-") else "ascending"
            address = self._address(ordering=other if now == first else first)
            found.append(Header(label, address, order, number=name == "priority"))
        return found

    def first(self) -> str:
        """Address of the first page of the same list."""
        return self._address()

    def of_status(self) -> list[tuple[RequestStatus, str]]:
        """Each status with the address of its list, other filters kept."""
        return [(status, self._address(status=status.value)) for status in RequestStatus]

    def of_any_status(self) -> str:
        """The list without a status."""
        return self._address(status="", needs="", failing="")

    def rows(self, rows: QuerySet[Request]) -> QuerySet[Request]:
        """Those that the filters find; none, and ``errors``, when one is wrong."""
        if not self.filtered:
            return rows
        filters = RequestFilters(self.given, queryset=rows, request=self._request)
        if not filters.is_valid():
            self.errors = {name: " ".join(str(e) for e in errors) for name, errors in filters.form.errors.items()}
            return rows.none()
        found: QuerySet[Request] = filters.qs
        return found

    def page(self, rows: QuerySet[Request]) -> list[Request]:
        """The rows to show; none when something asked for is wrong."""
        found = self.rows(rows)
        if self.errors:
            return []
        try:
            shown, self.older = keyset_page(found, self._request, DEFAULT, SORTED_BY)
        except ProblemError as error:
            self.errors = {error.problem.field or "": error.problem.detail}
            return []
        return shown

    def _address(self, **changes: str) -> str:
        """Of the first page, with these changes; an empty one takes a filter away."""
        query = self.given.copy()
        for name, value in {"cursor": "", **changes}.items():
            query.pop(name, None)
            if value:
                query[name] = value
        return f"?{query.urlencode()}" if query else "."


def keyset_page(
    rows: QuerySet[Any], request: ApiRequest, ordering: Sequence[str], ordering_fields: Sequence[str]
) -> tuple[list[Any], str]:
    """A page of rows and the address of the next one, as over REST. Raises ProblemError: the address asks for something else."""
    pages, view = KeysetPagination(), SimpleNamespace(ordering=ordering, ordering_fields=ordering_fields)
    shown = pages.paginate_queryset(rows, request, cast(Any, view))
    link = pages.get_paginated_response(None).data["next"]
    return shown, f"?{link.partition('?')[2]}" if link else ""


def query_to_save(given: QueryDict) -> str:
    """Filters and order of an address, each once, in one order: two addresses of the same list are the same."""
    found = QueryDict(mutable=True)
    for name in sorted(SAVED):
        if value := given.get(name, ""):
            found[name] = value
    return found.urlencode()
