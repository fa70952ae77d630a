"""Admin of DAGs and work units: look, search, filter."""

from __future__ import annotations

from django.contrib import admin

from dags_app.models import DAG, DAGHistory, WorkUnit, WorkUnitClaim
from wms2.admin import ReadOnlyAdmin


@admin.register(DAG)
class DAGAdmin(ReadOnlyAdmin):
    """DAG submissions."""

    list_display = (
        "id",
        "workflow",
        "status",
        "kind",
        "schedd_name",
        "dagman_cluster_id",
        "units_done",
        "total_work_units",
        "created_at",
    )
    list_filter = ("status", "kind", "schedd_name")
    search_fields = ("id", "dagman_cluster_id", "workflow__request__request_name")
    list_select_related = ("workflow",)


@admin.register(DAGHistory)
class DAGHistoryAdmin(ReadOnlyAdmin):
    """What happened to DAGs."""

    list_display = ("created_at", "dag", "event_type", "from_status", "to_status")
    list_filter = ("event_type",)


@admin.register(WorkUnit)
class WorkUnitAdmin(ReadOnlyAdmin):
    """Work units."""

    list_display = ("name", "workflow", "state", "site", "jobs", "events", "problem", "done_at")
    list_filter = ("state", "site")
    search_fields = ("name", "workflow__request__request_name")
    list_select_related = ("workflow",)


@admin.register(WorkUnitClaim)
class WorkUnitClaimAdmin(ReadOnlyAdmin):
    """Claims."""

    list_display = ("id", "unit", "kind", "scope", "run", "span", "live")
    list_filter = ("live",)
    list_select_related = ("unit",)
