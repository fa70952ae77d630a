"""Workflows, rounds and input files in the admin."""

from __future__ import annotations

from django.contrib import admin

from requests_app.models import InputFile, InputLumis, Round, Workflow
from wms2.admin import ReadOnlyAdmin, badge_column, link_column, since_column


@admin.register(Workflow)
class WorkflowAdmin(ReadOnlyAdmin):
    """Workflows, newest first."""

    list_display = (
        "__str__", badge_column("status"), link_column("request"), "splitting_algo", "input_dataset", "requested_events",
    )  # fmt: skip
    list_filter = ("status",)
    list_select_related = ("request",)
    search_fields = ("request__request_name", "input_dataset")
    ordering = ("-number",)


@admin.register(Round)
class RoundAdmin(ReadOnlyAdmin):
    """Rounds, newest first."""

    list_display = (
        "__str__", link_column("workflow"), since_column("created_at", "created"), since_column("closed_at", "closed"),
    )  # fmt: skip
    list_select_related = ("workflow",)
    exact_search = ("workflow__request__request_name",)
    search_help_text = "A request's whole name."
    ordering = ("-id",)


@admin.register(InputFile)
class InputFileAdmin(ReadOnlyAdmin):
    """Input files."""

    list_display = (
        "lfn", link_column("workflow"), "events", "size_bytes", "excluded_kind", "excluded_reason", "excluded_by",
        since_column("excluded_at", "left out"), since_column("waiting_since", "waits for a site"), "waiting_reason",
    )  # fmt: skip
    list_filter = ("excluded_kind", ("waiting_since", admin.EmptyFieldListFilter))
    list_select_related = ("workflow",)
    exact_search = ("workflow__request__request_name", "lfn")
    search_help_text = "A request's whole name, or a whole LFN."
    ordering = ("-id",)


@admin.register(InputLumis)
class InputLumisAdmin(ReadOnlyAdmin):
    """Lumis that requests split by lumi want, and those that nobody can give."""

    list_display = ("id", link_column("workflow"), "run", "span", "fate", "reason")
    list_filter = ("fate",)
    list_select_related = ("workflow",)
    exact_search = ("workflow__request__request_name",)
    search_help_text = "A request's whole name."
    ordering = ("-id",)
