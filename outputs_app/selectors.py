"""Reads of outputs_app: blocks with their progress, and what is still owed to DBS and Rucio."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Count, F, QuerySet

from outputs_app.models import (
    BlockWorkUnit,
    Drift,
    DriftState,
    Effect,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from wms2.runtime.columns import rows_with

#: States that only a person ends.
STUCK = (EffectState.REFUSED, EffectState.DEAD)


def blocks_shown() -> QuerySet[ProcessingBlock]:
    """Blocks with their request's name."""
    return rows_with(ProcessingBlock, "workflow__request_id")


def blocks_done_units(block_ids: Iterable[uuid.UUID]) -> Mapping[uuid.UUID, int]:
    """Block -> how many of its work units are done, one query for all; blocks without any are absent."""
    rows = BlockWorkUnit.objects.filter(block_id__in=list(block_ids), done=True).order_by()
    return dict(rows.values_list("block_id").annotate(number=Count("id")))


def block_units_completed(block: ProcessingBlock) -> list[Any]:
    """The block's units that are done, with their rounds."""
    rows = BlockWorkUnit.objects.filter(block=block, done=True).order_by("unit__round__index", "unit__index")
    return list(rows.values(round=F("unit__round__index"), name=F("unit__name")))


def block_source_rules(block: ProcessingBlock) -> dict[str, str]:
    """LFN -> id of the Rucio rule that protects the file where it was made."""
    rows = OutputFile.objects.filter(block=block).exclude(rule_id="").order_by("lfn")
    return dict(rows.values_list("lfn", "rule_id"))


def effects_shown() -> QuerySet[Effect]:
    """Effects with their request's name."""
    return rows_with(Effect, "request__request_name")


def datasets_shown() -> QuerySet[OutputDataset]:
    """Output datasets with their comparison and the names of their requests."""
    return rows_with(OutputDataset, "workflow__request_id", "comparison")


def drift_shown() -> QuerySet[Drift]:
    """Differences with their request's name, dataset and block."""
    block = ("block__dbs_block_name", "block__status", "block__tape_rule_id", "block__source_rule_id")
    return rows_with(Drift, "request__request_name", "dataset__name", "dataset__state", *block)


def datasets_reported(request_id: uuid.UUID) -> list[int]:
    """Output datasets of a request of which anything was written to DBS or Rucio."""
    rows = OutputDataset.objects.filter(workflow__request__pk=request_id, blocks__first_file_at__isnull=False)
    return list(rows.distinct().values_list("pk", flat=True))


def drift_unsettled(request_id: uuid.UUID) -> QuerySet[Drift]:
    """Differences of a request that were neither accepted nor repaired, oldest first."""
    return Drift.objects.filter(request_id=request_id, state=DriftState.UNSETTLED).order_by("id")
