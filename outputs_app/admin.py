"""Admin of outputs: datasets, blocks, files, and effects still owed to outside services."""

from __future__ import annotations

from django.contrib import admin

from outputs_app.models import BlockWorkUnit, Effect, OutputDataset, OutputFile, ProcessingBlock
from wms2.admin import ReadOnlyAdmin


@admin.register(OutputDataset)
class OutputDatasetAdmin(ReadOnlyAdmin):
    """Output datasets."""

    list_display = ("name", "workflow", "tier", "tape_rse")
    search_fields = ("name",)
    list_select_related = ("workflow",)


@admin.register(ProcessingBlock)
class ProcessingBlockAdmin(ReadOnlyAdmin):
    """Blocks."""

    list_display = (
        "dbs_block_name",
        "status",
        "total_work_units",
        "planned_bytes",
        "sealed_at",
        "tape_rule_id",
        "rucio_last_error",
    )
    list_filter = ("status",)
    search_fields = ("dbs_block_name",)


@admin.register(OutputFile)
class OutputFileAdmin(ReadOnlyAdmin):
    """Merged files."""

    list_display = ("lfn", "rse", "events", "size_bytes", "validity", "rule_id")
    list_filter = ("rse", "validity")
    search_fields = ("lfn",)


@admin.register(Effect)
class EffectAdmin(ReadOnlyAdmin):
    """What is still to be done outside."""

    list_display = ("key", "kind", "state", "attempts", "next_attempt_at", "last_error", "request")
    list_filter = ("state", "kind")
    search_fields = ("key", "request__request_name")
    list_select_related = ("request",)


@admin.register(BlockWorkUnit)
class BlockWorkUnitAdmin(ReadOnlyAdmin):
    """Which unit is in which block."""

    list_display = ("block", "unit", "done", "size_bytes")
    list_select_related = ("block", "unit")
