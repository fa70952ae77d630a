"""Rows of requests_app that are only looked at, and the limits that operators change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from dags_app.models import StepMeasurement
from requests_app import models
from requests_app.actions.control import limit_rows
from requests_app.models import LEADER_LEASE, Limit, RequestStatus, RequestTransition
from requests_app.selectors.admission import config_in_force
from requests_app.selectors.reqmgr2 import POLL
from wms2.admin import BY_REQUEST, OF_REQUEST, ReadOnlyAdmin, rows_admin, said_column, since_column
from wms2.admin.actions import action_url
from wms2.admin.filters import recent_values
from wms2.admin.shown import EMPTY, badge
from wms2.identities.grants import is_operator
from wms2.web.formatting import word

rows_admin(
    models.Workflow, "__str__", "status", "request", "splitting_algo", "input_dataset", "requested_events", filters=("status",),
    parts=("request__request_name", "input_dataset"), order=("-number",),
)  # fmt: skip

rows_admin(
    models.Round, "__str__", "workflow", "created_at", "closed_at", search=OF_REQUEST,
    links=(("Measurements", StepMeasurement, "round"),),
)  # fmt: skip

rows_admin(
    models.InputFile, "lfn", "workflow", "events", "size_bytes", "excluded_kind", "excluded_reason", "excluded_by",
    since_column("excluded_at", "left out"), since_column("waiting_since", "waits for a site"), "waiting_reason",
    filters=("excluded_kind", ("waiting_since", admin.EmptyFieldListFilter)), search={**OF_REQUEST, "lfn": "a whole LFN"},
)  # fmt: skip

# Lumis that requests split by lumi want, and those that no file has.
rows_admin(models.InputLumis, "id", "workflow", "run", "span", "fate", "reason", filters=("fate",), search=OF_REQUEST)

# One row for each dataset that some request mixes; read again when it is older than six hours.
rows_admin(models.PileupDataset, "name", "=resolved_at", search={"name": "a dataset's whole name"}, order=("name",))

rows_admin(
    models.PileupBlock, "name", "dataset", "events", "rses",
    search={"name": "a block's whole name", "dataset__name": "a dataset's whole name"}, order=("id",),
)  # fmt: skip

rows_admin(
    models.Harvest, "dataset", "run", "request", "state", "job", "attempts", "problem", "next_try_at", "ended_at",
    filters=("state",), search={**BY_REQUEST, "dataset": "a dataset's whole name"},
)  # fmt: skip

rows_admin(
    models.Campaign, "name", "owner", "=begins_at", "=ends_at", "note", "=first_at", parts=("name", "owner"), order=("name",)
)

rows_admin(models.RequestGroup, "name", "note", "created_by", "=created_at", parts=("name",))


# What was last seen in ReqMgr2, newest first; refused ones have no request here, clones that it has not made yet no name there.
rows_admin(
    models.ReqMgr2Request, said_column("name_there", "name there", lambda row: row.name or "a clone to be made"), "request",
    "status", "compared_at", "elements", "problem", filters=("over", "elements"),
    search={"name": "a request's whole name in ReqMgr2"},
)  # fmt: skip


def _status(value: str) -> str:
    return badge(value, word(RequestStatus, value).label) if value else EMPTY


rows_admin(
    RequestTransition, "=at", "request", said_column("from_badge", "from", lambda row: _status(row.from_status)),
    said_column("to_badge", "to", lambda row: _status(row.to_status)), "actor", "reason", search=BY_REQUEST,
)  # fmt: skip

rows_admin(models.Event, "id", "position", "=at", "kind", "request", filters=(recent_values("kind"),), search=BY_REQUEST)


#: What the rows of the list of leases are; that of the last poll of ReqMgr2 has no owner.
_LEASES = {
    LEADER_LEASE: "the right to run the life cycle: its owner leads",
    POLL: "no lease: the heartbeat is when ReqMgr2 was last asked with success",
}


rows_admin(
    models.Lease, "name", said_column("lease_is", "what it is", lambda row: _LEASES.get(row.name, EMPTY)), "owner", "process",
    said_column("lease_epoch", "epoch", lambda row: str(row.epoch or EMPTY)), "heartbeat_at", "expires_at",
)  # fmt: skip

# What no retry brings on any more; why, and what to do, is said by the page of its operations.
rows_admin(
    models.DeadLetter, "what", "kind", "request", "attempts", "since", "last_error", filters=("kind",), order=("since",),
    search={**BY_REQUEST, "row": "a row's number or a task's name"},
)  # fmt: skip

rows_admin(
    models.Alert, "subject", "code", "cause", "severity", "request", "since", "=ended_at", "owner", "=silenced_until", "count",
    filters=("severity", recent_values("code"), ("ended_at", admin.EmptyFieldListFilter)),
    search={"subject": "whom it concerns, whole", **BY_REQUEST, "code": "a code"},
)  # fmt: skip

# Where alerts are sent; a new one is added with the service's level. Secrets are files that the settings name.
rows_admin(
    models.AlertChannel, "name", "kind", "address", "enabled", "digest", "heartbeat", "sent_at", "failing_since", "last_error",
    filters=("kind", "enabled"), parts=("name",), order=("name",), links=(("Routes", models.AlertRoute, "channel"),),
)  # fmt: skip

rows_admin(models.AlertRoute, "__str__", "channel", "code", "severity", "campaign", "site", "request_name", "actor", "reason")

rows_admin(
    models.AlertMessage, "__str__", "kind", "channel", "user", "created_at", "=sent_at", "attempts", "next_attempt_at",
    "last_error", order=("-created_at",), filters=("kind", ("sent_at", admin.EmptyFieldListFilter)),
)  # fmt: skip

rows_admin(models.AlertNotice, "alert", "channel", "user", "last_at", "over")

rows_admin(models.RequestWatch, "request", "user", "created_at", search=BY_REQUEST)

rows_admin(models.Reconciliation, "id", "asked_by", "reason", "=asked_at", "=begun_at", "=ended_at", "found")

# How the service stands; its history is the audit's, target "level".
rows_admin(models.ServiceLevel, "name", "level", "reason", "=since", "stopped_by", "stopped_reason", "trouble", "=updated_at")

rows_admin(
    models.AdmissionLimit, "kind", "name", "least_priority", "max_dags", "rate_per_hour", "burst", "hard", "reason", "actor",
    "updated_at", filters=("kind",), parts=("name",), order=("kind", "name"),
)  # fmt: skip


@admin.register(Limit)
class LimitAdmin(ReadOnlyAdmin):
    """All limits that can be changed at run time, those that were never changed included."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The table of limits instead of the table of rows."""
        acts = is_operator(request.user)
        context = {
            **self.admin_site.each_context(request),
            **(extra_context or {}),
            "title": "Limits",
            "opts": self.opts,
            "limits": [
                {"row": limit, "url": action_url(Limit, "change", [limit.name]) if acts else ""} for limit in config_in_force()
            ],
            "media": self.media,
        }
        return TemplateResponse(request, "admin/wms2/limits.html", context)

    def action_rows(self, keys: Sequence[str]) -> list[Limit]:
        """Those that were never changed included."""
        return limit_rows(keys)

    def _url(self, row: Any) -> str:
        return reverse("admin:requests_app_limit_changelist")
