"""Filters for columns without an enum: the values of the newest rows, since asking a big table for all values reads all of it."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from wms2.web.formatting import spelled

MOST_READ = 1_000


def recent_values(field: str) -> type[SimpleListFilter]:
    """A filter by a column, offering what the newest rows have in it."""

    class RecentValues(SimpleListFilter):
        title = spelled(field)
        parameter_name = field

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            rows = model_admin.model._default_manager.order_by("-pk").values_list(field, flat=True)[:MOST_READ]
            found = {str(value) for value in (*rows, self.value()) if value}
            return [(value, value) for value in sorted(found)]

        def has_output(self) -> bool:
            return True

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{field: self.value()}) if self.value() else queryset

    return RecentValues
