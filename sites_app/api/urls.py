"""Routes of sites_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from sites_app.api.views import SiteViewSet
from wms2.api import converters  # noqa: F401  <name:...>

urlpatterns = [
    path("sites", SiteViewSet.as_view({"get": "list"}), name="site-list"),
    path("sites/<name:pk>", SiteViewSet.as_view({"get": "retrieve"}), name="site-detail"),
]
