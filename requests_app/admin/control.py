"""Leases, kept accounts, the installation, and the limits that operators change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from requests_app.models import EvaluationLease, Installation, KeptAccount, Lease, Limit
from requests_app.selectors.admission import config_in_force
from requests_app.verbs import limit_rows
from wms2.admin import ReadOnlyAdmin, link_column, since_column
from wms2.admin.verbs import verb_url
from wms2.api.permissions import is_operator
from wms2.conf import Conf


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Who leads."""

    list_display = (
        "name",
        "owner",
        "process",
        "epoch",
        since_column("heartbeat_at", "heartbeat"),
        since_column("expires_at", "expires"),
    )


@admin.register(EvaluationLease)
class EvaluationLeaseAdmin(ReadOnlyAdmin):
    """When each request was looked at, and when it is due again."""

    list_display = (link_column("request"), "due_at", "owner", "epoch", "expires_at", since_column("evaluated_at", "evaluated"))
    exact_search: ClassVar = {"request__request_name": "a request's whole name"}
    ordering = ("pk",)


@admin.register(KeptAccount)
class KeptAccountAdmin(ReadOnlyAdmin):
    """Accounts as they were counted last."""

    list_display = ("workflow_id", "summary", "violation", since_column("counted_at", "counted"), "took_seconds")
    ordering = ("pk",)


@admin.register(Installation)
class InstallationAdmin(ReadOnlyAdmin):
    """Whose database this is."""

    list_display = ("instance", "environment", "created_at")


@admin.register(Limit)
class LimitAdmin(ReadOnlyAdmin):
    """All limits that can be changed at run time, those that nobody changed included."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The table of limits instead of the table of rows."""
        context = {
            **self.admin_site.each_context(request),
            **(extra_context or {}),
            "title": "Limits",
            "opts": self.opts,
            "limits": [
                {
                    "row": limit,
                    "description": Conf.model_fields[limit.name].description or "",
                    "url": verb_url(Limit, "change", [limit.name]) if is_operator(request.user) else "",
                }
                for limit in config_in_force()
            ],
            "media": self.media,
        }
        return TemplateResponse(request, "admin/wms2/limits.html", context)

    def verb_rows(self, keys: Sequence[str]) -> list[Limit]:
        """Those that nobody changed included."""
        return limit_rows(keys)

    def _url(self, row: Any) -> str:
        return reverse("admin:requests_app_limit_changelist")
