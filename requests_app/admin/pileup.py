"""What is known of pileup datasets, and since when."""

from __future__ import annotations

from django.contrib import admin

from requests_app.models import PileupBlock, PileupDataset
from wms2.admin import ReadOnlyAdmin, link_column


@admin.register(PileupDataset)
class PileupDatasetAdmin(ReadOnlyAdmin):
    """One row for each dataset that some request mixes; read again when it is older than ``WMS2_PILEUP_CACHE_SECONDS``."""

    list_display = ("name", "resolved_at")
    exact_search = ("name",)
    search_help_text = "A dataset's whole name."
    ordering = ("name",)


@admin.register(PileupBlock)
class PileupBlockAdmin(ReadOnlyAdmin):
    """Blocks with the RSEs that hold all of them."""

    list_display = ("name", link_column("dataset"), "events", "rses")
    list_select_related = ("dataset",)
    exact_search = ("name", "dataset__name")
    search_help_text = "A block's or a dataset's whole name."
    ordering = ("id",)
