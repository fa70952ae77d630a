"""Routes of outputs_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from outputs_app.api.views import BlockViewSet, EffectViewSet

urlpatterns = [
    path("blocks", BlockViewSet.as_view({"get": "list"}), name="block-list"),
    path("blocks/<uuid:pk>", BlockViewSet.as_view({"get": "retrieve"}), name="block-detail"),
    path("effects", EffectViewSet.as_view({"get": "list"}), name="effect-list"),
    path("effects/<int:pk>", EffectViewSet.as_view({"get": "retrieve"}), name="effect-detail"),
]
