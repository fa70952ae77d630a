"""DQM harvestings."""

from __future__ import annotations

from requests_app.models import Harvest
from wms2.admin import BY_REQUEST, rows_admin

rows_admin(
    Harvest, "dataset", "run", "request", "state", "job", "attempts", "problem", "next_try_at", "ended_at", filters=("state",),
    search={**BY_REQUEST, "dataset": "a dataset's whole name"},
)  # fmt: skip
