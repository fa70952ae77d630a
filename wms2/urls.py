"""Routing. Each app's ``urls`` stay with the app."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.http import Http404
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView
from rest_framework.request import Request
from rest_framework.views import APIView

from requests_app.monitoring.health import LiveView, ReadyView
from requests_app.monitoring.metrics import MetricsView
from wms2.api import account, converters  # noqa: F401  <schedd:...>
from wms2.api.actions import rows_urls
from wms2.api.docs import DocsView, SchemaView
from wms2.api.proxy_auth import FlowerView
from wms2.api.views import METHODS
from wms2.identities import sso
from wms2.identities.browser_sessions import SignInView
from wms2.work.api import workers as work
from wms2.work.api.bulk import bulk_urls


class NothingHereView(APIView):
    """A problem instead of an HTML page for addresses below /api/ that are none."""

    schema = None
    http_method_names = METHODS

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        """Any method."""
        super().initial(request, *args, **kwargs)
        slash = "; addresses have no slash at their end" if request.path.endswith("/") else ""
        raise Http404(f"there is nothing at {request.path[:200]}{slash}; see /api/v1/docs/")


api_v1: list[URLPattern | URLResolver] = [
    path("", include("requests_app.api.urls")),
    path("", include("dags_app.api.urls")),
    path("", include("outputs_app.api.urls")),
    path("", include("sites_app.api.urls")),
    *rows_urls("worker-pools", "worker-pool", work.WorkerPoolViewSet),
    *rows_urls("workers", "worker", work.WorkerViewSet),
    *rows_urls("resources", "resource", work.ResourceViewSet),
    path("leases", work.LeasesViewSet.as_view({"get": "list"}), name="lease-list"),
    *bulk_urls(),
    path("account", account.AccountView.as_view(), name="account-api"),
    path("account/tokens/<slug:prefix>", account.AccountTokenView.as_view(), name="account-token"),
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("health", ReadyView.as_view(), name="health"),
    path("schema/", SchemaView.as_view(), name="api-schema"),
    path("auth/flower", FlowerView.as_view(), name="auth-flower"),
    path("docs/", DocsView.as_view(), name="api-docs"),
]

MOVED_AUDIT = RedirectView.as_view(url="/admin/wms2/auditentry/%(rest)s", query_string=True)  # people keep links

urlpatterns = [
    path("", include("requests_app.pages.urls")),
    path("account/", include("wms2.identities.urls")),
    path("login/", SignInView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("accounts/oidc/sso/login/", sso.sign_in, name="sso-login"),
    path("accounts/oidc/sso/login/callback/", sso.callback, name="sso-callback"),
    re_path(r"^admin/requests_app/auditentry/(?P<rest>.*)$", MOVED_AUDIT),
    path("admin/", admin.site.urls),
    path("api/v1/", include(api_v1)),
    re_path(r"^api/", NothingHereView.as_view()),
    path("livez", LiveView.as_view(), name="livez"),
    path("readyz", ReadyView.as_view(), name="readyz"),
]
handler500 = "wms2.api.exceptions.server_error"
