"""Workflows, rounds, input files and pileup in the admin."""

from __future__ import annotations

from django.contrib import admin

from dags_app.models import StepMeasurement
from requests_app.models import InputFile, InputLumis, PileupBlock, PileupDataset, Round, Workflow
from wms2.admin import OF_REQUEST, rows_admin, since_column

rows_admin(
    Workflow, "__str__", "status", "request", "splitting_algo", "input_dataset", "requested_events", filters=("status",),
    parts=("request__request_name", "input_dataset"), order=("-number",),
)  # fmt: skip


rows_admin(
    Round, "__str__", "workflow", "created_at", "closed_at", search=OF_REQUEST,
    links=(("Measurements", StepMeasurement, "round"),),
)  # fmt: skip

rows_admin(
    InputFile, "lfn", "workflow", "events", "size_bytes", "excluded_kind", "excluded_reason", "excluded_by",
    since_column("excluded_at", "left out"), since_column("waiting_since", "waits for a site"), "waiting_reason",
    filters=("excluded_kind", ("waiting_since", admin.EmptyFieldListFilter)), search={**OF_REQUEST, "lfn": "a whole LFN"},
)  # fmt: skip

# Lumis that requests split by lumi want, and those that nobody can give.
rows_admin(InputLumis, "id", "workflow", "run", "span", "fate", "reason", filters=("fate",), search=OF_REQUEST)

# One row for each dataset that some request mixes; read again when it is older than ``WMS2_PILEUP_CACHE_SECONDS``.
rows_admin(PileupDataset, "name", "=resolved_at", search={"name": "a dataset's whole name"}, order=("name",))

rows_admin(
    PileupBlock, "name", "dataset", "events", "rses",
    search={"name": "a block's whole name", "dataset__name": "a dataset's whole name"}, order=("id",),
)  # fmt: skip
