"""Admin of sites and schedds."""

from __future__ import annotations

from django.contrib import admin

from sites_app.models import Schedd, Site, SiteBan, SiteRse
from wms2.admin import ReadOnlyAdmin


@admin.register(Site)
class SiteAdmin(ReadOnlyAdmin):
    """Sites."""

    list_display = ("name", "status", "total_slots", "running_slots", "drain_until", "cric_seen_at")
    list_filter = ("status",)
    search_fields = ("name",)


@admin.register(SiteRse)
class SiteRseAdmin(ReadOnlyAdmin):
    """Which storage belongs to which site."""

    list_display = ("site", "rse", "seen_at")
    search_fields = ("rse",)


@admin.register(SiteBan)
class SiteBanAdmin(ReadOnlyAdmin):
    """Bans."""

    list_display = ("site", "workflow", "reason", "expires_at", "removed_at")
    list_select_related = ("site", "workflow")


@admin.register(Schedd)
class ScheddAdmin(ReadOnlyAdmin):
    """Schedds."""

    list_display = ("name", "pool", "state", "dagmans_running", "max_dagman_slots", "last_answer_at", "unreachable_since")
    list_filter = ("state",)
