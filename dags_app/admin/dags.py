"""Admin of DAGs, work units, what rounds measured and what follows, and jobs at sites: look, search, filter."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest

from dags_app.counts import jobs_by_site
from dags_app.models import DAG, DAGHistory, Leftover, SiteJob, SizingDecision, StepMeasurement, WorkUnit, WorkUnitClaim
from sites_app.schedds import birthdate_text
from wms2.admin import OF_REQUEST, ReadOnlyAdmin, badge_column, link_column, rows_admin, said_column, since_column
from wms2.admin.filters import recent_values
from wms2.admin.shown import EMPTY, json_shown, short
from wms2.web.formatting import ago


@admin.register(DAG)
class DAGAdmin(ReadOnlyAdmin):
    """DAG submissions, newest first."""

    list_display = (
        said_column("short_id", "id", lambda row: short(row.pk)), badge_column("status"), link_column("workflow"),
        said_column("units", "units done", lambda row: f"{row.units_done} of {row.total_work_units}"),
        # of node jobs in the queue
        said_column("nodes", "jobs idle, running, held", lambda row: f"{row.nodes_idle}, {row.nodes_running}, {row.nodes_held}"),
        # when the schedd's answer had its node jobs last
        said_column("counted", "jobs counted", lambda row: ago(row.seen_at) if row.seen_at else EMPTY),
        since_column("submitted_at", "submitted"), since_column("completed_at", "ended"), link_column("schedd"),
        # its cluster in the schedd's queue
        said_column("dagman_job", "DAGMan job", lambda row: row.dagman_cluster_id or EMPTY),
    )  # fmt: skip
    list_filter = ("status", "kind", "schedd")
    exact_search: ClassVar = {**OF_REQUEST, "pk": "a DAG's id", "dagman_cluster_id": "a DAGMan cluster"}
    links = (("History", DAGHistory, "dag"), ("Work units", WorkUnit, "dag"), ("Sizing decisions", SizingDecision, "dag"))
    ordering = ("-round_id", "-fence")  # over an index; rounds are numbered as they are made

    in_words: ClassVar = {"queue_birthdate": lambda row: birthdate_text(row.queue_birthdate)}

    @admin.display(description="jobs by site, ended ones of its round")
    def sites(self, row: Any) -> Any:
        """Those in the queue, and those that ended well and badly."""
        return json_shown(jobs_by_site(row))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """With what is counted."""
        return [*super().get_fields(request, obj), "sites"]


rows_admin(
    DAGHistory, "=created_at", link_column("dag", "DAG"), "event_type", "from_status", "to_status",
    filters=(recent_values("event_type"),),
)  # fmt: skip


rows_admin(
    WorkUnit, "name", "state", "problem", "workflow", "round", "site", "jobs", "events", "done_at",
    filters=("state", recent_values("site")), search=OF_REQUEST, links=(("Claims", WorkUnitClaim, "unit"),),
)  # fmt: skip

rows_admin(
    WorkUnitClaim, "id", "unit", "kind", "scope", "run", "first", "last", "events", "live", filters=("live",),
    search={"unit__workflow__request__request_name": "a request's whole name"},
)  # fmt: skip

rows_admin(
    StepMeasurement, "step", "round", "processes", "threads", "jobs", "events_read", "events_written", "=updated_at",
    filters=(recent_values("step"),), search={"round__workflow__request__request_name": "a request's whole name"},
)  # fmt: skip

rows_admin(
    SizingDecision, "what", link_column("dag", "DAG"), "task", "step", "before", "measured", "chosen", "bound", "pinned", "why",
    "=created_at", filters=("pinned", recent_values("what")),
    search={"dag__workflow__request__request_name": "a request's whole name", "dag__pk": "a DAG's id"},
)  # fmt: skip

rows_admin(
    SiteJob, "site", "purpose", "state", "schedd", "cluster", "items", "problem", "created_at", "ended_at",
    filters=("state", "purpose", recent_values("site")), links=(("Leftovers", Leftover, "job"),),
    search={"site": "a site", "pk": "a job's id", "cluster": "a cluster"},
)  # fmt: skip

rows_admin(
    Leftover, "site", "unit", "job", "removed_files", "problem", "tries", "next_try_at", "settled_at",
    filters=(recent_values("site"),), search={"unit__workflow__request__request_name": "a request's whole name"},
)  # fmt: skip
