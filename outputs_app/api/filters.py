"""Filters of the lists of blocks, effects, datasets, differences and integrity cases."""

from __future__ import annotations

import django_filters
from django.db.models import Q

from outputs_app.models import (
    OPEN_CASE,
    OPEN_EFFECT,
    BlockStatus,
    CaseState,
    DatasetState,
    DriftKind,
    DriftState,
    EffectKind,
    EffectState,
    FindingKind,
)
from wms2.api.filters import ChoicesFilter, SearchFilter, TextFilter, TrueFalseFilter, since, until, whether


def of_request(column: str) -> TextFilter:
    """By the request's name."""
    return TextFilter(field_name=column, max_length=255, help_text="request name")


class BlockFilters(django_filters.FilterSet):
    """By place and status."""

    status = ChoicesFilter(choices=BlockStatus.choices)
    request = of_request("workflow__request_id")
    workflow = django_filters.UUIDFilter(field_name="workflow_id")
    dataset = TextFilter(field_name="dataset_name", max_length=500)
    search = SearchFilter("dbs_block_name")
    created_since = since("created_at")
    created_until = until("created_at")


class EffectFilters(django_filters.FilterSet):
    """``?state=refused,dead`` waits for an operator."""

    state = ChoicesFilter(choices=EffectState.choices)
    kind = ChoicesFilter(choices=EffectKind.choices)
    open = TrueFalseFilter(method=whether(Q(state__in=OPEN_EFFECT)), help_text="not done yet")
    request = of_request("request__request_name")
    block = django_filters.UUIDFilter(field_name="block_id")


class DatasetFilters(django_filters.FilterSet):
    """By request and state."""

    state = ChoicesFilter(choices=DatasetState.choices)
    request = of_request("workflow__request_id")
    name = TextFilter(max_length=500)


class PlacementFilters(django_filters.FilterSet):
    """By what it is decided for."""

    campaign = TextFilter(max_length=100)
    tier = TextFilter(max_length=50)


class DriftFilters(django_filters.FilterSet):
    """``?state=unsettled`` waits for an operator."""

    state = ChoicesFilter(choices=DriftState.choices)
    kind = ChoicesFilter(choices=DriftKind.choices)
    request = of_request("request__request_name")
    dataset = TextFilter(field_name="dataset__name", max_length=500)
    block = django_filters.UUIDFilter(field_name="block_id")
    name = TextFilter(max_length=700, help_text="LFN, block or dataset")


class CaseFilters(django_filters.FilterSet):
    """``?state=new`` waits for an operator."""

    state = ChoicesFilter(choices=CaseState.choices)
    open = TrueFalseFilter(method=whether(Q(state__in=OPEN_CASE)), help_text="not at an end")
    prognosis = ChoicesFilter(choices=FindingKind.choices)
    request = of_request("request__request_name")
    site = TextFilter(max_length=100)
    block = django_filters.UUIDFilter(field_name="block_id")
    name = TextFilter(max_length=700, help_text="LFN, or a block's name")
