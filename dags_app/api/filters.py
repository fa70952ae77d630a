"""Filters of the DAG list."""

from __future__ import annotations

import django_filters
from django.db.models import Q

from dags_app.models import LIVE_DAG, DAGKind, DAGStatus
from wms2.api.filters import ChoicesFilter, TextFilter, TrueFalseFilter, since, until, whether


class DagFilters(django_filters.FilterSet):
    """``?live=true`` are those that count against admission."""

    status = ChoicesFilter(choices=DAGStatus.choices)
    kind = ChoicesFilter(choices=DAGKind.choices)
    live = TrueFalseFilter(method=whether(Q(status__in=LIVE_DAG)), help_text="planned, submitted or running")
    request = TextFilter(field_name="workflow__request_id", max_length=255, help_text="request name")
    workflow = django_filters.UUIDFilter(field_name="workflow_id")
    schedd = TextFilter(field_name="schedd_name", max_length=255)
    created_since = since("created_at")
    created_until = until("created_at")
