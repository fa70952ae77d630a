"""Sites, pools and schedds as JSON. Spec 3.1.5."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from sites_app.models import HealthChange, Onboarding, Pool, PoolSite, Schedd, Site, SiteBan, SystemicAlert
from wms2.api.answers import Computed, rows

SiteBanSerializer = rows(
    "SiteBan", SiteBan, "A ban in force.",
    "id", "workflow_id=workflow_id", "reason", "created_by", "created_at", "expires_at",
    workflow_id="null: for every workflow",
)  # fmt: skip
_SITE = (
    "name", "status", "status_reason", "status_actor", "total_slots", "running_slots", "drain_until", "rses", "bans",
    "jobs_idle", "jobs_running", "jobs_held", "jobs_done", "jobs_failed", "jobs_counted_at", "cric_seen_at", "slots_seen_at",
    "updated_at",
)  # fmt: skip
_PREFETCHED: dict[str, Any] = {
    "rses": Computed(
        lambda site: [pair.rse for pair in site.rses.all()], serializers.ListField(child=serializers.CharField()),
        column="name", help_text="storage its jobs read and write, by CRIC",
    ),
    "bans": Computed(
        lambda site: len(site.active_bans), serializers.IntegerField(), column="name", help_text="how many bans are in force"
    ),
}  # fmt: skip
SiteListSerializer = rows("SiteList", Site, "One line of the list.", *_SITE, **_PREFETCHED)
SiteSerializer = rows(
    "Site", Site, "One site with its bans and configuration.", *_SITE, "active_bans", "config_data",
    active_bans=SiteBanSerializer(many=True), **_PREFETCHED,
)  # fmt: skip
PoolSiteSerializer = rows(
    "PoolSite", PoolSite, "A site in a pool.",
    "pool", "site", "total_slots", "running_slots", "jobs_idle", "jobs_running", "jobs_held", "seen_at",
)  # fmt: skip
_POOL = (
    "name", "state", "collector", "token_dir", "file_system", "jobs_idle", "jobs_running", "answered_at", "silent_since",
    "last_error",
)  # fmt: skip
PoolListSerializer = rows("PoolList", Pool, "One line of the list; jobs are those of all owners.", *_POOL)
PoolSerializer = rows("Pool", Pool, "One pool with what it has at each site.", *_POOL, sites=PoolSiteSerializer(many=True))
OnboardingSerializer = rows(
    "Onboarding", Onboarding, "One time that a schedd was checked.",
    "id", "state", "checks", "cluster", "actor", "reason", "created_at", "ended_at",
)  # fmt: skip
HealthChangeSerializer = rows(
    "HealthChange", HealthChange, "The health of a schedd has changed.", "at", "old", "new", "reason", "signals"
)
SystemicAlertSerializer = rows(
    "SystemicAlert", SystemicAlert, "Schedds or sites turned bad together.",
    "id", "pool", "holds", "reason", "began_at", "calm_since", "ended_at",
)  # fmt: skip
_SCHEDD = (
    "pool", "name", "state", "health", "health_reason", "health_since", "max_dagman_slots", "dagmans_running", "dagmans_others",
    "owner_dagmans", "duty_cycle", "submit_root", "version", "owner", "onboarded_at", "onboarding", "last_answer_at",
    "unreachable_since", "unlisted_since", "last_error",
)  # fmt: skip
ScheddLineSerializer = rows("ScheddLine", Schedd, "One line of the list.", *_SCHEDD)
ScheddRowSerializer = rows(
    "ScheddRow", Schedd, "One schedd, each time that it was checked, and the last changes of its health.",
    *_SCHEDD,
    onboardings=OnboardingSerializer(many=True),
    health_changes=Computed(
        lambda schedd: HealthChangeSerializer(schedd.health_changes.all()[:50], many=True).data,
        HealthChangeSerializer(many=True), help_text="the last 50",
    ),
)  # fmt: skip
