"""The audit in the admin: who did what, and why."""

from __future__ import annotations

from django.contrib import admin

from wms2.admin.filters import recent_values
from wms2.admin.readonly import ReadOnlyAdmin
from wms2.models import AuditEntry


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """Who did what, and why; newest first."""

    list_display = ("at", "actor", "action", "target", "outcome", "reason")
    list_filter = (recent_values("action"), recent_values("outcome"), recent_values("actor"))
    exact_search = ("target", "actor")
    search_help_text = "A target's whole name (a request's, a limit's, a schedd's), or an actor's."
    ordering = ("-id",)
