"""Filters of the request and workflow lists."""

from __future__ import annotations

import django_filters

from requests_app.models import HoldCode, Request, RequestStatus, StopIntent, Workflow, WorkflowStatus
from wms2.api.filters import ChoicesFilter, IntegerFilter, SearchFilter, since, until

MAX_PRIORITY = 999_999


class RequestFilters(django_filters.FilterSet):
    """Each narrows the list; all together must hold."""

    status = ChoicesFilter(choices=RequestStatus.choices)
    hold_code = ChoicesFilter(choices=HoldCode.choices)
    stop_intent = ChoicesFilter(choices=StopIntent.choices)
    campaign = django_filters.CharFilter(max_length=100)
    requestor = django_filters.CharFilter(max_length=100)
    group = django_filters.CharFilter(max_length=100)
    urgent = django_filters.BooleanFilter()
    alerted = django_filters.BooleanFilter(field_name="alert_code", lookup_expr="gt", method="filter_alerted")
    priority_min = IntegerFilter(field_name="priority", lookup_expr="gte", min_value=0, max_value=MAX_PRIORITY)
    priority_max = IntegerFilter(field_name="priority", lookup_expr="lte", min_value=0, max_value=MAX_PRIORITY)
    created_since = since("created_at")
    created_until = until("created_at")
    updated_since = since("updated_at")
    updated_until = until("updated_at")
    search = SearchFilter(("request_name", "prep_id", "campaign", "input_dataset"))

    class Meta:
        model = Request
        fields: tuple[str, ...] = ()

    def filter_alerted(self, queryset, name, value):  # type: ignore[no-untyped-def]
        """Those that wait for a person, or the others."""
        return queryset.exclude(alert_code="") if value else queryset.filter(alert_code="")


class WorkflowFilters(django_filters.FilterSet):
    """By request and status."""

    status = ChoicesFilter(choices=WorkflowStatus.choices)
    request = django_filters.CharFilter(field_name="request_id", max_length=255, help_text="request name")
    campaign = django_filters.CharFilter(field_name="request__campaign", max_length=100)
    input_dataset = django_filters.CharFilter(max_length=500)
    created_since = since("created_at")
    created_until = until("created_at")

    class Meta:
        model = Workflow
        fields: tuple[str, ...] = ()
