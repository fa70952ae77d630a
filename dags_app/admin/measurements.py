"""Admin of what rounds measured and what was decided from it: look, search, filter."""

from __future__ import annotations

from dags_app.models import SizingDecision, StepMeasurement
from wms2.admin import link_column, rows_admin
from wms2.admin.filters import recent_values

rows_admin(
    StepMeasurement, "step", "round", "processes", "threads", "jobs", "events_read", "events_written", "=updated_at",
    filters=(recent_values("step"),), search={"round__workflow__request__request_name": "a request's whole name"},
)  # fmt: skip

rows_admin(
    SizingDecision, "what", link_column("dag", "DAG"), "task", "step", "before", "measured", "chosen", "bound", "pinned", "why",
    "=created_at", filters=("pinned", recent_values("what")),
    search={"dag__workflow__request__request_name": "a request's whole name", "dag__pk": "a DAG's id"},
)  # fmt: skip
