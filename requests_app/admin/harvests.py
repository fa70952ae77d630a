"""DQM harvestings."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin

from requests_app.models import Harvest
from wms2.admin import ReadOnlyAdmin, badge_column, link_column, since_column


@admin.register(Harvest)
class HarvestAdmin(ReadOnlyAdmin):
    """What of completed requests is harvested for DQM servers, newest first."""

    list_display = (
        "dataset", "run", link_column("request"), badge_column("state"), link_column("job"), "attempts", "problem",
        since_column("next_try_at", "next try"), since_column("ended_at", "ended"),
    )  # fmt: skip
    list_filter = ("state",)
    exact_search: ClassVar = {"request__request_name": "a request's whole name", "dataset": "a dataset's whole name"}
