"""Addresses of the pages."""

from __future__ import annotations

from django.urls import path

from requests_app.pages import views
from wms2.api import converters  # noqa: F401  <name:...>

urlpatterns = [
    path("", views.board, name="board"),
    path("requests/<name:request_name>/", views.request_detail, name="request-page"),
]
