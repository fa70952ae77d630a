"""Admin of sites, pools and schedds."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db.models import Prefetch
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe

from sites_app.bans import bans_active
from sites_app.models import (
    HealthChange,
    Onboarding,
    Pool,
    PoolSite,
    QueueChange,
    Schedd,
    Site,
    SiteBan,
    SiteRse,
    SiteStatus,
    SystemicAlert,
)
from sites_app.schedds import birthdate_text
from sites_app.services import ban_words, closed_words
from wms2.admin import badge_column, rows_admin, said_column, since_column
from wms2.admin.actions import buttons
from wms2.admin.shown import EMPTY, UserColumn
from wms2.web.formatting import number


def _birthdate(name: str, row: Any) -> str:
    return birthdate_text(getattr(row, name))


def _closed(site: Any, user: Any) -> Any:
    """By a status or a ban, by whom, why and until when; with what opens it again, for users who may do that."""
    lines = []
    if site.status != SiteStatus.ENABLED:
        lines.append((closed_words(site), _links(user, site, "enable")))
    for ban in site.active_bans:
        whom = "for all" if ban.workflow is None else f"for {ban.workflow.request_id}"
        lines.append((f"banned {whom}{ban_words(ban)}", _links(user, ban, "lift")))
    return format_html_join(mark_safe("<br>"), "{}{}", lines) if lines else EMPTY


def _links(user: Any, row: Any, name: str) -> SafeString:
    return format_html_join("", ' <a href="{}">{} …</a>', ((each.url, each.label) for each in buttons(user, row, names=[name])))


closed = UserColumn(_closed, "gets no new work")


_BANS = bans_active().select_related("workflow").order_by("expires_at")
_SHOWN = ("site", "workflow__request", "reason", "created_by", "expires_at", "removed_at")
rows_admin(
    Site, "name", "status", closed, "total_slots", "running_slots", "jobs_idle", "jobs_running", "jobs_held",
    "jobs_done", "jobs_failed", "jobs_counted_at", since_column("cric_seen_at", "seen in CRIC"), filters=("status",),
    parts=("name",), order=("name",), first=(closed,), prefetched=(Prefetch("bans", _BANS.only(*_SHOWN), to_attr="active_bans"),),
)  # fmt: skip

rows_admin(SiteRse, "rse", "site", since_column("seen_at", "seen in CRIC"), parts=("rse", "site__name"), order=("rse", "id"))

rows_admin(SiteBan, "id", "site", "workflow", "reason", "expires_at", "=removed_at", filters=("site",), order=("-created_at",))


rows_admin(
    Pool, "name", "state", "collector", "file_system", "jobs_running", "jobs_idle", "spreads", "answered_at", "silent_since",
    "last_error", filters=("state",), parts=("name", "collector"), order=("name",),
    links=(("Schedds", Schedd, "pool"), ("Sites", PoolSite, "pool")),
)  # fmt: skip

rows_admin(
    PoolSite, "pool", "site", "total_slots", "running_slots", "jobs_idle", "jobs_running", "jobs_held", "seen_at",
    filters=("pool",), parts=("site__name",), order=("pool_id", "site_id"),
)  # fmt: skip

rows_admin(
    Onboarding, "schedd", "state", "actor", "reason", "cluster", "created_at", "ended_at", filters=("state",),
    parts=("schedd__name",), order=("-created_at",),
)  # fmt: skip

rows_admin(
    Schedd, "name", "state", badge_column("health", since="health_since"), since_column("unreachable_since", "silent since"),
    "last_error",
    said_column("dagmans", "DAGMans", lambda row: f"{row.dagmans_running} of {row.max_dagman_slots}"),  # ours; how many may run
    "pool", "last_answer_at", since_column("unlisted_since", "not in the collector since"), "health_reason", "onboarding",
    filters=("state", "health", "pool"),
    in_words={
        "job_queue_birthdate": partial(_birthdate, "job_queue_birthdate"),
        "duty_cycle": lambda row: EMPTY if row.duty_cycle is None else number(row.duty_cycle),
    },
    parts=("name", "pool__name"), order=("pool_id", "name"),
    links=(
        ("Health changes", HealthChange, "schedd"), ("Checks", Onboarding, "schedd"), ("Queue changes", QueueChange, "schedd"),
    ),
)  # fmt: skip

rows_admin(HealthChange, "=at", "schedd", badge_column("old"), badge_column("new"), "reason", filters=("new",))

rows_admin(SystemicAlert, "began_at", "=ended_at", "pool", "holds", "reason", "=calm_since")

rows_admin(
    QueueChange, "=seen_at", "schedd", "old_birthdate", "new_birthdate", since_column("old_answered_at", "old one answered"),
    "dagmans_before", in_words={name: partial(_birthdate, name) for name in ("old_birthdate", "new_birthdate")},
)  # fmt: skip
