"""What the requests' page is asked for: filters, order and place in the list, all of it in the address.

Filters and paging are those of ``GET /api/v1/requests``, so that a list means the same in both.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from rest_framework.request import Request as ApiRequest

from requests_app.api.filters import RequestFilters
from requests_app.models import HoldCode, Request, RequestStatus
from wms2.api.pagination import KeysetPagination
from wms2.api.problems import ProblemError

ORDERINGS = {
    "-created_at": "newest first",
    "created_at": "oldest first",
    "status_since": "longest in its status",
    "-status_since": "latest change",
    "-priority": "highest priority",
    "request_name": "name",
}
_FILTERS = ("status", "search", "campaign", "requestor", "hold_code", "urgent", "alerted", "priority_min")


#: What ``KeysetPagination`` wants to know of a view.
_VIEW: Any = SimpleNamespace(
    ordering=("-created_at",), ordering_fields=("created_at", "status_since", "priority", "request_name")
)


class BoardQuery:
    """One address of the page. After ``page``: ``errors`` by field, and the address of the next page."""

    statuses = RequestStatus
    hold_codes = HoldCode
    orderings = ORDERINGS

    def __init__(self, request: HttpRequest) -> None:
        self.given = request.GET
        self._request = ApiRequest(request)
        self.errors: dict[str, str] = {}
        self.older = ""

    @property
    def values(self) -> Mapping[str, str]:
        """What the form shows."""
        return {name: self.given.get(name, "") for name in (*_FILTERS, "ordering")}

    @property
    def filtered(self) -> bool:
        """Whether anything is asked for."""
        return any(name in self.given for name in _FILTERS)

    @property
    def behind(self) -> bool:
        """Whether this is not the first page."""
        return "cursor" in self.given

    def first(self) -> str:
        """Address of the first page of the same list."""
        return self._address()

    def of_status(self) -> list[tuple[RequestStatus, str]]:
        """Each status with the address of its list, other filters kept."""
        return [(status, self._address(status=status.value)) for status in RequestStatus]

    def of_any_status(self) -> str:
        """The list without a status."""
        return self._address(status="")

    def page(self, rows: QuerySet[Request], *, shown_above: Sequence[uuid.UUID]) -> list[Request]:
        """The rows to show; none when something asked for is wrong. Unfiltered, those shown above are not repeated."""
        found = rows if self.filtered else rows.exclude(pk__in=shown_above)
        if not RequestFilters.base_filters.keys().isdisjoint(self.given):
            filters = RequestFilters(self.given, queryset=found)
            if not filters.is_valid():
                self.errors = {name: " ".join(str(e) for e in errors) for name, errors in filters.form.errors.items()}
                return []
            found = filters.qs
        pages = KeysetPagination()
        try:
            shown = pages.paginate_queryset(found, self._request, _VIEW)
        except ProblemError as error:
            self.errors = {error.problem.field or "": error.problem.detail}
            return []
        link = pages.get_paginated_response(None).data["next"]
        self.older = f"?{link.partition('?')[2]}" if link else ""
        return shown

    def _address(self, **changes: str) -> str:
        """Of the first page, with these changes; an empty one takes a filter away."""
        query = self.given.copy()
        for name, value in {"cursor": "", **changes}.items():
            query.pop(name, None)
            if value:
                query[name] = value
        return f"?{query.urlencode()}" if query else "."
