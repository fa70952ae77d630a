"""Base classes of the views: which query parameters are known, and what a page of rows needs beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from django.http.response import HttpResponseBase
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from wms2.api.csv_lists import csv_answer, csv_asked
from wms2.api.pagination import MAX_PAGE_SIZE, MOST_CSV, KeysetPagination, ordering_of
from wms2.api.preconditions import HEADER as IF_MATCH
from wms2.api.preconditions import if_match, require_version
from wms2.api.problems import bad_field
from wms2.api.shown import columns_of
from wms2.web import idempotency


def query_and_body(request: Request) -> Any:
    """What a DELETE is given, its query parameters and its JSON body together: none of it may be passed over. Raises
    ProblemError: one name stands in both, with two values."""
    query, body = request.query_params.dict(), request.data
    if not isinstance(body, Mapping):
        return body
    for name in sorted(query.keys() & body.keys()):
        if query[name] != body[name]:
            raise bad_field(name, "stands in the query string and, otherwise, in the body; give it once")
    return {**query, **body}


#: Without metadata OPTIONS is answered 405: `Allow` must not promise it.
METHODS = [name for name in APIView.http_method_names if name != "options"]


class KnownQueryMixin(APIView):
    """Refuses unknown, empty, repeated parameters and those with NUL: a mistyped filter must not answer with everything."""

    query_params: ClassVar[frozenset[str]] = frozenset()
    #: Methods (of a view set: actions) that answer with an ``ETag`` and do what ``If-Match`` demands; others refuse the header.
    versioned: ClassVar[frozenset[str]] = frozenset()
    #: Those that may ask services, so that no transaction may be open around them.
    outside: ClassVar[frozenset[str]] = frozenset()
    http_method_names = METHODS

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Sign-in and permissions first, then the query string."""
        super().initial(request, *args, **kwargs)
        if not hasattr(self, str(request.method).lower()):
            return  # 405 comes next
        # Where no version is kept, passing over the demand would do what the client wants prevented.
        if IF_MATCH in request.headers and not self.is_versioned(str(request.method)):
            raise bad_field(IF_MATCH, "this address has no version to compare; leave it out", code="precondition_unsupported")
        key = idempotency.key_of(request) if request.method not in SAFE_METHODS else None
        known = self.known_query_params()
        for name, values in sorted(request.query_params.lists()):
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise bad_field(name[:100], f"unknown query parameter; known here: {listed}", code="unknown_parameter")
            if values != [values[0]] or not values[0]:
                raise bad_field(name, "give it once and with a value, or leave it out")
            if "\0" in values[0]:  # PostgreSQL takes it in no text
                raise bad_field(name, "null characters are not allowed")
        if key is not None:
            method = str(request.method).lower()
            outside = self._is_one_of(self.outside, method)
            setattr(self, method, partial(idempotency.once, self, key, getattr(self, method), outside))

    def is_versioned(self, method: str) -> bool:
        """Whether the method takes ``If-Match``."""
        return self._is_one_of(self.versioned, method)

    def _is_one_of(self, methods: frozenset[str], method: str) -> bool:
        return (getattr(self, "action", None) or method.lower()) in methods

    def versioned_answer(self, request: Request, data: Any, etag: str) -> Response:
        """What is there now, for those who want this version of it or any."""
        require_version(if_match(request), etag)
        return Response(data, headers={"ETag": etag})

    def known_query_params(self) -> frozenset[str]:
        """Those of the method being served."""
        return self.query_params


class ApiView(KnownQueryMixin, GenericAPIView):
    """A view of one thing that is no list of rows."""

    pagination_class = None
    filter_backends = ()


class RowsViewSet(KnownQueryMixin, GenericViewSet):
    """List and look at rows of one model. Sub-classes name queryset, serializers, filters and orderings.

    A list's fields are columns, or computed of one (``wms2.api.shown``). ``ordering`` and ``ordering_fields`` as in
    :class:`wms2.api.pagination.KeysetPagination`.
    """

    pagination_class = KeysetPagination
    ordering: ClassVar[tuple[str, ...]]
    ordering_fields: ClassVar[tuple[str, ...]]
    list_serializer_class: ClassVar[Any] = None
    filterset_class: ClassVar[Any] = None

    def known_query_params(self) -> frozenset[str]:
        """Filters, ordering and paging for the list; nothing else anywhere."""
        if getattr(self, "action", None) != "list":
            return super().known_query_params()
        return KeysetPagination.params | frozenset(self.filterset_class.base_filters if self.filterset_class else ())

    def filter_queryset(self, queryset: Any) -> Any:
        """Filters are the list's; a set of them is not built for none."""
        filters = self.filterset_class
        asked = self.action == "list" and filters and not filters.base_filters.keys().isdisjoint(self.request.query_params)
        return super().filter_queryset(queryset) if asked else queryset

    def get_serializer_class(self) -> Any:
        """The list may show less than the single row."""
        return self.list_serializer_class or self.serializer_class if self.action == "list" else self.serializer_class

    def _lines(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        columns = columns_of(self.get_serializer_class())
        lines = [{name: row[column] for name, column in columns.items()} for row in rows]
        self.compute(lines)
        return lines

    def _portions(self, rows: Any) -> Iterator[dict[str, Any]]:
        found = rows.iterator(MAX_PAGE_SIZE)
        while portion := [*islice(found, MAX_PAGE_SIZE)]:
            yield from self._lines(portion)

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """Replace what computed fields are computed from (``computed_from`` of the serializer), for all lines together."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """One page."""
        columns = columns_of(self.get_serializer_class())
        ordering = ordering_of(request, self)
        rows = self.filter_queryset(self.get_queryset()).values(*{*columns.values(), *(name.lstrip("-") for name in ordering)})
        if csv_asked(request):
            return csv_answer(self._portions(rows.order_by(*ordering)[:MOST_CSV]), tuple(columns), self.basename or "rows")
        return self.get_paginated_response(self._lines(self.paginate_queryset(rows) or ()))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One row."""
        return Response(self.get_serializer_class()(self.get_object(), context=self.get_serializer_context()).data)
