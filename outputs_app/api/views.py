"""Endpoints of blocks, effects, datasets, differences and integrity cases; the operations are made from
``outputs_app.actions``.
"""

from __future__ import annotations

from typing import Any

from outputs_app.api.filters import BlockFilters, CaseFilters, DatasetFilters, DriftFilters, EffectFilters, PlacementFilters
from outputs_app.api.serializers import (
    BlockListSerializer,
    BlockSerializer,
    CaseSerializer,
    DatasetSerializer,
    DriftSerializer,
    EffectListSerializer,
    EffectSerializer,
    PlacementSerializer,
)
from outputs_app.checks.cases import cases_shown
from outputs_app.models import Placement
from outputs_app.selectors import (
    blocks_done_units,
    blocks_shown,
    datasets_shown,
    drift_shown,
    effects_shown,
)
from wms2.api.actions import Answer
from wms2.api.views import RowsViewSet


class BlockViewSet(RowsViewSet):
    """Processing blocks: each is one DBS block and one tape rule."""

    queryset = blocks_shown()
    serializer_class = BlockSerializer
    list_serializer_class = BlockListSerializer
    filterset_class = BlockFilters
    ordering = ("-created_at",)
    ordering_fields = ("created_at", "updated_at", "dataset_name", "status")

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """Done work units of all blocks of the page."""
        done = blocks_done_units([line["id"] for line in lines])
        for line in lines:
            line["work_units"] = f"{done.get(line['id'], 0)}/{line['total_work_units']}"


class EffectViewSet(RowsViewSet):
    """What is or was to be done in DBS and Rucio, one row each."""

    queryset = effects_shown()
    serializer_class = EffectSerializer
    list_serializer_class = EffectListSerializer
    filterset_class = EffectFilters
    ordering = ("-id",)
    ordering_fields = ("id", "next_attempt_at", "attempts", "kind", "state")


class DatasetViewSet(RowsViewSet):
    """Output datasets, and when each was compared with DBS and Rucio."""

    queryset = datasets_shown()
    serializer_class = DatasetSerializer
    filterset_class = DatasetFilters
    ordering = ("-id",)
    ordering_fields = ("id", "name", "created_at")


class PlacementViewSet(RowsViewSet):
    """Which outputs go to tape, and whose containers WMS2 places on disk."""

    queryset = Placement.objects.all()
    serializer_class = PlacementSerializer
    filterset_class = PlacementFilters
    ordering = ("id",)
    ordering_fields = ("id", "campaign", "tier")


#: A placement that was removed, as it was.
PLACEMENT_BEFORE: Answer = (PlacementSerializer, lambda row, made, given: row)


class DriftViewSet(RowsViewSet):
    """Where DBS or Rucio hold something else than WMS2 believes, one row for each file, block, dataset or rule."""

    queryset = drift_shown()
    serializer_class = DriftSerializer
    filterset_class = DriftFilters
    ordering = ("-id",)
    ordering_fields = ("id", "since", "last_seen", "kind", "state")


class CaseViewSet(RowsViewSet):
    """Files and blocks that are not what they should be."""

    queryset = cases_shown()
    serializer_class = CaseSerializer
    filterset_class = CaseFilters
    ordering = ("-id",)
    ordering_fields = ("id", "created_at", "prognosis", "state", "site")
