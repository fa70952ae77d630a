"""REST of bulk runs: one operation on all rows of a list's filter, or on a list of keys (``wms2.work.bulk``)."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from wms2.actions import Action, ResourceType, arguments, resource_type_of
from wms2.api.actions import LISTED, Resource, actor_of, described, input_serializer, rows_urls
from wms2.api.answers import Computed, answer, rows
from wms2.api.filters import TextFilter
from wms2.api.problems import bad_field
from wms2.api.serializers import ReasonSerializer, TextField
from wms2.api.views import ApiView, RowsViewSet
from wms2.models import BulkItem, BulkResult, BulkRun
from wms2.web.shedding import Call
from wms2.work.bulk import MOST_ROWS, bulk_begin, bulk_counts, bulk_preview

BulkRunSerializer = rows(
    "BulkRun", BulkRun, "A bulk run, and how far it is.",
    "id", "resource", "operation", "data", "actor", "reason", "total", "items", "created_at", "ended_at", "cancelled", "problem",
    items=Computed(
        lambda run: bulk_counts([run.pk])[run.pk], serializers.DictField(child=serializers.IntegerField()),
        column="id", help_text="result -> rows",
    ),
)  # fmt: skip


class BulkRunViewSet(RowsViewSet):
    """Bulk runs, the newest first."""

    queryset = BulkRun.objects.all()
    serializer_class = BulkRunSerializer
    ordering = ("-created_at",)
    ordering_fields = ("created_at",)

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """How far each is."""
        counts = bulk_counts([line["items"] for line in lines])
        for line in lines:
            line["items"] = counts[line["items"]]


BulkItemSerializer = rows(
    "BulkItem", BulkItem, "One row of a bulk run, and what became of it.",
    "id", "run", "position", "key", "name", "result", "message", "at",
)  # fmt: skip


class BulkItemFilters(django_filters.FilterSet):
    """Of one run, by result."""

    run = django_filters.UUIDFilter()
    result = django_filters.ChoiceFilter(choices=BulkResult.choices)
    name = TextFilter(max_length=300)


class BulkItemViewSet(RowsViewSet):
    """Rows of bulk runs, and what became of each."""

    queryset = BulkItem.objects.all()
    serializer_class = BulkItemSerializer
    filterset_class = BulkItemFilters
    ordering = ("position",)
    ordering_fields = ("position",)


BulkPreviewSerializer = answer(
    "BulkPreview", {"rows": int, "acting": int, "refused": dict[str, int]},
    "What an operation would do to all rows of a filter.",
    acting="to which it applies now",
    refused="reason -> rows, the most frequent ones",
)  # fmt: skip


class BulkView(ApiView):
    """One operation on many rows of one list."""

    resource: ClassVar[Resource]
    resource_type: ClassVar[ResourceType]
    performs: ClassVar[Action]
    filters: ClassVar[Any]
    serializer_class = BulkRunSerializer

    def preview(self, request: Request) -> Response:
        """What it would do to the rows of the filter, as far as can be said before. Changes nothing."""
        return Response(BulkPreviewSerializer(bulk_preview(self.performs, self._rows(request, None), request.user)).data)

    def begin(self, request: Request) -> Response:
        """Begin a run over the rows of the filter, or over ``keys``; workers do it, with a result for each row."""
        data = bulk_serializer(self.performs, self.resource_type.name)(data=request.data)
        data.is_valid(raise_exception=True)
        asked = dict(data.validated_data)
        keys, expected = asked.pop("keys", None), asked.pop("expected", None)
        arguments(self.performs, asked)  # what is wrong for all rows is said now
        rows = self._rows(request, keys)
        body: Any = request.data
        given = {name: value for name, value in body.items() if name not in ("keys", "expected")}
        run = bulk_begin(
            resource_type=self.resource_type, action=self.performs, rows=rows, data=given, expected=expected,
            actor=actor_of(request), user=request.user,
        )  # fmt: skip
        headers = {"Location": reverse("bulk-run-detail", [run.pk], request=request)}
        return Response(BulkRunSerializer(run).data, 202, headers=headers)

    def _rows(self, request: Request, keys: list[str] | None) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.resource.rows().order_by("pk")
        if keys is not None:
            if request.query_params:
                raise bad_field("keys", "give keys or a filter in the query string, not both")
            named = rows.filter(**{f"{self.resource.key}__in": self._checked(keys)})
            if missing := set(keys) - set(map(str, named.values_list(self.resource.key, flat=True))):
                raise bad_field("keys", f"there is no {self.resource_type.name} {', '.join(sorted(missing)[:5])}")
            return named
        if not request.query_params:
            raise bad_field("keys", "give keys, or a filter in the query string: all rows are never meant by leaving it out")
        filterset = self.filters(request.query_params, queryset=rows, request=request)
        if not filterset.is_valid():
            raise serializers.ValidationError(filterset.errors)
        found: QuerySet[Any] = filterset.qs
        return found

    def _checked(self, keys: list[str]) -> list[Any]:
        options, key = self.resource.model._meta, self.resource.key
        field: Any = options.pk if key == "pk" else options.get_field(key)
        try:
            return [field.to_python(key) for key in keys]
        except ValidationError as error:
            raise bad_field("keys", f"is not the key of a {self.resource_type.name}") from error


def bulk_serializer(action: Action, resource_type: str) -> type[ReasonSerializer]:
    """The operation's own input, and which rows."""
    name = f"{resource_type}-bulk-{action.name}".title().replace("-", "")
    members: dict[str, Any] = {
        "keys": serializers.ListField(
            child=TextField(max_length=200), min_length=1, max_length=MOST_ROWS, required=False,
            help_text="names or keys of the rows, as in their addresses; without them the filter in the query string says which",
        ),
        "expected": serializers.IntegerField(
            min_value=1, max_value=MOST_ROWS, required=False, help_text="rows that were seen; refused if others are meant by now"
        ),
        "__doc__": action.does,
    }  # fmt: skip
    return type(f"{name}InputSerializer", (input_serializer(action, resource_type),), members)


