"""Admin of jobs at sites, and of what they remove."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin

from dags_app.models import Leftover, SiteJob
from wms2.admin import ReadOnlyAdmin, badge_column, link_column, rows_admin, since_column
from wms2.admin.filters import recent_values
from wms2.admin.shown import list_url


@admin.register(SiteJob)
class SiteJobAdmin(ReadOnlyAdmin):
    """Jobs at sites that are no nodes of a DAG, newest first."""

    list_display = (
        "site", "purpose", badge_column("state"), link_column("schedd"), "cluster", "items", "problem",
        since_column("created_at", "created"), since_column("ended_at", "ended"),
    )  # fmt: skip
    list_filter = ("state", "purpose", recent_values("site"))
    exact_search: ClassVar = {"site": "a site", "pk": "a job's id", "cluster": "a cluster"}

    def row_links(self, row: Any) -> list[tuple[str, str]]:
        """What it has removed."""
        return [("Leftovers", list_url(Leftover, f"job__id__exact={row.pk}"))]


rows_admin(
    Leftover, "site", "unit", "job", "removed_files", "problem", "tries", "next_try_at", "settled_at",
    filters=(recent_values("site"),), search={"unit__workflow__request__request_name": "a request's whole name"},
)  # fmt: skip
