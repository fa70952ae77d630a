"""Admin of sites and schedds."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from sites_app.models import QueueChange, Schedd, Site, SiteBan, SiteRse
from wms2.admin import ReadOnlyAdmin, badge_column, link_column, since_column
from wms2.admin.shown import list_url


@admin.register(Site)
class SiteAdmin(ReadOnlyAdmin):
    """Sites."""

    list_display = (
        "name", badge_column("status"), "status_reason", "total_slots", "running_slots", "jobs_idle",
        "jobs_running", "jobs_held", since_column("jobs_counted_at", "jobs counted"),
        since_column("cric_seen_at", "seen in CRIC"),
    )  # fmt: skip
    list_filter = ("status",)
    search_fields = ("name",)
    ordering = ("name",)


@admin.register(SiteRse)
class SiteRseAdmin(ReadOnlyAdmin):
    """Which storage belongs to which site."""

    list_display = ("rse", link_column("site"), since_column("seen_at", "seen in CRIC"))
    search_fields = ("rse", "site__name")
    ordering = ("rse", "id")


@admin.register(SiteBan)
class SiteBanAdmin(ReadOnlyAdmin):
    """Bans, newest first."""

    list_display = (
        "id", link_column("site"), link_column("workflow"), "reason", since_column("expires_at", "expires"), "removed_at",
    )  # fmt: skip
    list_filter = ("site",)
    ordering = ("-created_at",)


@admin.register(Schedd)
class ScheddAdmin(ReadOnlyAdmin):
    """Schedds."""

    list_display = (
        "name", "pool", badge_column("state"), "dagmans_running", "max_dagman_slots",
        since_column("last_answer_at", "last answer"), since_column("unreachable_since", "silent since"), "last_error",
    )  # fmt: skip
    list_filter = ("state",)
    search_fields = ("name", "pool")
    ordering = ("pool", "name")

    def row_links(self, row: Any) -> list[tuple[str, str]]:
        """Evidence that its queue was lost."""
        return [("Queue changes", list_url(QueueChange, f"schedd__id__exact={row.pk}"))]


@admin.register(QueueChange)
class QueueChangeAdmin(ReadOnlyAdmin):
    """Schedds that came back with another job queue, newest first."""

    list_display = (
        "seen_at", link_column("schedd"), "old_birthdate", "new_birthdate", since_column("old_answered_at", "old one answered"),
        "dagmans_before",
    )  # fmt: skip
