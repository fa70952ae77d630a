"""Paging that never counts a big table.

``KeysetPagination`` walks an ordering: the cursor holds the last row's values, the next page starts behind them, so page 2,000
costs what page 1 costs and rows that come or go meanwhile shift nothing. ``NumberedPages`` cuts what is short or in memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core import signing
from django.db.models import DateTimeField, Model, Q
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param
from rest_framework.views import APIView

from wms2.api.problems import bad_field

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 500
_SALT = "wms2.api.cursor"
#: How a list is answered, and what they mean.
FORMATS, MOST_CSV = ("json", "csv"), 20_000
FORMATS_MEAN = f"csv: all rows of the list at once, without pages, {MOST_CSV:,} at most"
#: Far more pages than anything numbered has.
MAX_PAGE = 1_000_000


def whole_number(request: Request, name: str, default: int, most: int) -> int:
    """A query parameter between 1 and ``most``. Raises ProblemError: it is something else."""
    raw = request.query_params.get(name)
    if raw is None:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9 or not 1 <= int(raw) <= most:
        raise bad_field(name, f"must be a whole number from 1 to {most}")
    return int(raw)


class KeysetPagination(BasePagination):
    """``?ordering=``, ``?page_size=``, ``?cursor=``. A view names ``ordering`` (default) and ``ordering_fields`` (allowed).

    Every ordering ends in the primary key, so that it is total. Fields must not be null.
    """

    params = frozenset({"ordering", "page_size", "cursor", "format"})

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> list[Any]:
        """The rows of one page, one query; of model instances, or of dicts that have what they are ordered by."""
        self._request = request
        self._ordering = ordering_of(request, view)
        size = whole_number(request, "page_size", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        raw = request.query_params.get("cursor")
        if raw is not None:
            queryset = queryset.filter(_behind(queryset.model, self._ordering, self._read(raw, queryset.model)))
        self._list = queryset.model._meta.label_lower
        rows = list(queryset.order_by(*self._ordering)[: size + 1])
        self._more = len(rows) > size
        self._rows = rows[:size]
        return self._rows

    def get_paginated_response(self, data: Any) -> Response:
        """``next`` is null at the end."""
        return Response({"next": self._next(), "results": data})

    def get_paginated_response_schema(self, schema: Any) -> dict[str, Any]:
        """For OpenAPI."""
        return {
            "type": "object",
            "required": ["next", "results"],
            "properties": {
                "next": {"type": "string", "format": "uri", "nullable": True, "description": "the next page; null at the end"},
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """For OpenAPI."""
        fields = ordering_choices(view)
        return [
            _parameter("page_size", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": DEFAULT_PAGE_SIZE}),
            _parameter(
                "cursor", {"type": "string", "minLength": 1}, "from the former page's next; holds its place and its ordering"
            ),
            _parameter("ordering", {"type": "string", "enum": fields}, f"default {','.join(view.ordering)}"),
            _parameter("format", {"type": "string", "enum": list(FORMATS), "default": FORMATS[0]}, FORMATS_MEAN),
        ]

    def _next(self) -> str | None:
        if not self._more:
            return None
        last = self._rows[-1]
        names = [name.lstrip("-") for name in self._ordering]
        values = [_plain(last[name] if isinstance(last, dict) else getattr(last, name)) for name in names]
        cursor = signing.dumps([self._list, self._ordering, values], salt=_SALT, compress=True)
        return replace_query_param(self._request.build_absolute_uri(), "cursor", cursor)

    def _read(self, raw: str, model: type[Model]) -> list[Any]:
        again = f"start again without it: {remove_query_param(self._request.get_full_path(), 'cursor')}"
        try:
            of, ordering, values = signing.loads(raw, salt=_SALT)
        except (signing.BadSignature, ValueError) as error:
            raise bad_field("cursor", "is not one that this service gave out", hint=again) from error
        if of != model._meta.label_lower:
            raise bad_field("cursor", "belongs to another list", hint=again)
        if ordering != self._ordering:
            raise bad_field("cursor", f"belongs to ordering={ordering[0]}", hint=again)
        return list(values)


def ordering_choices(view: Any) -> list[str]:
    """What ``?ordering=`` may be."""
    return [sign + name for name in view.ordering_fields for sign in ("", "-")]


def ordering_of(request: Request, view: Any) -> list[str]:
    """The ordering asked for or the view's own, made total by the key. Raises ProblemError: not one of the view's fields."""
    raw = request.query_params.get("ordering")
    names = list(view.ordering) if raw is None else [raw]
    if raw is not None and raw not in ordering_choices(view):
        raise bad_field("ordering", f"must be one of: {', '.join(ordering_choices(view))}")
    return [*names, "pk"] if names[-1].lstrip("-") != "pk" else names


def _behind(model: type[Model], ordering: Sequence[str], values: Sequence[Any]) -> Q:
    """Rows after the one with these values: a later first field, or the same and a later second, and so on."""
    parsed = [_typed(model, name.lstrip("-"), value) for name, value in zip(ordering, values, strict=True)]
    found, same = Q(), Q()
    for name, value in zip(ordering, parsed, strict=True):
        field, compare = name.lstrip("-"), "lt" if name.startswith("-") else "gt"
        found |= same & Q(**{f"{field}__{compare}": value})
        same &= Q(**{field: value})
    first, value = ordering[0].lstrip("-"), parsed[0]
    # says nothing new, but lets PostgreSQL begin in the index at the right place
    return found & Q(**{f"{first}__{'lte' if ordering[0].startswith('-') else 'gte'}": value})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else value


def _typed(model: type[Model], name: str, value: Any) -> Any:
    field = model._meta.pk if name == "pk" else model._meta.get_field(name)
    return parse_datetime(value) if isinstance(field, DateTimeField) else value


class NumberedPages(BasePagination):
    """``?page=`` and ``?page_size=`` over a sequence or a short query; the caller has the total at hand or answers without it."""

    params = frozenset({"page", "page_size"})

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> list[Any]:
        """The rows of one page."""
        self._request = request
        size = whole_number(request, "page_size", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        self.page = whole_number(request, "page", 1, MAX_PAGE)
        self.offset = (self.page - 1) * size
        rows = list(queryset[self.offset : self.offset + size + 1])
        self._more = len(rows) > size
        return rows[:size]

    def next_link(self) -> str | None:
        """Address of the next page."""
        return replace_query_param(self._request.build_absolute_uri(), "page", self.page + 1) if self._more else None


def whole_number_parameter(name: str, default: int, most: int, description: str = "") -> OpenApiParameter:
    """A query parameter that ``whole_number`` reads, for OpenAPI."""
    return OpenApiParameter(name, {"type": "integer", "minimum": 1, "maximum": most, "default": default}, description=description)


#: ``page`` and ``page_size`` for OpenAPI.
PAGE_PARAMETERS = (
    whole_number_parameter("page", 1, MAX_PAGE),
    whole_number_parameter("page_size", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE),
)


def _parameter(name: str, schema: dict[str, Any], description: str = "") -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}
