"""Admin of what rounds measured and what was decided from it: look, search, filter."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin

from dags_app.models import SizingDecision, StepMeasurement
from wms2.admin import ReadOnlyAdmin, link_column
from wms2.admin.filters import recent_values


@admin.register(StepMeasurement)
class StepMeasurementAdmin(ReadOnlyAdmin):
    """Steps by how they ran, newest first."""

    list_display = ("step", link_column("round"), "processes", "threads", "jobs", "events_read", "events_written", "updated_at")
    list_filter = (recent_values("step"),)
    exact_search: ClassVar = {"round__workflow__request__request_name": "a request's whole name"}


@admin.register(SizingDecision)
class SizingDecisionAdmin(ReadOnlyAdmin):
    """Decisions, newest first."""

    list_display = (
        "what", link_column("dag", "DAG"), "task", "step", "before", "measured", "chosen", "bound", "pinned", "why", "created_at",
    )  # fmt: skip
    list_filter = ("pinned", recent_values("what"))
    exact_search: ClassVar = {"dag__workflow__request__request_name": "a request's whole name", "dag__pk": "a DAG's id"}
