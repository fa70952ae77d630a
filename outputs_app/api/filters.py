"""Filters of the lists of blocks, effects, datasets, differences and integrity cases."""

from __future__ import annotations

import django_filters
from django.db.models import QuerySet

from outputs_app.models import (
    OPEN_CASE,
    OPEN_EFFECT,
    BlockStatus,
    CaseState,
    DatasetState,
    DriftKind,
    DriftState,
    Effect,
    EffectKind,
    EffectState,
    IntegrityCase,
    Prognosis,
)
from wms2.api.filters import ChoicesFilter, SearchFilter, TextFilter, TrueFalseFilter, since, until


class BlockFilters(django_filters.FilterSet):
    """By place and status."""

    status = ChoicesFilter(choices=BlockStatus.choices)
    request = TextFilter(field_name="workflow__request_id", max_length=255, help_text="request name")
    workflow = django_filters.UUIDFilter(field_name="workflow_id")
    dataset = TextFilter(field_name="dataset_name", max_length=500)
    search = SearchFilter("dbs_block_name")
    created_since = since("created_at")
    created_until = until("created_at")


class EffectFilters(django_filters.FilterSet):
    """``?state=refused,dead`` waits for an operator."""

    state = ChoicesFilter(choices=EffectState.choices)
    kind = ChoicesFilter(choices=EffectKind.choices)
    open = TrueFalseFilter(method="filter_open", help_text="not done yet")
    request = TextFilter(field_name="request__request_name", max_length=255, help_text="request name")
    block = django_filters.UUIDFilter(field_name="block_id")

    def filter_open(self, queryset: QuerySet[Effect], name: str, value: bool) -> QuerySet[Effect]:
        """Open ones, or done ones."""
        return queryset.filter(state__in=OPEN_EFFECT) if value else queryset.exclude(state__in=OPEN_EFFECT)


class DatasetFilters(django_filters.FilterSet):
    """By request and state."""

    state = ChoicesFilter(choices=DatasetState.choices)
    request = TextFilter(field_name="workflow__request_id", max_length=255, help_text="request name")
    name = TextFilter(max_length=500)


class PlacementFilters(django_filters.FilterSet):
    """By what it is decided for."""

    campaign = TextFilter(max_length=100)
    tier = TextFilter(max_length=50)


class DriftFilters(django_filters.FilterSet):
    """``?state=unsettled`` waits for an operator."""

    state = ChoicesFilter(choices=DriftState.choices)
    kind = ChoicesFilter(choices=DriftKind.choices)
    request = TextFilter(field_name="request__request_name", max_length=255, help_text="request name")
    dataset = TextFilter(field_name="dataset__name", max_length=500)
    block = django_filters.UUIDFilter(field_name="block_id")
    name = TextFilter(max_length=700, help_text="LFN, block or dataset")


class CaseFilters(django_filters.FilterSet):
    """``?state=new`` waits for an operator."""

    state = ChoicesFilter(choices=CaseState.choices)
    open = TrueFalseFilter(method="filter_open", help_text="not at an end")
    prognosis = ChoicesFilter(choices=Prognosis.choices)
    request = TextFilter(field_name="request__request_name", max_length=255, help_text="request name")
    site = TextFilter(max_length=100)
    block = django_filters.UUIDFilter(field_name="block_id")
    name = TextFilter(max_length=700, help_text="LFN, or a block's name")

    def filter_open(self, queryset: QuerySet[IntegrityCase], name: str, value: bool) -> QuerySet[IntegrityCase]:
        """Open ones, or those at an end."""
        return queryset.filter(state__in=OPEN_CASE) if value else queryset.exclude(state__in=OPEN_CASE)
