"""Addresses of the provider: OpenID Connect with its device flow, signing in and out."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("", include("allauth.idp.urls")), path("accounts/", include("allauth.account.urls"))]
