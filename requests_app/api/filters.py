"""Filters of the request and workflow lists."""

from __future__ import annotations

import django_filters
from django.db.models import Q, QuerySet

from requests_app.models import HoldCode, Request, RequestStatus, StopIntent, WorkflowStatus
from requests_app.selectors.failures import EVER, Asked
from requests_app.selectors.needs import needing_for
from requests_app.selectors.requests import requests_of_user
from requests_app.services.decisions import MAX_PRIORITY
from wms2.api.filters import (
    ChoicesFilter,
    MomentFilter,
    TextFilter,
    TrueFalseFilter,
    UpperSearchFilter,
    WholeNumberFilter,
    since,
    until,
    whether,
)


class RequestFilters(django_filters.FilterSet):
    """Each narrows the list; all together must hold."""

    status = ChoicesFilter(choices=RequestStatus.choices)
    hold_code = ChoicesFilter(choices=HoldCode.choices)
    stop_intent = ChoicesFilter(choices=StopIntent.choices)
    campaign = TextFilter(max_length=100)
    requestor = TextFilter(max_length=100)
    group = TextFilter(max_length=100)
    in_group = TextFilter(field_name="in_group__name", max_length=150)
    depends_on = TextFilter(field_name="depends_on__request_name", max_length=255, help_text="those that wait for this request")
    urgent = TrueFalseFilter()
    failing = TrueFalseFilter(help_text="jobs of its DAG failed in the last hours")
    alert_code = TextFilter(max_length=50)
    needs = TextFilter(
        max_length=100, method="filter_needs", help_text="those that need a person for this, as the overview groups them"
    )
    mine = django_filters.ChoiceFilter(
        choices=[("1", "1")], method="filter_mine", help_text="1: those of whom asks, as their requestor or as who watches them"
    )
    alerted = TrueFalseFilter(method=whether(~Q(alert_code="")), help_text="with an alert that waits for a person")
    priority_min = WholeNumberFilter(field_name="priority", lookup_expr="gte", least=0, most=MAX_PRIORITY)
    priority_max = WholeNumberFilter(field_name="priority", lookup_expr="lte", least=0, most=MAX_PRIORITY)
    created_since = since("created_at")
    created_until = until("created_at")
    updated_since = since("updated_at")
    updated_until = until("updated_at")
    search = UpperSearchFilter("search_text", "request_name, prep_id, campaign, input_dataset")
    failed_code = WholeNumberFilter(
        method="leave", least=-(2**31), most=2**31 - 1, help_text="whose jobs failed with this code; at failed_site, if given"
    )
    failed_site = TextFilter(method="leave", max_length=100, help_text="whose jobs failed there; `none`: where is not known")
    failed_since = MomentFilter(method="leave", help_text="whose jobs failed, so, from this moment on, ISO 8601")

    def leave(self, queryset: QuerySet[Request], name: str, value: object) -> QuerySet[Request]:
        """What is asked of failures must hold of one kind of them: ``filter_queryset`` looks at all of it together."""
        return queryset

    def filter_queryset(self, queryset: QuerySet[Request]) -> QuerySet[Request]:
        """All of them."""
        rows: QuerySet[Request] = super().filter_queryset(queryset)
        asked = self.form.cleaned_data
        code, site, began = (asked[name] for name in ("failed_code", "failed_site", "failed_since"))
        if code is None and not site and began is None:
            return rows
        kinds = Asked(began or EVER, code=code, site=site).kinds
        return rows.filter(request_name__in=kinds.values("workflow__request_id"))

    def filter_needs(self, queryset: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        """Those of one line of the overview."""
        return needing_for(queryset, value)

    def filter_mine(self, queryset: QuerySet[Request], name: str, value: str) -> QuerySet[Request]:
        """Those of whom asks."""
        return requests_of_user(queryset, self.request.user)


class WorkflowFilters(django_filters.FilterSet):
    """By request and status."""

    status = ChoicesFilter(choices=WorkflowStatus.choices)
    request = TextFilter(field_name="request_id", max_length=255, help_text="request name")
    campaign = TextFilter(field_name="request__campaign", max_length=100)
    input_dataset = TextFilter(max_length=500)
    created_since = since("created_at")
    created_until = until("created_at")
