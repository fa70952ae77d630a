"""DQM harvestings over REST. Operations are made from their declarations."""

from __future__ import annotations

import django_filters

from requests_app.harvesting.selectors import harvests_shown
from requests_app.models import Harvest, HarvestState
from wms2.api.answers import rows
from wms2.api.filters import ChoicesFilter, TextFilter
from wms2.api.views import RowsViewSet

HarvestSerializer = rows(
    "Harvest", Harvest, "One file for DQM servers, of a run of an output dataset or of all (0).",
    "id", "request_name=request_id", "dataset", "run", "state", "job", "site=job.site?", "attempts", "next_try_at", "uploads",
    "problem", "created_at", "ended_at",
    site="of the last job",
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
