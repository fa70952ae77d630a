"""Routes of outputs_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

import outputs_app.verbs  # noqa: F401  declares them
from outputs_app.api.serializers import EffectSerializer
from outputs_app.api.views import BlockViewSet, EffectViewSet
from outputs_app.models import Effect
from outputs_app.selectors import effects_shown
from wms2.api.verbs import Resource, verb_urls

urlpatterns = [
    path("blocks", BlockViewSet.as_view({"get": "list"}), name="block-list"),
    path("blocks/<uuid:pk>", BlockViewSet.as_view({"get": "retrieve"}), name="block-detail"),
    path("effects", EffectViewSet.as_view({"get": "list"}), name="effect-list"),
    path("effects/<int:pk>", EffectViewSet.as_view({"get": "retrieve"}), name="effect-detail"),
    *verb_urls(Resource(Effect, EffectSerializer, effects_shown)),
]
