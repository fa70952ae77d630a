"""Workflows, rounds, input files and pileup in the admin."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin

from dags_app.models import StepMeasurement
from requests_app.models import InputFile, InputLumis, PileupBlock, PileupDataset, Round, Workflow
from wms2.admin import OF_REQUEST, ReadOnlyAdmin, badge_column, link_column, since_column
from wms2.admin.shown import list_url


@admin.register(Workflow)
class WorkflowAdmin(ReadOnlyAdmin):
    """Workflows, newest first."""

    list_display = (
        "__str__", badge_column("status"), link_column("request"), "splitting_algo", "input_dataset", "requested_events",
    )  # fmt: skip
    list_filter = ("status",)
    search_fields = ("request__request_name", "input_dataset")
    ordering = ("-number",)


@admin.register(Round)
class RoundAdmin(ReadOnlyAdmin):
    """Rounds, newest first."""

    list_display = (
        "__str__", link_column("workflow"), since_column("created_at", "created"), since_column("closed_at", "closed"),
    )  # fmt: skip
    exact_search: ClassVar = OF_REQUEST

    def row_links(self, row: Any) -> list[tuple[str, str]]:
        """What it measured."""
        return [("Measurements", list_url(StepMeasurement, f"round__id__exact={row.pk}"))]


@admin.register(InputFile)
class InputFileAdmin(ReadOnlyAdmin):
    """Input files."""

    list_display = (
        "lfn", link_column("workflow"), "events", "size_bytes", "excluded_kind", "excluded_reason", "excluded_by",
        since_column("excluded_at", "left out"), since_column("waiting_since", "waits for a site"), "waiting_reason",
    )  # fmt: skip
    list_filter = ("excluded_kind", ("waiting_since", admin.EmptyFieldListFilter))
    exact_search: ClassVar = {**OF_REQUEST, "lfn": "a whole LFN"}


@admin.register(InputLumis)
class InputLumisAdmin(ReadOnlyAdmin):
    """Lumis that requests split by lumi want, and those that nobody can give."""

    list_display = ("id", link_column("workflow"), "run", "span", "fate", "reason")
    list_filter = ("fate",)
    exact_search: ClassVar = OF_REQUEST


@admin.register(PileupDataset)
class PileupDatasetAdmin(ReadOnlyAdmin):
    """One row for each dataset that some request mixes; read again when it is older than ``WMS2_PILEUP_CACHE_SECONDS``."""

    list_display = ("name", "resolved_at")
    exact_search: ClassVar = {"name": "a dataset's whole name"}
    ordering = ("name",)


@admin.register(PileupBlock)
class PileupBlockAdmin(ReadOnlyAdmin):
    """Blocks with the RSEs that hold all of them."""

    list_display = ("name", link_column("dataset"), "events", "rses")
    exact_search: ClassVar = {"name": "a block's whole name", "dataset__name": "a dataset's whole name"}
    ordering = ("id",)
