"""Filters of the DAG list."""

from __future__ import annotations

import django_filters
from django.db.models import QuerySet

from dags_app.models import DAG, LIVE_DAG, DAGKind, DAGStatus
from wms2.api.filters import ChoicesFilter, TextFilter, TrueFalseFilter, since, until


class DagFilters(django_filters.FilterSet):
    """``?live=true`` are those that count against admission."""

    status = ChoicesFilter(choices=DAGStatus.choices)
    kind = ChoicesFilter(choices=DAGKind.choices)
    live = TrueFalseFilter(method="filter_live", help_text="planned, submitted or running")
    request = TextFilter(field_name="workflow__request_id", max_length=255, help_text="request name")
    workflow = django_filters.UUIDFilter(field_name="workflow_id")
    schedd = TextFilter(field_name="schedd_name", max_length=255)
    created_since = since("created_at")
    created_until = until("created_at")

    def filter_live(self, queryset: QuerySet[DAG], name: str, value: bool) -> QuerySet[DAG]:
        """Live ones, or ended ones."""
        return queryset.filter(status__in=LIVE_DAG) if value else queryset.exclude(status__in=LIVE_DAG)
