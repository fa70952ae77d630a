"""Admin of what rounds measured and what was decided from it: look, search, filter."""

from __future__ import annotations

from django.contrib import admin

from dags_app.models import SizingDecision, StepMeasurement
from wms2.admin import ReadOnlyAdmin, link_column
from wms2.admin.filters import recent_values


@admin.register(StepMeasurement)
class StepMeasurementAdmin(ReadOnlyAdmin):
    """Steps by how they ran, newest first."""

    list_display = ("step", link_column("round"), "processes", "threads", "jobs", "events_read", "events_written", "updated_at")
    list_filter = (recent_values("step"),)
    list_select_related = ("round",)
    exact_search = ("round__workflow__request__request_name",)
    search_help_text = "A request's whole name."
    ordering = ("-id",)


@admin.register(SizingDecision)
class SizingDecisionAdmin(ReadOnlyAdmin):
    """Decisions, newest first."""

    list_display = (
        "what", link_column("dag", "DAG"), "task", "step", "before", "measured", "chosen", "bound", "pinned", "why", "created_at",
    )  # fmt: skip
    list_filter = ("pinned", recent_values("what"))
    list_select_related = ("dag",)
    exact_search = ("dag__workflow__request__request_name", "dag__pk")
    search_help_text = "A request's whole name, or a DAG's id."
    ordering = ("-id",)
