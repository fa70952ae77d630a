"""Routes of outputs_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

import outputs_app.verbs  # noqa: F401  declares them
from outputs_app.api.serializers import (
    BlockSerializer,
    CaseSerializer,
    DatasetSerializer,
    DriftSerializer,
    EffectSerializer,
    PlacementSerializer,
)
from outputs_app.api.views import BlockViewSet, CaseViewSet, DatasetViewSet, DriftViewSet, EffectViewSet, PlacementViewSet
from outputs_app.cases import cases_shown
from outputs_app.models import Drift, Effect, IntegrityCase, OutputDataset, Placement, ProcessingBlock
from outputs_app.selectors import blocks_shown, datasets_shown, drift_shown, effects_shown, placements_shown
from wms2.api.verbs import Resource, verb_urls

urlpatterns = [
    path("blocks", BlockViewSet.as_view({"get": "list"}), name="block-list"),
    path("blocks/<uuid:pk>", BlockViewSet.as_view({"get": "retrieve"}), name="block-detail"),
    path("effects", EffectViewSet.as_view({"get": "list"}), name="effect-list"),
    path("effects/<int:pk>", EffectViewSet.as_view({"get": "retrieve"}), name="effect-detail"),
    path("datasets", DatasetViewSet.as_view({"get": "list"}), name="dataset-list"),
    path("datasets/<int:pk>", DatasetViewSet.as_view({"get": "retrieve"}), name="dataset-detail"),
    path("placements", PlacementViewSet.as_view({"get": "list"}), name="placement-list"),
    path("placements/<int:pk>", PlacementViewSet.as_view({"get": "retrieve"}), name="placement-detail"),
    path("drift", DriftViewSet.as_view({"get": "list"}), name="drift-list"),
    path("drift/<int:pk>", DriftViewSet.as_view({"get": "retrieve"}), name="drift-detail"),
    path("cases", CaseViewSet.as_view({"get": "list"}), name="case-list"),
    path("cases/<int:pk>", CaseViewSet.as_view({"get": "retrieve"}), name="case-detail"),
    *verb_urls(Resource(ProcessingBlock, BlockSerializer, blocks_shown)),
    *verb_urls(Resource(Effect, EffectSerializer, effects_shown)),
    *verb_urls(Resource(OutputDataset, DatasetSerializer, datasets_shown)),
    *verb_urls(Resource(Drift, DriftSerializer, drift_shown)),
    *verb_urls(Resource(IntegrityCase, CaseSerializer, cases_shown)),
    *verb_urls(
        Resource(Placement, PlacementSerializer, placements_shown),
        answers={"remove": (PlacementSerializer, lambda row, made, given: row)},  # as it was
    ),
]
