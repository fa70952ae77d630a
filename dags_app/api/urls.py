"""Routes of dags_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from dags_app.api.views import DagLogsView, DagNodesView, DagViewSet

urlpatterns = [
    path("dags", DagViewSet.as_view({"get": "list"}), name="dag-list"),
    path("dags/<uuid:pk>", DagViewSet.as_view({"get": "retrieve"}), name="dag-detail"),
    path("dags/<uuid:pk>/nodes", DagNodesView.as_view(), name="dag-nodes"),
    path("dags/<uuid:pk>/logs", DagLogsView.as_view(), name="dag-logs"),
]
