"""Filters of the site list."""

from __future__ import annotations

import django_filters

from sites_app.models import PoolState, ScheddState, SiteStatus
from wms2.api.filters import ChoicesFilter, SearchFilter, TextFilter


class SiteFilters(django_filters.FilterSet):
    """By status, name and storage."""

    status = ChoicesFilter(choices=SiteStatus.choices)
    rse = TextFilter(field_name="rses__rse", max_length=100, help_text="sites that read this RSE")
    search = SearchFilter("name")


class PoolFilters(django_filters.FilterSet):
    """By state."""

    state = ChoicesFilter(choices=PoolState.choices)


class ScheddFilters(django_filters.FilterSet):
    """By state, pool and name."""

    state = ChoicesFilter(choices=ScheddState.choices)
    pool = TextFilter(field_name="pool_id", max_length=100)
    search = SearchFilter("name")
