"""Admin of sites and schedds."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from sites_app.models import QueueChange, Schedd, Site, SiteBan, SiteRse
from wms2.admin import ReadOnlyAdmin, badge_column, rows_admin, since_column
from wms2.admin.shown import list_url

rows_admin(
    Site, "name", "status", "status_reason", "total_slots", "running_slots", "jobs_idle", "jobs_running", "jobs_held",
    "jobs_counted_at", since_column("cric_seen_at", "seen in CRIC"), filters=("status",), parts=("name",), order=("name",),
)  # fmt: skip

rows_admin(SiteRse, "rse", "site", since_column("seen_at", "seen in CRIC"), parts=("rse", "site__name"), order=("rse", "id"))

rows_admin(SiteBan, "id", "site", "workflow", "reason", "expires_at", "=removed_at", filters=("site",), order=("-created_at",))


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


rows_admin(
    QueueChange, "=seen_at", "schedd", "old_birthdate", "new_birthdate", since_column("old_answered_at", "old one answered"),
    "dagmans_before",
)  # fmt: skip
