"""Routes of outputs_app below /api/v1/."""

from __future__ import annotations

import outputs_app.actions  # noqa: F401  declares them
from outputs_app.api import views
from wms2.api.actions import rows_urls

urlpatterns = [
    *rows_urls("blocks", "block", views.BlockViewSet),
    *rows_urls("effects", "effect", views.EffectViewSet),
    *rows_urls("datasets", "dataset", views.DatasetViewSet),
    *rows_urls("placements", "placement", views.PlacementViewSet, answers={"remove": views.PLACEMENT_BEFORE}),
    *rows_urls("drift", "drift", views.DriftViewSet),
    *rows_urls("cases", "case", views.CaseViewSet),
]
