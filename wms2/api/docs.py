"""The schema and the page over it, for those who are signed in; every file comes from this server."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import NotAuthenticated

from wms2.api.views import METHODS


class SchemaView(SpectacularJSONAPIView):
    """The schema, for those who are signed in."""

    http_method_names = METHODS


class DocsView(SpectacularSwaggerSplitView):
    """Swagger; who is not signed in is sent to the sign-in page."""

    url_name = "api-schema"
    title = "WMS2"
    template_name = "api/docs.html"
    http_method_names = METHODS

    def handle_exception(self, exc: Exception) -> Any:
        """A browser is sent to the sign-in page instead of getting a problem."""
        if isinstance(exc, NotAuthenticated):
            return redirect_to_login(self.request.get_full_path(), settings.LOGIN_URL)
        return super().handle_exception(exc)
