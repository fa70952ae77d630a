"""DQM harvestings; the verbs are made from ``requests_app.verbs``."""

from __future__ import annotations

import django_filters
from rest_framework import serializers

from requests_app.models import Harvest, HarvestState
from requests_app.selectors.harvests import harvests_shown
from wms2.api.filters import ChoicesFilter, TextFilter
from wms2.api.views import RowsViewSet


class HarvestSerializer(serializers.ModelSerializer):
    """One file for DQM servers, of a run of an output dataset or of all (0)."""

    request_name = serializers.CharField(source="request_id")
    site = serializers.CharField(source="job.site", default=None, allow_null=True, help_text="of the last job")

    class Meta:
        model = Harvest
        fields: tuple[str, ...] = (
            "id", "request_name", "dataset", "run", "state", "job", "site", "attempts", "next_try_at", "uploads", "problem",
            "created_at", "ended_at",
        )  # fmt: skip


class HarvestFilters(django_filters.FilterSet):
    """``?state=failed`` waits for an operator."""

    state = ChoicesFilter(choices=HarvestState.choices)
    request = TextFilter(field_name="request_id", max_length=255, help_text="request name")
    dataset = TextFilter(max_length=500)


class HarvestViewSet(RowsViewSet):
    """DQM files of completed requests, one row each."""

    queryset = harvests_shown()
    serializer_class = HarvestSerializer
    filterset_class = HarvestFilters
    ordering = ("-id",)
    ordering_fields = ("id", "next_try_at", "state")
