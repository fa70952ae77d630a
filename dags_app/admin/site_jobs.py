"""Admin of jobs at sites, and of what they remove."""

from __future__ import annotations

from dags_app.models import Leftover, SiteJob
from wms2.admin import rows_admin
from wms2.admin.filters import recent_values

rows_admin(
    SiteJob, "site", "purpose", "state", "schedd", "cluster", "items", "problem", "created_at", "ended_at",
    filters=("state", "purpose", recent_values("site")), links=(("Leftovers", Leftover, "job"),),
    search={"site": "a site", "pk": "a job's id", "cluster": "a cluster"},
)  # fmt: skip

rows_admin(
    Leftover, "site", "unit", "job", "removed_files", "problem", "tries", "next_try_at", "settled_at",
    filters=(recent_values("site"),), search={"unit__workflow__request__request_name": "a request's whole name"},
)  # fmt: skip
