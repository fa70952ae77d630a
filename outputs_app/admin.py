"""Admin of outputs: datasets, blocks, files, effects still owed to outside services, and what differs there."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin

from outputs_app.models import (
    BlockValidation,
    BlockWorkUnit,
    Comparison,
    DatasetOwner,
    Drift,
    Effect,
    IntegrityCase,
    OutputDataset,
    OutputFile,
    OwnedDataset,
    Placement,
    ProcessingBlock,
    StorageCheck,
)
from wms2.admin import BY_REQUEST, OF_REQUEST, ReadOnlyAdmin, badge_column, link_column, rows_admin, since_column
from wms2.admin.filters import recent_values
from wms2.admin.shown import list_url

rows_admin(OutputDataset, "name", "workflow", "tier", "tape_rse", search={"name": "a dataset's whole name", **OF_REQUEST})

rows_admin(
    OwnedDataset, "name", "family", "next_lumi", "created_at", search={"name": "a dataset's whole name", "family": "a family"},
)  # fmt: skip

rows_admin(DatasetOwner, "dataset", "request", "since", search={"dataset__name": "a dataset's whole name", **BY_REQUEST})

# Which outputs go to tape, and whose containers WMS2 places on disk, by campaign and tier; changed by verbs.
rows_admin(
    Placement, "__str__", "tape", "disk_expression", "disk_copies", "disk_days", "disk_activity", order=("campaign", "tier"),
)  # fmt: skip


@admin.register(ProcessingBlock)
class ProcessingBlockAdmin(ReadOnlyAdmin):
    """Blocks, by name."""

    list_display = (
        "dbs_block_name", badge_column("status"), link_column("workflow"), "total_work_units", "planned_bytes",
        since_column("sealed_at", "sealed"), "tape_rule_id", "no_tape", "rucio_last_error",
    )  # fmt: skip
    list_filter = ("status",)
    exact_search: ClassVar = {"dbs_block_name": "a block's whole name", "dataset_name": "a dataset's whole name", **OF_REQUEST}
    ordering = ("dbs_block_name",)

    def row_links(self, row: Any) -> list[tuple[str, str]]:
        """What is in it, and what is owed for it."""
        of_block = f"block__id__exact={row.pk}"
        links = [("Files", list_url(OutputFile, of_block)), ("Effects", list_url(Effect, of_block))]
        of_validation = f"validation__exact={row.pk}"
        return [*links, ("Validation", list_url(BlockValidation, of_block)), ("Storage", list_url(StorageCheck, of_validation))]


rows_admin(
    OutputFile, "lfn", "block", "rse", "events", "size_bytes", "validity", "rule_id", filters=(recent_values("rse"), "validity"),
    search={"lfn": "a whole LFN", "block__dbs_block_name": "a block's whole name"},
)  # fmt: skip

rows_admin(
    Effect, "kind", "state", "request", "attempts", "next_attempt_at", "last_error", filters=("state", "kind"),
    search={"key": "an effect's key", **BY_REQUEST},
)  # fmt: skip

rows_admin(BlockWorkUnit, "id", "block", "unit", "done", "size_bytes", filters=("done",))

rows_admin(
    Drift, "kind", "state", "request", "name", "expected", "found", "since", "last_seen", "reason", filters=("state", "kind"),
    search={"name": "a whole LFN, block or dataset", **BY_REQUEST, "rule_id": "a rule's id"},
)  # fmt: skip

# How far the comparison of each dataset with DBS and Rucio is; the one without a dataset is the census of rules.
rows_admin(
    Comparison, "id", "dataset", "due_at", "begun_at", "ended_at", "result", "last_error",
    search={"dataset__name": "a dataset's whole name"},
)  # fmt: skip

rows_admin(
    BlockValidation, "block", "asked_at", "catalogues_at", "validated_at", "files", "events", "generation",
    search={"block__dbs_block_name": "a block's whole name"}, order=("-asked_at",),
)  # fmt: skip

rows_admin(
    StorageCheck, "validation", "rse", "files", "=looked_at", "checksums", "tries", "problem", "done_at",
    search={"rse": "an RSE", "site": "a site"}, order=("-id",),
)  # fmt: skip

rows_admin(
    IntegrityCase, "name", "prognosis", "state", "action", "request", "site", since_column("created_at", "since"),
    filters=("state", "prognosis"), search={"name": "a file's or a block's whole name", "site": "a site"}, order=("-id",),
)  # fmt: skip