def bulk_urls() -> list[Any]:
    """Runs, their items, and an address for each operation on the rows of each list that was declared so far."""
    found = [
        *rows_urls("bulk-runs", "bulk-run", BulkRunViewSet),
        *rows_urls("bulk-items", "bulk-item", BulkItemViewSet),
    ]
    for address, (resource, filters) in sorted(LISTED.items()):
        resource_type = resource_type_of(resource.model)
        found += [_bulk_url(address, resource, filters, resource_type, action) for action in resource_type.actions if action.many]
    return found


def _bulk_url(address: str, resource: Resource, filters: Any, resource_type: ResourceType, action: Action) -> Any:
    known = filters.base_filters if filters else {}
    which = [OpenApiParameter(name, str, description=f"as of the list of {address}") for name in known]

    @extend_schema(parameters=which, responses={200: BulkPreviewSerializer}, description="What it would do. Changes nothing.")
    def get(self: BulkView, request: Request) -> Response:
        return self.preview(request)

    @extend_schema(
        parameters=which, request=bulk_serializer(action, resource_type.name), responses={202: BulkRunSerializer},
        description=f"{described(resource_type, action)} Of the rows of the filter, or of ``keys``.",
    )  # fmt: skip
    def post(self: BulkView, request: Request) -> Response:
        return self.begin(request)

    post.performs = action  # type: ignore[attr-defined]  # whose roles the permission asks for

    members: dict[str, Any] = {
        "resource": resource, "resource_type": resource_type, "performs": action, "filters": filters,
        "query_params": frozenset(known),
        "calls": {"post": Call.STOP} if action.stops else {}, "__doc__": action.does, "get": get, "post": post,
    }  # fmt: skip
    name = f"{resource_type.name}_bulk_{action.name}_view".title().replace("_", "").replace("-", "")
    view: Any = type(name, (BulkView,), members)
    return path(f"bulk/{address}/{action.name}", view.as_view(), name=f"bulk-{resource_type.name}-{action.name}")
