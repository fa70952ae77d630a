"""Sites, pools and schedds as JSON. Spec 3.1.5."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from sites_app.models import HealthChange, Onboarding, Pool, PoolSite, Schedd, Site, SiteBan, SystemicAlert


class SiteBanSerializer(serializers.ModelSerializer):
    """A ban in force."""

    workflow_id = serializers.UUIDField(allow_null=True, help_text="null: for every workflow")

    class Meta:
        model = SiteBan
        fields: tuple[str, ...] = ("id", "workflow_id", "reason", "created_by", "created_at", "expires_at")


class SiteListSerializer(serializers.ModelSerializer):
    """One line of the list."""

    computed_from: ClassVar = {"rses": "name", "bans": "name"}
    rses = serializers.SerializerMethodField(help_text="storage its jobs read and write, by CRIC")
    bans = serializers.SerializerMethodField(help_text="how many bans are in force")

    class Meta:
        model = Site
        fields: tuple[str, ...] = (
            "name", "status", "status_reason", "status_actor", "total_slots", "running_slots", "drain_until", "rses",
            "bans", "jobs_idle", "jobs_running", "jobs_held", "jobs_done", "jobs_failed", "jobs_counted_at", "cric_seen_at",
            "slots_seen_at", "updated_at",
        )  # fmt: skip

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_rses(self, site: Any) -> list[str]:
        """Prefetched."""
        return [pair.rse for pair in site.rses.all()]

    def get_bans(self, site: Any) -> int:
        """Prefetched."""
        return len(site.active_bans)


class SiteSerializer(SiteListSerializer):
    """One site with its bans and configuration."""

    active_bans = SiteBanSerializer(many=True)

    class Meta(SiteListSerializer.Meta):
        fields: tuple[str, ...] = (*SiteListSerializer.Meta.fields, "active_bans", "config_data")


class PoolSiteSerializer(serializers.ModelSerializer):
    """A site in a pool."""

    class Meta:
        model = PoolSite
        fields: tuple[str, ...] = (
            "pool", "site", "total_slots", "running_slots", "jobs_idle", "jobs_running", "jobs_held", "seen_at",
        )  # fmt: skip


class PoolListSerializer(serializers.ModelSerializer):
    """One line of the list; jobs are those of all owners."""

    class Meta:
        model = Pool
        fields: tuple[str, ...] = (
            "name", "state", "collector", "token_dir", "file_system", "jobs_idle", "jobs_running", "answered_at", "silent_since",
            "last_error",
        )  # fmt: skip


class PoolSerializer(PoolListSerializer):
    """One pool with what it has at each site."""

    sites = PoolSiteSerializer(many=True)

    class Meta(PoolListSerializer.Meta):
        fields: tuple[str, ...] = (*PoolListSerializer.Meta.fields, "sites")


class OnboardingSerializer(serializers.ModelSerializer):
    """One time that a schedd was checked."""

    class Meta:
        model = Onboarding
        fields: tuple[str, ...] = ("id", "state", "checks", "cluster", "actor", "reason", "created_at", "ended_at")


class HealthChangeSerializer(serializers.ModelSerializer):
    """The health of a schedd has changed."""

    class Meta:
        model = HealthChange
        fields: tuple[str, ...] = ("at", "old", "new", "reason", "signals")


class SystemicAlertSerializer(serializers.ModelSerializer):
    """Schedds or sites turned bad together."""

    class Meta:
        model = SystemicAlert
        fields: tuple[str, ...] = ("id", "pool", "holds", "reason", "began_at", "calm_since", "ended_at")


class ScheddLineSerializer(serializers.ModelSerializer):
    """One line of the list."""

    class Meta:
        model = Schedd
        fields: tuple[str, ...] = (
            "pool", "name", "state", "health", "health_reason", "health_since", "max_dagman_slots", "dagmans_running",
            "dagmans_others", "owner_dagmans", "duty_cycle", "submit_root", "version", "owner", "onboarded_at", "onboarding",
            "last_answer_at", "unreachable_since", "unlisted_since", "last_error",
        )  # fmt: skip


class ScheddRowSerializer(ScheddLineSerializer):
    """One schedd, each time that it was checked, and the last changes of its health."""

    onboardings = OnboardingSerializer(many=True)
    health_changes = serializers.SerializerMethodField(help_text="the last 50")

    class Meta(ScheddLineSerializer.Meta):
        fields: tuple[str, ...] = (*ScheddLineSerializer.Meta.fields, "onboardings", "health_changes")

    @extend_schema_field(HealthChangeSerializer(many=True))
    def get_health_changes(self, schedd: Any) -> Any:
        """The newest first."""
        return HealthChangeSerializer(schedd.health_changes.all()[:50], many=True).data
