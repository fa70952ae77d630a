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
from wms2.admin import OF_REQUEST, ReadOnlyAdmin, badge_column, link_column, since_column
from wms2.admin.filters import recent_values
from wms2.admin.shown import list_url


@admin.register(OutputDataset)
class OutputDatasetAdmin(ReadOnlyAdmin):
    """Output datasets, newest first."""

    list_display = ("name", link_column("workflow"), "tier", "tape_rse")
    exact_search: ClassVar = {"name": "a dataset's whole name", **OF_REQUEST}


@admin.register(OwnedDataset)
class OwnedDatasetAdmin(ReadOnlyAdmin):
    """Names of output datasets, the family of requests that may write into each, and where its lumis go on; newest first."""

    list_display = ("name", "family", "next_lumi", since_column("created_at", "created"))
    exact_search: ClassVar = {"name": "a dataset's whole name", "family": "a family"}


@admin.register(DatasetOwner)
class DatasetOwnerAdmin(ReadOnlyAdmin):
    """Who writes, or has valid files, in which dataset; newest first."""

    list_display = ("dataset", link_column("request"), since_column("since", "since"))
    exact_search: ClassVar = {"dataset__name": "a dataset's whole name", "request__request_name": "a request's whole name"}


@admin.register(Placement)
class PlacementAdmin(ReadOnlyAdmin):
    """Which outputs go to tape, and whose containers WMS2 places on disk, by campaign and tier; changed by verbs."""

    list_display = ("__str__", "tape", "disk_expression", "disk_copies", "disk_days", "disk_activity")
    ordering = ("campaign", "tier")


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


@admin.register(OutputFile)
class OutputFileAdmin(ReadOnlyAdmin):
    """Merged files, newest first."""

    list_display = ("lfn", link_column("block"), "rse", "events", "size_bytes", badge_column("validity"), "rule_id")
    list_filter = (recent_values("rse"), "validity")
    exact_search: ClassVar = {"lfn": "a whole LFN", "block__dbs_block_name": "a block's whole name"}


@admin.register(Effect)
class EffectAdmin(ReadOnlyAdmin):
    """What is still to be done outside, and what was done; newest first."""

    list_display = (
        "kind", badge_column("state"), link_column("request"), "attempts", since_column("next_attempt_at", "next attempt"),
        "last_error",
    )  # fmt: skip
    list_filter = ("state", "kind")
    exact_search: ClassVar = {"key": "an effect's key", "request__request_name": "a request's whole name"}


@admin.register(BlockWorkUnit)
class BlockWorkUnitAdmin(ReadOnlyAdmin):
    """Which unit is in which block, newest first."""

    list_display = ("id", link_column("block"), link_column("unit"), "done", "size_bytes")
    list_filter = ("done",)


@admin.register(Drift)
class DriftAdmin(ReadOnlyAdmin):
    """Where DBS or Rucio hold something else than WMS2 believes; newest first."""

    list_display = (
        "kind", badge_column("state"), link_column("request"), "name", "expected", "found", since_column("since", "since"),
        since_column("last_seen", "last seen"), "reason",
    )  # fmt: skip
    list_filter = ("state", "kind")
    exact_search: ClassVar = {
        "name": "a whole LFN, block or dataset", "request__request_name": "a request's whole name", "rule_id": "a rule's id"
    }  # fmt: skip


@admin.register(Comparison)
class ComparisonAdmin(ReadOnlyAdmin):
    """How far the comparison of each dataset with DBS and Rucio is; the one without a dataset is the census of rules."""

    list_display = (
        "id", link_column("dataset"), since_column("due_at", "due"), since_column("begun_at", "begun"),
        since_column("ended_at", "ended"), "result", "last_error",
    )  # fmt: skip
    exact_search: ClassVar = {"dataset__name": "a dataset's whole name"}


@admin.register(BlockValidation)
class BlockValidationAdmin(ReadOnlyAdmin):
    """What was found when blocks were compared with the catalogues and the storage, newest first."""

    list_display = (
        link_column("block"), since_column("asked_at", "asked"), since_column("catalogues_at", "catalogues"),
        since_column("validated_at", "validated"), "files", "events", "generation",
    )  # fmt: skip
    exact_search: ClassVar = {"block__dbs_block_name": "a block's whole name"}
    ordering = ("-asked_at",)


@admin.register(StorageCheck)
class StorageCheckAdmin(ReadOnlyAdmin):
    """Files of blocks to be compared with the storage itself, newest first."""

    list_display = (
        "validation", "rse", "files", "looked_at", "checksums", "tries", "problem", since_column("done_at", "done"),
    )  # fmt: skip
    exact_search: ClassVar = {"rse": "an RSE", "site": "a site"}
    ordering = ("-id",)


@admin.register(IntegrityCase)
class IntegrityCaseAdmin(ReadOnlyAdmin):
    """Problem files and what was decided of them, newest first."""

    list_display = (
        "name", "prognosis", badge_column("state"), "action", link_column("request"), "site", since_column("created_at", "since"),
    )  # fmt: skip
    list_filter = ("state", "prognosis")
    exact_search: ClassVar = {"name": "a file's or a block's whole name", "site": "a site"}
    ordering = ("-id",)
