"""What is only ever appended: transitions and events."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from requests_app.models import Event, EventFeed, Progress, ProgressSample, RequestGroup, RequestStatus, RequestTransition
from wms2.admin import BY_REQUEST, ReadOnlyAdmin, rows_admin
from wms2.admin.filters import recent_values
from wms2.admin.shown import EMPTY, badge
from wms2.words import word


@admin.display(description="from")
def from_badge(row: RequestTransition) -> str:
    """The former status."""
    return badge(row.from_status, word(RequestStatus, row.from_status).label) if row.from_status else EMPTY


@admin.display(description="to")
def to_badge(row: RequestTransition) -> str:
    """The new status."""
    return badge(row.to_status, word(RequestStatus, row.to_status).label)


rows_admin(RequestTransition, "=at", "request", from_badge, to_badge, "actor", "reason", search=BY_REQUEST)


@admin.register(RequestGroup)
class RequestGroupAdmin(ReadOnlyAdmin):
    """Groups, newest first; where one stands is on its live page."""

    list_display = ("name", "note", "created_by", "created_at")
    search_fields = ("name",)

    def row_links(self, row: Any) -> list[tuple[str, str]]:
        """The live page."""
        return [("Live page", row.get_absolute_url())]


_COUNTERS = ("=at", "request", "units_done", "units", "jobs_running", "jobs_idle")
rows_admin(Progress, *_COUNTERS, search=BY_REQUEST)
rows_admin(ProgressSample, *_COUNTERS, "mean", filters=("mean",), search=BY_REQUEST)
rows_admin(EventFeed, "id", "last", "removed")
rows_admin(Event, "position", "=at", "kind", "request", filters=(recent_values("kind"),), search=BY_REQUEST)
