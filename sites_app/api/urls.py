"""Routes of sites_app below /api/v1/; one site and its verbs are ``requests_app``'s, which audits."""

from __future__ import annotations

from django.urls import path

from sites_app.api.views import SiteViewSet

urlpatterns = [
    path("sites", SiteViewSet.as_view({"get": "list"}), name="site-list"),
]
