"""Routes of sites_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

import sites_app.actions  # noqa: F401  declares them
from sites_app.api.views import (
    POOLS,
    REMOVED_POOL,
    SITES,
    PoolViewSet,
    ScheddViewSet,
    SiteView,
    SiteViewSet,
    SystemicAlertViewSet,
)
from wms2.api import converters  # noqa: F401  <name:...>
from wms2.api.actions import action_urls, rows_urls

urlpatterns = [
    path("sites", SiteViewSet.as_view({"get": "list"}), name="site-list"),
    path("sites/<name:pk>", SiteView.as_view(), name="site-detail"),
    *action_urls(SITES),
    path("pools", PoolViewSet.as_view({"get": "list", "post": "create"}), name="pool-list"),
    path("pools/<pool:pk>", PoolViewSet.as_view({"get": "retrieve"}), name="pool-detail"),
    *action_urls(POOLS, answers={"remove": REMOVED_POOL}),
    path("schedds", ScheddViewSet.as_view({"get": "list"}), name="schedd-list"),
    *rows_urls("systemic-alerts", "systemic-alert", SystemicAlertViewSet),
]
