"""Admin of outputs: datasets, blocks, files, effects still owed to outside services, and what differs there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from outputs_app.blocks.placements import placements_idle
from outputs_app.models import (
    BlockValidation,
    BlockWorkUnit,
    Comparison,
    DatasetOwner,
    Drift,
    Effect,
    EffectState,
    IntegrityCase,
    OutputDataset,
    OutputFile,
    OwnedDataset,
    Placement,
    ProcessingBlock,
    StorageCheck,
)
from wms2.admin import BY_REQUEST, OF_REQUEST, rows_admin, said_column, since_column
from wms2.admin.filters import recent_values
from wms2.admin.shown import EMPTY, aged
from wms2.web.formatting import exact

#: States in which it is tried by itself.
_TRIED = (EffectState.PENDING, EffectState.CLAIMED)


def _next_attempt(shown: Callable[[datetime], Any], row: Effect) -> Any:
    """Of one that will have any."""
    return shown(row.next_attempt_at) if row.state in _TRIED else EMPTY


rows_admin(OutputDataset, "name", "workflow", "tier", "tape_rse", search={"name": "a dataset's whole name", **OF_REQUEST})

rows_admin(
    OwnedDataset, "name", "family", "next_lumi", "created_at", search={"name": "a dataset's whole name", "family": "a family"},
)  # fmt: skip

rows_admin(DatasetOwner, "dataset", "request", "since", search={"dataset__name": "a dataset's whole name", **BY_REQUEST})

# Which outputs go to tape, and whose containers WMS2 places on disk, by campaign and tier; changed by operations.
rows_admin(
    Placement, "__str__", "tape", "disk_expression", "disk_copies", "disk_days", "disk_activity", order=("campaign", "tier"),
    above=placements_idle,
)  # fmt: skip


rows_admin(
    ProcessingBlock, "dbs_block_name", "status", "rucio_last_error", "workflow", "total_work_units", "planned_bytes", "sealed_at",
    "tape_rule_id", "no_tape", filters=("status",), order=("dbs_block_name",),
    search={"dbs_block_name": "a block's whole name", "dataset_name": "a dataset's whole name", **OF_REQUEST},
    links=(
        ("Files", OutputFile, "block"), ("Effects", Effect, "block"), ("Validation", BlockValidation, "block"),
        ("Storage", StorageCheck, "validation"),
    ),
)  # fmt: skip

rows_admin(
    OutputFile, "lfn", "block", "rse", "events", "size_bytes", "validity", "rule_id", filters=(recent_values("rse"), "validity"),
    search={"lfn": "a whole LFN", "block__dbs_block_name": "a block's whole name"},
)  # fmt: skip

rows_admin(
    Effect, "kind", "state", "request", "attempts", said_column("next_attempt", "next attempt", partial(_next_attempt, aged)),
    since_column("done_at", "done"), "last_error", filters=("state", "kind"),
    search={"key": "an effect's key", **BY_REQUEST}, in_words={"next_attempt_at": partial(_next_attempt, exact)},
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
