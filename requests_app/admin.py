"""Admin of requests: look, search, filter. Status fields are read-only; verbs go through services."""

from __future__ import annotations

from django.contrib import admin

from requests_app.models import (
    AuditEntry,
    Event,
    InputFile,
    Installation,
    Lease,
    Limit,
    Request,
    RequestTransition,
    Round,
    Workflow,
)
from wms2.admin import ReadOnlyAdmin


class TransitionInline(admin.TabularInline):
    """The request's history."""

    model = RequestTransition
    extra = 0
    can_delete = False
    readonly_fields = ("from_status", "to_status", "at", "actor", "reason", "evidence")

    def has_add_permission(self, request: object, obj: object = None) -> bool:
        """History is written by transitions."""
        return False


@admin.register(Request)
class RequestAdmin(ReadOnlyAdmin):
    """Requests, those that need somebody first."""

    list_display = ("request_name", "status", "status_since", "priority", "urgent", "campaign", "hold_code", "waiting_for")
    list_filter = ("status", "hold_code", "urgent")
    search_fields = ("request_name", "campaign", "prep_id", "input_dataset", "requestor")
    inlines = (TransitionInline,)


@admin.register(Workflow)
class WorkflowAdmin(ReadOnlyAdmin):
    """Workflows."""

    list_display = ("request", "status", "splitting_algo", "input_dataset", "total_nodes", "created_at")
    list_filter = ("status", "splitting_algo")
    search_fields = ("request__request_name", "input_dataset")


@admin.register(Round)
class RoundAdmin(ReadOnlyAdmin):
    """Rounds."""

    list_display = ("workflow", "index", "created_at", "closed_at")
    search_fields = ("workflow__request__request_name",)
    list_select_related = ("workflow",)


@admin.register(InputFile)
class InputFileAdmin(ReadOnlyAdmin):
    """Input files."""

    list_display = ("lfn", "events", "size_bytes", "excluded_reason")
    search_fields = ("lfn",)


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """Who did what, and why."""

    list_display = ("at", "actor", "action", "target", "outcome", "reason")
    list_filter = ("action", "outcome")
    search_fields = ("target", "actor")


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """The feed."""

    list_display = ("id", "at", "kind", "request")
    list_filter = ("kind",)
    list_select_related = ("request",)


@admin.register(Lease, Limit, Installation)
class ControlAdmin(ReadOnlyAdmin):
    """Leases, limits, the installation."""
