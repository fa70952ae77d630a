"""Leases, kept accounts, the installation, and the limits that operators change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from requests_app.control_verbs import limit_rows
from requests_app.models import (
    AdmissionBucket,
    AdmissionLimit,
    AdmissionState,
    DeadLetter,
    EvaluationLease,
    Installation,
    KeptAccount,
    Lease,
    Limit,
    Reconciliation,
    ServiceLevel,
)
from requests_app.selectors.admission import config_in_force
from wms2.admin import BY_REQUEST, ReadOnlyAdmin, rows_admin
from wms2.admin.verbs import verb_url
from wms2.api.permissions import is_operator

rows_admin(Lease, "name", "owner", "process", "epoch", "heartbeat_at", "expires_at")

# When each request was looked at, and when it is due again.
rows_admin(
    EvaluationLease, "request", "=due_at", "owner", "epoch", "=expires_at", "evaluated_at", search=BY_REQUEST, order=("pk",),
)  # fmt: skip

# What no retry brings on any more; why, and what to do, is said by the page of its verbs.
rows_admin(
    DeadLetter, "what", "kind", "request", "attempts", "since", "last_error", filters=("kind",), order=("since",),
    search={**BY_REQUEST, "row": "a row's number or a task's name"},
)  # fmt: skip

rows_admin(Reconciliation, "id", "asked_by", "reason", "=asked_at", "=begun_at", "=ended_at", "found")

rows_admin(KeptAccount, "workflow_id", "summary", "violation", "counted_at", "took_seconds", order=("pk",))

# How the service stands; its history is the audit's, target "level".
rows_admin(ServiceLevel, "name", "level", "reason", "=since", "stopped_by", "stopped_reason", "trouble", "=updated_at")

rows_admin(
    AdmissionLimit, "kind", "name", "least_priority", "max_dags", "rate_per_hour", "burst", "reason", "actor", "updated_at",
    filters=("kind",), parts=("name",), order=("kind", "name"),
)  # fmt: skip

rows_admin(AdmissionBucket, "kind", "name", "=full_at", filters=("kind",), parts=("name",))

rows_admin(AdmissionState, "stopped", "flooded_since", "passed_over")

rows_admin(Installation, "instance", "environment", "=created_at")


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
